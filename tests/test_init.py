import subprocess

import deepex
from tests.interpreter import PYTHON


def test_the_public_names_are_exactly_these() -> None:
    assert deepex.__all__ == [
        "ArrayTask",
        "DeepexError",
        "Loss",
        "Recipe",
        "Run",
        "Study",
        "Tally",
        "Target",
        "Task",
        "build_recipe",
        "resume_run",
        "run",
        "run_study",
    ]
    assert all(hasattr(deepex, name) for name in deepex.__all__)
    assert set(deepex.__all__) <= set(dir(deepex))


def test_packages_are_found_and_a_mistyped_name_is_answered_with_those_that_are() -> None:
    program = "import deepex as dx; print(dx.models.LeNet5.__name__)\ndx.rum"
    done = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "LeNet5\n"
    assert "module 'deepex' has no attribute 'rum'. It has: ArrayTask, " in done.stderr
