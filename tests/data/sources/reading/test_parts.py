import os
import pickle
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from deepex.data.sources.reading.parts import OPEN_FILES, OpenFiles, Parts
from deepex.errors import DataError, SampleError

LABELS: dict[str, Sequence[object]] = {"a": range(3), "b": [], "c": ["x", "y"], "d": [""]}


def inspect(file: Path) -> Sequence[object]:
    if file.name.startswith("damaged"):
        raise SampleError(f"{file} is damaged")
    if file.name.startswith("unfit"):
        raise DataError(f"{file} does not fit")
    return LABELS[file.name]


def parts_of(*names: str) -> Parts:
    root = Path("/data")
    return Parts([root / name for name in names], root, inspect)


class Handle:
    """A file that counts who is open."""

    open_names: list[str] = []  # noqa: RUF012  # of the class on purpose: all handles count together

    def __init__(self, file: Path) -> None:
        self.file, self.thread, self.process = file, threading.get_ident(), os.getpid()
        self.open_names.append(file.name)

    def close(self) -> None:
        self.open_names.remove(self.file.name)


def test_samples_are_found_in_their_files_in_rising_order_with_their_places() -> None:
    parts = parts_of("a", "b", "c", "d")
    assert len(parts) == 6
    assert [parts.name(index) for index in range(6)] == ["a:0", "a:1", "a:2", "c:x", "c:y", "d"]
    found = [(part.name, rows.tolist(), places.tolist()) for part, rows, places in parts.split([5, 2, 4, 0, 2])]
    assert found == [("a", [0, 2, 2], [3, 1, 4]), ("c", [1], [2]), ("d", [0], [0])]
    assert list(parts.split([])) == []
    assert [rows.tolist() for _, rows, _ in parts.split(range(2, 5))] == [[2], [0, 1]]


def test_a_bad_file_counts_as_one_sample_that_can_t_be_read() -> None:
    parts = parts_of("damaged1", "a", "unfit", "damaged2")
    assert len(parts) == 6
    assert [parts.name(index) for index in (0, 4, 5)] == ["damaged1", "unfit", "damaged2"]
    for index, told in ((0, "damaged1 is"), (4, "unfit does not"), (5, "damaged2 is")):
        with pytest.raises(SampleError, match=told):
            list(parts.split([index]))
    assert len(list(parts.split(np.array([1, 3])))) == 1


def test_nothing_to_read_is_refused_on_opening() -> None:
    with pytest.raises(DataError, match="unfit does not") as error:
        parts_of("damaged1", "unfit", "a")
    assert not isinstance(error.value, SampleError)
    with pytest.raises(DataError, match="damaged1 is") as error:
        parts_of("damaged1", "damaged2")
    assert not isinstance(error.value, SampleError)
    with pytest.raises(DataError, match="holds no sample"):
        parts_of("b")


def test_the_files_used_last_stay_open() -> None:
    Handle.open_names.clear()
    opened = OpenFiles(Handle)
    files = [Path(str(number)) for number in range(OPEN_FILES + 1)]
    first = opened.get(files[0])
    for file in files[1:]:
        opened.get(file)
        assert opened.get(files[0]) is first
    assert len(Handle.open_names) == OPEN_FILES
    assert "1" not in Handle.open_names


def test_each_thread_opens_files_of_its_own() -> None:
    opened = OpenFiles(Handle)
    handles = [opened.get(Path("a"))]
    thread = threading.Thread(target=lambda: handles.append(opened.get(Path("a"))))
    thread.start()
    thread.join()
    assert handles[0].thread != handles[1].thread


def test_neither_a_pickle_nor_a_forked_process_has_the_open_files() -> None:
    opened = OpenFiles(Handle)
    first = opened.get(Path("a"))
    assert pickle.loads(pickle.dumps(opened)).get(Path("a")) is not first
    child = os.fork()
    if not child:
        os._exit(0 if opened.get(Path("a")).process == os.getpid() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
