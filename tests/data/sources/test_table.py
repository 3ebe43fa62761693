"""The table of readers: what stands in it can be opened, and nothing in the folder stands outside it."""

from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

from deepex.config import override
from deepex.data import sources
from deepex.data.sources import READERS

FOLDER = Path(sources.__file__).parent


def test_every_reader_is_one_file_one_entry_and_one_test() -> None:
    files = {file.stem for file in FOLDER.glob("*.py")} - {"__init__"}
    tests = {file.stem.removeprefix("test_") for file in Path(__file__).parent.glob("test_*.py")} - {"table"}
    assert files == set(READERS) == tests


@pytest.mark.parametrize("name", READERS)
def test_a_reader_has_options_with_defaults_and_opens_a_source(name: str) -> None:
    module = import_module(f"deepex.data.sources.{name}")
    assert override(module.Options(), []) == module.Options()
    assert list(signature(module.open_source).parameters) == ["path", "options"]


def test_no_ending_has_two_readers() -> None:
    endings = [suffix for reader in READERS.values() for suffix in reader.suffixes]
    assert len(endings) == len(set(endings))
