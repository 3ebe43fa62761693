"""A real Jupyter kernel whose cells are run one after the other, as in a notebook. It knows no deepex."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

SECONDS = 60


class Notebook(NotebookClient):
    """Runs cells, counts what they show, and interrupts the kernel when a cell shows a given text."""

    kinds: list[str]
    interrupt_at: str

    def process_message(self, msg: Any, cell: NotebookNode, cell_index: int) -> NotebookNode | None:
        kind, data = msg["msg_type"], msg["content"].get("data", {})
        self.kinds.append(kind)
        if self.interrupt_at and self.interrupt_at in data.get("text/plain", ""):
            self.interrupt_at, manager = "", cast(AsyncKernelManager, self.km)
            self.interrupting = asyncio.ensure_future(manager.interrupt_kernel())
        return super().process_message(msg, cell, cell_index)

    def run(self, code: str, interrupt_at: str = "") -> list[NotebookNode]:
        """What a cell shows in the end; the kernel is interrupted once it shows `interrupt_at`."""
        self.kinds, self.interrupt_at = [], interrupt_at
        self.nb.cells.append(new_code_cell(code))
        return list(self.execute_cell(self.nb.cells[-1], len(self.nb.cells) - 1)["outputs"])

    @property
    def num_updates(self) -> int:
        """How often the last cell has replaced an output."""
        return self.kinds.count("update_display_data")


@contextmanager
def open_notebook(folder: Path) -> Iterator[Notebook]:
    """A notebook in a folder, with a kernel of its own that ends with the block."""
    # A kernel that believes itself to be in a test does not show what its child processes print.
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    resources = {"metadata": {"path": str(folder)}}
    notebook = Notebook(new_notebook(), timeout=SECONDS, allow_errors=True, resources=resources)
    with notebook.setup_kernel(env=environment):
        yield notebook


def find(outputs: list[NotebookNode], kind: str) -> list[NotebookNode]:
    """The outputs of a kind."""
    return [output for output in outputs if output["output_type"] == kind]


def read_printed(outputs: list[NotebookNode]) -> str:
    """All that was printed."""
    return "".join(output["text"] for output in find(outputs, "stream"))


def read_error(outputs: list[NotebookNode]) -> str:
    """The error that a cell shows, as it shows it."""
    (error,) = find(outputs, "error")
    return "\n".join(error["traceback"])
