"""Pages of a repository as pages of a site: what a code host shows otherwise, and nothing about their content.

On a code host an HTML comment is invisible, and a folder shows its README. Here a comment `<!-- site: toctree … -->` is
the directive `toctree`, and a link to a folder leads to the README in it.
"""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

COMMENT = re.compile(r"^<!-- site: (\w+)\n(.*?)^-->$", flags=re.DOTALL | re.MULTILINE)
REDIRECTION = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={url}"><a href="{url}">{url}</a>\n'
)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", uncover_directives)
    app.connect("doctree-read", lead_folders_to_readme)
    app.connect("build-finished", write_redirection)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def uncover_directives(app: Sphinx, docname: str, source: list[str]) -> None:
    folder = app.env.doc2path(docname).parent

    def uncover(comment: re.Match[str]) -> str:
        # Sphinx warns of a pattern that fits no page, and can't be told not to.
        lines = [line for line in comment[2].splitlines() if "*" not in line or any(folder.glob(f"{line}.md"))]
        if not any(lines[lines.index("") :]):  # a list of pages that are all still to come
            return ""
        return "\n".join([f"```{{{comment[1]}}}", *lines, "```"])

    source[0] = COMMENT.sub(uncover, source[0])


def lead_folders_to_readme(app: Sphinx, doctree: nodes.document) -> None:
    for link in doctree.findall(addnodes.pending_xref):
        if link["reftype"] == "myst" and link["refdomain"] is None:
            _, folder = app.env.relfn2path(link["reftarget"], app.env.current_document.docname)
            readme = app.env.path2doc(Path(folder) / "README.md")
            if readme in app.env.found_docs:
                link["refdomain"], link["reftarget"], link["reftargetid"] = "doc", readme, None


def write_redirection(app: Sphinx, error: Exception | None) -> None:
    """Let the site's top folder open its first page, which stands in a folder of the repository."""
    if error is None and app.builder.name == "html":
        url = app.builder.get_target_uri(app.config.root_doc)
        (Path(app.outdir) / "index.html").write_text(REDIRECTION.format(url=url))
