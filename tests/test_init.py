import subprocess

import deepex
from tests.interpreter import PYTHON

PUBLIC_NAMES = [
    "DeepexError",
    "Loss",
    "Recipe",
    "Replicated",
    "Run",
    "Session",
    "Study",
    "Tally",
    "Target",
    "Task",
    "build_recipe",
    "feed",
    "launch",
    "load",
    "resume_run",
    "run",
    "run_study",
    "start",
    "task",
]


def test_the_public_names_are_exactly_these() -> None:
    assert deepex.__all__ == PUBLIC_NAMES
    assert all(hasattr(deepex, name) for name in deepex.__all__)
    assert set(deepex.__all__) <= set(dir(deepex))


def test_packages_are_found_and_a_mistyped_name_is_answered_with_those_that_are() -> None:
    program = "import deepex as dx; print(dx.models.LeNet5.__name__)\ndx.rum"
    done = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "LeNet5\n"
    assert f"module 'deepex' has no attribute 'rum'. It has: {', '.join(PUBLIC_NAMES)}" in done.stderr


def test_importing_deepex_brings_in_what_it_needs_and_no_more() -> None:
    program = (
        "import sys, deepex as dx; print('torch' in sys.modules); [getattr(dx, name) for name in dx.__all__]; "
        "print([name for name in ('plotly', 'matplotlib', 'typer', 'IPython', 'torch._dynamo') if name in sys.modules])"
    )
    done = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n[]\n", done.stderr
