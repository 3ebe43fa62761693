from pathlib import Path

import h5py
import numpy as np

from deepex.data.packing.header import Content, Shape, write_header
from deepex.data.packing.packed import NAMES
from deepex.data.statistics import Moments
from deepex.sample import Field, SampleSpec

SPEC = SampleSpec(fields={"x": Field(shape=(1 << 20,), dtype="uint8")})
SHAPE = Shape(spec=SPEC, num_samples=20_000, name_bytes=5, block_samples=1)


def test_thousands_of_checksums_fit_and_data_stays_where_it_is(tmp_path: Path) -> None:
    """Old HDF5 attributes end at 64 kB; checksums of 20,000 blocks are ten times as much."""
    checksums = tuple(f"{number:064x}" for number in range(20_000))
    content = Content(
        block_sha256={"x": checksums, NAMES: checksums},
        moments={"x": Moments.none(1)},
        class_counts={},
        attributes={"words": ["word"] * 50_000},
    )
    empty, full = write_header(tmp_path / "a.h5", SHAPE), write_header(tmp_path / "b.h5", SHAPE, content)
    assert {name: column.offset for name, column in empty.items()} == {
        name: column.offset for name, column in full.items()
    }
    assert all(column.offset % 4096 == 0 for column in full.values())
    with h5py.File(tmp_path / "b.h5") as file:
        assert bytes(file["x"].attrs["block_sha256"][19_999]).hex() == checksums[-1]
        assert np.prod(file["x"].shape) == 20_000 << 20
    assert (tmp_path / "b.h5").stat().st_blocks * 512 < 20 << 20  # nothing is written for the data itself
