import os
from pathlib import Path

import pytest

from deepex.fabric.shared.segment import Location, Segment, open_peer


def is_open(location: Location) -> bool:
    path = Path(f"/proc/self/fd/{location.descriptor}")
    return path.exists() and path.stat().st_ino == location.inode


def test_a_peer_reads_and_writes_the_same_memory() -> None:
    segment = Segment(8192)
    peer = open_peer(os.getpid(), segment.location)
    assert len(peer) == 8192
    assert not any(peer)
    segment[5] = 7
    peer[8191] = 9
    assert (peer[5], segment[8191]) == (7, 9)
    segment.tensor()[10] = 1.5
    assert peer.tensor()[10] == 1.5
    assert peer.array()[40:44].tobytes() == segment[40:44]


def test_a_peer_s_view_outlives_the_segment_and_the_mapping() -> None:
    segment = Segment(4096)
    segment[0] = 3
    location = segment.location
    view = open_peer(os.getpid(), location).array()
    assert is_open(location)
    del segment
    assert not is_open(location)  # nobody else can open it any more
    assert view[0] == 3


def test_another_file_in_its_place_is_noticed() -> None:
    segment = Segment(4096)
    elsewhere = segment.location._replace(inode=segment.location.inode + 1)
    open_files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # a number is what is compared
    with pytest.raises(LookupError, match=f"process {os.getpid()} is another one here than there"):
        open_peer(os.getpid(), elsewhere)
    assert len(os.listdir("/proc/self/fd")) == open_files  # noqa: PTH208


def test_a_process_or_a_file_that_is_not_there_is_an_os_error() -> None:
    segment = Segment(4096)
    nobody = int(Path("/proc/sys/kernel/pid_max").read_text()) + 1
    with pytest.raises(OSError, match=f"/proc/{nobody}/fd/"):
        open_peer(nobody, segment.location)
    with pytest.raises(OSError, match="/fd/1000000"):
        open_peer(os.getpid(), segment.location._replace(descriptor=1_000_000))


def test_memory_that_can_t_be_had_leaves_no_file_open() -> None:
    open_files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(OSError, match="Cannot allocate memory"):
        Segment(2**62)
    assert len(os.listdir("/proc/self/fd")) == open_files  # noqa: PTH208


def test_nothing_of_it_has_a_name() -> None:
    segment = Segment(4096)
    assert not [name for name in os.listdir("/dev/shm") if "deepex" in name]  # noqa: PTH208
    assert "deepex" in str(Path(f"/proc/self/fd/{segment.location.descriptor}").readlink())
