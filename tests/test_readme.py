"""What README shows is what happens."""

import re
import subprocess
import sys
from pathlib import Path

import deepex

README = Path(deepex.__file__).parents[2] / "README.md"


def test_the_example_with_one_s_own_module_runs_as_printed(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    (tmp_path / "own.py").write_text(example)
    done = subprocess.run([sys.executable, "own.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    value, page = done.stdout.splitlines()[-1].split()
    assert float(value) < 0.001
    assert (tmp_path / page).is_file()


def test_the_first_screen_names_the_two_commands() -> None:
    first_screen = README.read_text()[:1000]
    assert "make train" in first_screen
    assert "make test" in first_screen
