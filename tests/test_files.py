"""Writing on real disks, small and full ones too."""

import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from deepex.errors import DataError
from deepex.files import explained, replacing, temporary_beside, write_whole

DISK_BYTES = 1 << 20


def write(path: Path, content: object = "") -> None:
    with explained(path, DataError, elsewhere="choose another --out.", otherwise="Choose one that you may write to."):
        write_whole(path, content) if isinstance(content, str | bytes) else content(path)  # type: ignore[operator]


def save_array(path: Path) -> None:
    np.save(path, np.ones(DISK_BYTES))


def save_tensor(path: Path) -> None:
    torch.save(torch.ones(DISK_BYTES), path)


def save_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.ones(DISK_BYTES)


@pytest.mark.parametrize("content", [b"x" * 2 * DISK_BYTES, save_array, save_tensor, save_hdf5])
def test_a_full_disk_is_told_with_the_cure_whoever_writes(content: object, small_disk: Callable[[int], Path]) -> None:
    disk = small_disk(DISK_BYTES)
    with pytest.raises(DataError, match=r"a\.bin can't be written: .*full: free some space, or choose another --out\."):
        write(disk / "a.bin", content)


def test_a_file_stays_whole_when_its_new_content_does_not_fit(small_disk: Callable[[int], Path]) -> None:
    path = small_disk(DISK_BYTES) / "a.txt"
    write(path, "old")
    with pytest.raises(DataError, match="No space left on device"):
        write(path, b"x" * 2 * DISK_BYTES)
    assert path.read_text() == "old"
    assert [each.name for each in path.parent.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (OSError(errno.EDQUOT, "x"), "Disk quota exceeded. Your quota is used up: free some space, or choose another"),
        (OSError(errno.EROFS, "x"), "Read-only file system. Choose one that you may write to."),
        (OSError("no such driver."), "no such driver. Choose one that you may write to."),
        (RuntimeError("write failed (errno = 28)"), "No space left on device. The disk is full: free some space"),
    ],
)
def test_what_went_wrong_decides_on_the_cure(failure: Exception, said: str) -> None:
    def fail(path: Path) -> None:
        raise failure

    with pytest.raises(DataError) as raised:
        write(Path("a"), fail)
    assert said in str(raised.value)


def test_an_error_that_is_not_of_writing_is_left_alone() -> None:
    def fail(path: Path) -> None:
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        write(Path("a"), fail)


def test_an_error_while_writing_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "old")

    def write_half() -> None:
        with replacing(path) as temporary:
            temporary.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


def test_writers_of_one_file_do_not_mix(tmp_path: Path) -> None:
    """Whoever looks sees one content or the other, and both writers get through."""
    path, together = tmp_path / "a.txt", threading.Barrier(2)
    contents = ["a" * 500_000, "b" * 500_000]

    def write_often(content: str) -> set[str]:
        seen = set()
        for _ in range(50):
            together.wait(timeout=20)
            write_whole(path, content)
            seen.add(path.read_text())
        return seen

    with ThreadPoolExecutor(2) as pool:
        seen = set().union(*pool.map(write_often, contents))
    assert seen <= set(contents)
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


def test_a_temporary_name_is_never_given_twice(tmp_path: Path) -> None:
    with temporary_beside(tmp_path / "a") as first, temporary_beside(tmp_path / "a") as second:
        assert first != second
        assert first.parent == second.parent == tmp_path
