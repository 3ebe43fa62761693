import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from deepex.data import ArraySource, Source, Subset
from deepex.data.feeding.cache import Cache
from deepex.data.packing.pack import PackConfig, pack
from deepex.data.packing.packed import PackedSource
from deepex.data.source import allocate, read_all, read_field
from deepex.data.staging import Staged
from deepex.errors import DataError
from deepex.sample import Field
from deepex.testing.source import check_source

NUMBERS = np.random.default_rng(0)
MAPS, HEAT, KIND = NUMBERS.random((20, 5, 5)) < 0.5, NUMBERS.random(20).astype(np.float32), np.arange(20) % 3
FIELDS = {
    "map": Field(shape=(5, 5), dtype="bool", description="yes or no", channels=("a", "b", "c", "d", "e")),
    "heat": Field(shape=(), dtype="float32", unit="K"),
    "kind": Field(shape=(), dtype="int64", classes=("cubic", "hexagonal", "other")),
}


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    source = ArraySource({"map": MAPS, "heat": HEAT, "kind": KIND}, FIELDS, [f"run/{i}.txt" for i in range(20)])
    return pack(source, tmp_path / "a.h5", attributes={"origin": ["a", 1]}).path


def test_what_is_packed_comes_back(packed: Path) -> None:
    source = PackedSource(packed)
    assert source.spec.fields == FIELDS
    out = allocate(source.spec, 4)
    source.read([7, 0, 19], out)
    assert np.array_equal(out["map"][:3].numpy(), MAPS[[7, 0, 19]])
    assert np.array_equal(out["heat"][:3].numpy(), HEAT[[7, 0, 19]])
    assert source.attributes == {"origin": ["a", 1]}
    assert source.name(19) == "run/19.txt"
    assert source.class_counts["kind"].tolist() == [7, 7, 6]
    assert source.moments["heat"].mean[0] == pytest.approx(HEAT.mean())
    assert source.moments["map"].mean == pytest.approx(MAPS.mean(axis=(0, 2)))


def test_any_tool_opens_the_file_and_finds_it_contiguous(packed: Path) -> None:
    with h5py.File(packed) as file:
        assert file["map"].shape == (20, 4)  # 25 bits in 4 bytes
        assert file["heat"].chunks is None
        assert np.array_equal(file["heat"][()], HEAT)
        assert file["heat"].attrs["unit"] == "K"
        assert file["heat"].attrs["block_sha256"].shape == (1, 32)
        assert file["sample_name"][3] == b"run/3.txt"


def test_it_travels_to_other_processes(packed: Path) -> None:
    source = PackedSource(packed)
    source.name(0)
    again = pickle.loads(pickle.dumps(source))
    assert np.array_equal(read_field(again, "heat"), HEAT)


def test_a_changed_byte_is_named_with_field_samples_and_both_checksums(packed: Path) -> None:
    with h5py.File(packed) as file:
        offset = file["heat"].id.get_offset()
    content = bytearray(packed.read_bytes())
    content[offset + 12] ^= 1
    packed.write_bytes(content)
    with pytest.raises(DataError, match=r"samples 0 to 19 of 'heat' have sha256 [0-9a-f]{64}, the header says"):
        PackedSource(packed)


def test_a_changed_header_is_found(packed: Path) -> None:
    with h5py.File(packed, "r+") as file:
        file["heat"].attrs["block_sha256"] = np.zeros((1, 32), dtype=np.uint8)
    with pytest.raises(DataError, match="its list of checksums"):
        PackedSource(packed)


def test_files_that_are_missing_cut_off_or_not_packed_are_named(packed: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no data file"):
        PackedSource(tmp_path / "b.h5")
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["x"] = np.zeros(3)
    with pytest.raises(DataError, match=r"not a packed data set.*deepex data pack"):
        PackedSource(tmp_path / "plain.h5")
    packed.write_bytes(packed.read_bytes()[:5000])
    with pytest.raises(DataError, match=r"not a readable HDF5 file \(5,000 bytes"):
        PackedSource(packed)


def test_a_file_that_changes_while_it_is_read_is_an_error_and_not_a_crash(packed: Path) -> None:
    source = PackedSource(packed)
    read_all(source)
    with open(packed, "r+b") as file:
        file.truncate(4096)
    with pytest.raises(DataError, match="was changed while it was read: it has 4,096 bytes now"):
        read_all(source)


def test_a_file_that_disappears_while_it_is_read_does_no_harm(packed: Path) -> None:
    source = PackedSource(packed)
    read_all(source)
    packed.unlink()
    assert np.array_equal(read_field(source, "heat"), HEAT)
    with pytest.raises(DataError, match="can't be opened: No such file"):
        read_all(pickle.loads(pickle.dumps(source)))


def test_shards_are_one_data_set(tmp_path: Path) -> None:
    values = torch.rand(3000, 4, 100)
    source = ArraySource({"x": values})
    whole = pack(source, tmp_path / "whole.h5")
    packed = pack(source, tmp_path / "set", PackConfig(shards=3))
    assert len(list((tmp_path / "set").glob("*.h5"))) == 3
    shards = PackedSource(packed.path)
    out = allocate(shards.spec, 5)
    shards.read([2999, 0, 1500, 1200], out)
    assert torch.equal(out["x"][:4], values[[2999, 0, 1500, 1200]])
    assert shards.name(2999) == "2999"
    assert shards.moments["x"].mean == pytest.approx(PackedSource(whole.path).moments["x"].mean)
    (tmp_path / "set" / "00001.h5").unlink()
    with pytest.raises(DataError, match="shard 1 of 3, and 2 are here"):
        PackedSource(packed.path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no packed files"):
        PackedSource(tmp_path / "empty")


def test_reading_some_takes_them_evenly(packed: Path) -> None:
    source = PackedSource(packed)
    assert len(read_all(source)["heat"]) == 20
    assert np.array_equal(read_all(source, limit=3)["heat"].numpy(), HEAT[[0, 10, 19]])


def test_only_what_is_read_stays_mapped(tmp_path: Path) -> None:
    """A file larger than what may stay mapped does not grow the process while it is read."""
    path = pack(ArraySource({"x": torch.zeros(2000, 1 << 16, dtype=torch.uint8)}), tmp_path / "large.h5").path
    source = PackedSource(path)
    out = allocate(source.spec, 10)
    most = 0
    for first in range(0, 2000, 10):
        source.read(range(first, first + 10), out)
        if first % 100 == 0:
            most = max(most, _mapped(path))
    assert 0 < most < 100 << 20


def _mapped(path: Path) -> int:
    """Bytes of a file that this process has mapped and touched."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.endswith(str(path)))
    found = next(line for line in lines[start:] if line.startswith("Rss:"))
    return 1024 * int(found.split()[1])


@pytest.mark.parametrize("kind", ["file", "shards", "kept", "staged"])
def test_it_keeps_the_promises_of_a_source(tmp_path: Path, kind: str) -> None:
    whole = ArraySource({"x": torch.rand(1200, 4, 100), "z": torch.rand(1200, 9) > 0.5, "y": torch.arange(1200)})
    path = pack(whole, tmp_path / "set", PackConfig(shards=2 if kind == "shards" else 0)).path
    source = PackedSource(path)
    made: dict[str, Source] = {
        "file": source,
        "shards": source,
        "kept": Cache(source, num_bytes=500 * source.spec.num_bytes),
        "staged": Subset(Staged(source, np.arange(1200), 5000), np.arange(40, 1160)),
    }
    check_source(lambda: made[kind])
