from pathlib import Path

import h5py
import numpy as np
import pytest

from deepex.data.pack import Column, PackedSource, write
from deepex.data.source import allocate, read_all
from deepex.errors import DataError


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    columns = {
        "map": Column(values=generator.random((20, 5, 5)) < 0.5, description="yes or no"),
        "heat": Column(values=generator.random(20).astype(np.float32), unit="K"),
    }
    write(tmp_path / "a.h5", columns, {"origin": ["a", 1]})
    return tmp_path / "a.h5"


def test_what_is_packed_comes_back(packed: Path) -> None:
    generator = np.random.default_rng(0)
    maps, heat = generator.random((20, 5, 5)) < 0.5, generator.random(20).astype(np.float32)
    source = PackedSource(packed)
    out = allocate(source.spec, 4)
    source.read([7, 0, 19], out)
    assert np.array_equal(out["map"][:3].numpy(), maps[[7, 0, 19]].astype(np.float32))
    assert np.array_equal(out["heat"][:3].numpy(), heat[[7, 0, 19]])
    assert source.attributes["origin"] == ["a", 1]
    assert source.spec.fields["heat"].unit == "K"


def test_bits_are_stored_as_bits_and_any_tool_opens_the_file(packed: Path) -> None:
    with h5py.File(packed) as file:
        assert file["map"].shape == (20, 4)  # 25 bits in 4 bytes
        assert file["map"].chunks is None
        assert file["heat"].attrs["unit"] == "K"


def test_a_damaged_file_is_named_with_both_hashes(packed: Path) -> None:
    good = PackedSource(packed).content_sha256
    with h5py.File(packed, "r+") as file:
        file["heat"][3] = 0.0
    with pytest.raises(DataError) as raised:
        PackedSource(packed)
    assert good in str(raised.value)
    assert "a.h5 is damaged" in str(raised.value)


def test_a_truncated_or_missing_file_is_named(packed: Path) -> None:
    packed.write_bytes(packed.read_bytes()[:500])
    with pytest.raises(DataError, match=r"not a readable HDF5 file \(sha256 [0-9a-f]{64}"):
        PackedSource(packed)
    with pytest.raises(DataError, match="there is no data file"):
        PackedSource(packed.with_name("b.h5"))


def test_reading_some_takes_them_evenly(packed: Path) -> None:
    source = PackedSource(packed)
    assert len(read_all(source)["heat"]) == 20
    some = read_all(source, limit=3)["heat"].numpy()
    assert np.array_equal(some, source.arrays["heat"][[0, 10, 19]])
