"""Docstrings as the site reads them: plain text with backticks, which no character in it can break."""

from importlib.util import module_from_spec, spec_from_file_location
from textwrap import dedent
from typing import Any

import pytest

from tests.docs.pages import ROOT


def load(name: str) -> Any:
    spec = spec_from_file_location(name, ROOT / "docs" / "extensions" / f"{name}.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DOCSTRINGS = load("docstrings")


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("the mean of `w`s", r"the mean of ``w``\ s"),
        ("|d| * v_, **changes, num_ranks", r"\|d\| \* v\_, \*\*changes, num_ranks"),
        ("`a\n    b_` and c_", "``a\n    b_`` and c\\_"),
        ("H. or e.g. this", r"H\. or e\.g\. this"),
    ],
)
def test_backticks_mean_code_and_no_other_character_has_a_meaning(text: str, escaped: str) -> None:
    assert DOCSTRINGS.escape(text) == escaped


def test_lists_formulas_sections_and_examples_are_told_apart() -> None:
    written = """\
        Mixes w_p:
        - one `a`,
          and more
        - two

            w <- mean(w_p) * 2

        Then:

            v_ <- |w|
        Text.
        Arguments:
            rate, momentum: how *much*
        Example:
            with start() as run:
                run * 2

        >>> x * 2
        4
    """
    expected = """\
        Mixes w_p:

        - one ``a``,
          and more
        - two

            w <- mean(w_p) \\* 2

        Then:

        ::

            v_ <- |w|

        Text.

        Arguments:
            rate, momentum: how \\*much\\*

        **Example**

        .. code-block:: python

            with start() as run:
                run * 2

        >>> x * 2
        4
    """
    assert DOCSTRINGS.translate(dedent(written).splitlines()) == [*dedent(expected).splitlines(), ""]
