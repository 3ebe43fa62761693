"""How pages are taken apart, which all tests here rest on."""

from tests.docs.pages import Page

TEXT = """# A page

See [one](two.md#three), ![a picture](four.png) and `[no](link)`.

## Why `x` fails: it's 2 × slow
## Same
## Same

```python
print("a [block](is.no) link")
```

<!-- not run: needs a GPU -->
```python
raise SystemExit
```

1. A list:
   ```python
   x = 1
   ```

<!-- not run -->
```python
y = 2
```
"""


def test_links_and_headings_are_those_that_readers_see() -> None:
    page = Page(TEXT)
    assert page.links == ["two.md#three", "four.png"]
    assert page.anchors == {"a-page", "why-x-fails-its-2--slow", "same", "same-1"}
    assert page.code_in_text == ["[no](link)", "x"]


def test_blocks_of_python_are_run_unless_a_comment_gives_a_reason() -> None:
    page = Page(TEXT)
    assert [block.not_run for block in page.blocks] == ["", "needs a GPU", "", ""]
    assert [example.text for example in page.examples] == ['print("a [block](is.no) link")\n', "x = 1\n", "y = 2\n"]


def test_a_program_has_each_line_where_the_page_has_it() -> None:
    page = Page(TEXT)
    written, shown = page.program.splitlines(), TEXT.splitlines()
    for number, line in enumerate(written):
        assert line == "" or line == shown[number].strip()
    assert sum(line != "" for line in written) == 3
