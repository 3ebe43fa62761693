"""Code by name: what a name leads to, what a name that leads nowhere is answered with, and objects without a name."""

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deepex import reference
from deepex.errors import ConfigError
from deepex.reference import (
    OBJECTS_FILE,
    dump_objects,
    is_reference,
    load_object,
    load_objects,
    make_absolute,
    mentioned_objects,
    name_object,
)

MODULE = """
from beside import NUMBER

class Net:
    class Block:
        width = NUMBER

def make():
    return Net.Block.width
"""


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Names, modules and search paths of a test end with it."""
    monkeypatch.setattr(reference, "_objects", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    modules = set(sys.modules)
    yield
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a user's own code, which is not the working folder."""
    (tmp_path / "my code").mkdir()
    (tmp_path / "my code" / "nets.py").write_text(MODULE)
    (tmp_path / "my code" / "beside.py").write_text("NUMBER = 7\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "my code"


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("kepler.py:Kepler", True),
        ("/home/me/my code/kepler.py:Kepler.make", True),
        ("package.module:name", True),
        ("objects.pkl:task", True),
        ("protein", False),
        ("protein.toml", False),
        ("local:8", False),
        ("kepler.py", False),
        ("kepler.py:", False),
        ("kepler.py:8", False),
        (":Kepler", False),
        ("2d.module:name", False),
    ],
)
def test_names_of_code_are_told_from_other_words(text: str, is_one: bool) -> None:
    assert is_reference(text) is is_one


def test_a_file_is_found_from_any_folder_and_imports_what_stands_beside_it(folder: Path) -> None:
    assert load_object("my code/nets.py:Net.Block.width") == 7
    absolute = make_absolute("my code/nets.py:make")
    assert absolute == f"{folder}/nets.py:make"
    assert load_object(absolute) is load_object("my code/nets.py:make")  # one module, however it is called
    assert make_absolute("package.module:name") == "package.module:name"


def test_files_whose_names_differ_in_a_sign_are_two(tmp_path: Path) -> None:
    for number, name in enumerate(("a-b", "a_b")):
        (tmp_path / f"{name}.py").write_text(f"number = {number}\n")
    assert [load_object(f"{tmp_path}/{name}.py:number") for name in ("a-b", "a_b")] == [0, 1]


def test_modules_are_found_in_the_working_folder_as_python_finds_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert load_object("nets:make")() == 7
    assert name_object(load_object("nets:Net.Block")) == "nets:Net.Block"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no.py:f", r"there is no file .*/no\.py\. Give the path of a file that exists"),
        ("my code/nets.py:Nett", r"unknown name 'Nett'\. Did you mean 'Net'\?"),
        ("my code/nets.py:Net.Blok", r"unknown name 'Blok'\. Did you mean 'Block'\?"),
        ("my code/nets.py:Net.Block.width.more", "unknown name 'more'"),
        ("nowhere:f", "'nowhere:f': there is no module 'nowhere'. .* PYTHONPATH"),
        ("json.nowhere:f", "there is no module 'json.nowhere'"),
        ("objects.pkl:gone", "Give it again there, or put it into a file"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_name_that_leads_nowhere_is_answered_with_where_it_ends(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_object(text)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os\n\n1 / 0\n", "line 3: ZeroDivisionError: division by zero"),
        ("def f(:\n", "line 1: SyntaxError"),
        ("import nowhere_at_all\n", "line 1: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("import sys\nsys.exit(3)\n", "line 2: SystemExit: 3"),
    ],
)
def test_code_that_fails_while_it_is_imported_is_told_with_its_line_and_can_be_corrected(
    tmp_path: Path, code: str, said: str
) -> None:
    file = tmp_path / "own.py"
    file.write_text(code)
    with pytest.raises(ConfigError) as raised:
        load_object(f"{file}:f")
    assert f"{file}, {said}" in str(raised.value)
    file.write_text("def f():\n    return 1\n# longer than before\n")
    assert load_object(f"{file}:f")() == 1


def test_what_can_be_imported_is_called_by_its_module_and_what_comes_from_a_file_by_its_file(folder: Path) -> None:
    assert name_object(threading.Thread.join) == "threading:Thread.join"
    assert name_object(load_object(f"{folder}/nets.py:make")) == f"{folder}/nets.py:make"


def make_adder(number: int) -> Callable[[int], int]:
    return lambda value: value + number


def test_what_has_no_name_is_kept_each_under_one_of_its_own(tmp_path: Path) -> None:
    names = [name_object(make_adder(number)) for number in (1, 2)]
    assert names == ["objects.pkl:lambda", "objects.pkl:lambda2"]
    assert [load_object(name)(10) for name in names] == [11, 12]
    assert name_object(make_adder(1)) == names[0]  # the same lines with the same number, run again
    text = f"optimiser = '{names[0]}'\nsync = '{names[1]}:4'\n"
    assert mentioned_objects(text) == ["lambda", "lambda2"]
    (tmp_path / OBJECTS_FILE).write_bytes(dump_objects(mentioned_objects(text)))
    reference._objects.clear()  # as in another process
    load_objects(tmp_path / OBJECTS_FILE)
    assert [load_object(name)(10) for name in names] == [11, 12]


class Holder:
    def __init__(self) -> None:
        self.width, self.lock = 3, threading.Lock()


def test_the_part_that_can_not_leave_the_process_is_named() -> None:
    assert name_object(Holder()) == "objects.pkl:Holder"
    with pytest.raises(ConfigError, match="'lock' of Holder can't be sent to the run's own processes: TypeError"):
        dump_objects(["Holder"])


@pytest.mark.parametrize("content", [b"", b"no pickle", b"\x80\x05\x95"])
def test_a_file_of_objects_that_is_damaged_or_missing_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / OBJECTS_FILE
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        load_objects(file)
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"{file} is damaged: .* Bring it back from a copy"):
        load_objects(file)


def test_objects_of_a_module_that_is_not_here_name_it(tmp_path: Path) -> None:
    file = tmp_path / OBJECTS_FILE
    file.write_bytes(b"cnowhere_at_all\nmake\n.")
    with pytest.raises(ConfigError, match=r"No module named 'nowhere_at_all'\. Add the folder of that module"):
        load_objects(file)
