"""The Python that pages show runs as printed: all blocks of a page in order, in an empty folder.

A block is left out only by a comment before it that says why: `<!-- not run: needs a GPU -->`. README has a test of its
own.
"""

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, README, Page, name, run_page

WITH_EXAMPLES = [path for path in PAGES if path != README and Page(path.read_text()).examples]
COMMENT = re.compile(r"^\s*<!-- not run", flags=re.MULTILINE)
OTHER_NAMES = ("Python", "ipython", "py", "py3", "pycon", "python3")


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=name)
def test_the_examples_of_a_page_run_as_printed(path: Path, tmp_path: Path) -> None:
    done = run_page(path, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_no_block_escapes_by_another_name_or_a_comment_in_a_wrong_place(path: Path) -> None:
    page = Page(path.read_text())
    assert [block for block in page.blocks if block.language in OTHER_NAMES] == []
    left_out = [block for block in page.blocks if block.not_run]
    assert [block for block in left_out if block.language != "python"] == []
    assert len(COMMENT.findall(page.text)) == len(left_out)


def test_an_example_that_fails_is_noticed_with_its_line_in_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```python\nx = 1\n```\n\nThen:\n```python\nassert x == 2\n```\n")
    done = run_page(page, tmp_path)
    assert done.returncode == 1
    assert 'page.py", line 9' in done.stderr
