"""Folders on real file systems: one to write to, one that is full, one that can only be read."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepex.doctor.folders import find_filesystem, measure_folder


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 20 MB in memory; making one needs root, as in the containers that tests run in."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(disk)], check=True, timeout=20)
    yield disk
    subprocess.run(["umount", str(disk)], check=True, timeout=20)


def test_a_folder_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep me")
    speed = measure_folder(tmp_path, 20 * 10**6)
    assert speed.measured_by == "a temporary file of 16 MB"
    assert all((speed.read_mb_per_second, speed.cached_mb_per_second, speed.write_mb_per_second))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_little_space_is_not_filled(small_disk: Path) -> None:
    speed = measure_folder(small_disk, 256 * 10**6)
    assert speed.measured_by == (
        "not measured: nor are there files to read (it can't be written: too little space is free)"
    )
    assert speed.read_mb_per_second is speed.write_mb_per_second is None
    assert speed.in_memory
    assert not any(small_disk.iterdir())


def test_a_folder_that_can_only_be_read_is_measured_by_its_own_files(small_disk: Path) -> None:
    (small_disk / "deep").mkdir()
    (small_disk / "deep" / "data.h5").write_bytes(b"1" * 3_000_000)
    (small_disk / "note").write_text("too small to tell")
    (small_disk / "broken").symlink_to("nowhere")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True, timeout=20)
    speed = measure_folder(small_disk, 256 * 10**6)
    assert speed.measured_by == "3 MB of the files there (it can't be written: Read-only file system)"
    assert speed.read_mb_per_second
    assert speed.write_mb_per_second is None


def test_the_nearest_mount_names_the_file_system(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    lines = [
        "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw",
        "30 27 0:30 / /scratch rw - lustre server:/scratch rw",
        "31 27 0:31 / /my\\040data rw - nfs4 server:/data rw",
        "32 27 0:32 / /scratch rw - tmpfs none rw",
    ]
    mounts.write_text("\n".join(lines) + "\n")
    assert find_filesystem(Path("/home/me"), mounts) == "ext4"
    assert find_filesystem(Path("/my data/set"), mounts) == "nfs4"
    assert find_filesystem(Path("/scratch/me"), mounts) == "tmpfs"
    assert find_filesystem(Path("/scratchy"), mounts) == "ext4"
    assert find_filesystem(Path("/home"), tmp_path / "nothing") == "unknown"
