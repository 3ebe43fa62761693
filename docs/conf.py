"""Settings of the documentation site, which `make docs` builds from the repository's Markdown files and docstrings.

The source directory is the repository, so that a relative link between two files means the same as on a code host.
"""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "deepex"
project_copyright = "The deepex developers"
version = release = version_of("deepex")

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_parser", "repository", "docstrings", "reference"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "docs/**/*.md", "benchmarks/*.md"]
# Folders without pages are not searched: an environment or a folder of runs has many thousand files.
exclude_patterns = [path.name for path in ROOT.iterdir() if path.is_dir() and path.name not in ("docs", "benchmarks")]

html_theme = "furo"
html_title = f"{project} {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
highlight_language = "text"  # blocks that name no language are commands and what they print

myst_heading_anchors = 4  # links to headings are formed as on a code host

python_maximum_signature_line_length = 100
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_param = False  # one line may describe several arguments, as in "rate, momentum: …"
napoleon_use_ivar = True
napoleon_custom_sections = [("Arguments", "params_style"), ("Attributes", "params_style")]
