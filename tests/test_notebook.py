"""Outside of a notebook nothing of one is seen, and IPython is not loaded."""

import subprocess

import pytest

from deepex.errors import Interrupted, TrainingError, UsageError
from deepex.notebook import current_cell, in_notebook, name_cells
from deepex.record.sinks.progress import choose_verbosity
from tests.interpreter import PYTHON


def test_plain_python_is_no_notebook_and_prints_lines() -> None:
    assert not in_notebook()
    assert current_cell() is None
    assert choose_verbosity(None) == "lines"
    assert choose_verbosity("quiet") == "quiet"
    text = 'File "/tmp/ipykernel_1/2.py", line 3, in loss'
    assert name_cells(text) == text


def test_a_verbosity_that_can_t_be_is_refused() -> None:
    with pytest.raises(UsageError, match="Allowed here: bar, lines, quiet"):
        choose_verbosity("notebook")
    with pytest.raises(UsageError, match="Did you mean 'lines'"):
        choose_verbosity("line")  # type: ignore[arg-type]  # a mistyped word


def test_an_error_s_text_in_a_notebook_is_all_that_it_says() -> None:
    assert TrainingError("one\ntwo")._render_traceback_() == ["deepex: error: one", "two"]
    assert Interrupted("stopped. Go on.")._render_traceback_() == ["deepex: stopped. Go on."]


def test_deepex_does_not_load_ipython() -> None:
    program = "import deepex.api, sys; print([name for name in sys.modules if name.startswith('IPython')])"
    done = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n"
