"""The notebook whose kernel this process may be: whether it is one, what its cells are called, outputs that change.

IPython is used nowhere else, and only where it runs already. It knows no runs.
"""

import linecache
import re
import secrets
import sys
from typing import Any

KERNEL_SHELL = "ZMQInteractiveShell"
PLACE = re.compile(r'(?P<quoted>File ")?(?P<file>/[^\s"]+\.py)(?(quoted)"), line (?P<line>\d+)(?P<rest>.*)')


def find_shell() -> Any:
    """The shell of a Jupyter kernel; None in plain Python, and in IPython on a terminal."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = None if get_shell is None else get_shell()
    return shell if any(kind.__name__ == KERNEL_SHELL for kind in type(shell).__mro__) else None


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    return find_shell() is not None


def current_cell() -> int | None:
    """The number of the cell that is run now; None outside of notebooks."""
    shell = find_shell()
    return None if shell is None else int(shell.execution_count)


def name_cells(text: str) -> str:
    """A text with the cells that it tells of, each by its number, and with their lines in tracebacks.

    Ranks know only made-up files of cells, and none of their lines.
    """
    shell = find_shell()
    return text if shell is None else PLACE.sub(lambda found: _name_cell(shell, found), text)


def _name_cell(shell: Any, found: re.Match[str]) -> str:
    name = shell.compile.format_code_name(found["file"])
    if name is None:
        return found[0]
    named = f"{' '.join(name)}, line {found['line']}{found['rest']}"
    source = linecache.getline(found["file"], int(found["line"])).strip()
    return f"{named}\n    {source}" if found["quoted"] and source else named


class Output:
    """One output of a cell, whose content is replaced as often as one likes, from any thread."""

    def __init__(self) -> None:
        self.cell = current_cell()
        self._id, self._html = "", ""

    def show(self, html: str, text: str) -> None:
        """Show this in place of what was there; `text` is for those who see no HTML."""
        from IPython.display import display, update_display  # a kernel has it loaded

        if html == self._html:
            return
        self._html, data = html, {"text/html": html, "text/plain": text}
        if self._id:
            update_display(data, display_id=self._id, raw=True)
        else:
            self._id = secrets.token_hex(16)
            display(data, display_id=self._id, raw=True)
