"""Python programs that begin with torch and deepex imported.

Importing them takes two seconds of a core, and tests start some hundred programs. A server imports once and forks; a
client stands in for the interpreter, and hands over what it was started with: words, folder, variables, open files,
cores. Signals reach the program, and its end becomes the client's.

Not for tests that look at a process from outside (its number, its memory, its terminal) or at how one begins: those
start `PYTHON` itself. Programs in another network namespace are started as usual.
"""

from pathlib import Path
from sysconfig import get_path

PYTHON = str(Path(get_path("scripts")) / "python")
