from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from deepex.data.packing.layout import LEAST_BLOCK, Layout
from deepex.sample import Field, SampleSpec


def spec(num_bytes: int) -> SampleSpec:
    return SampleSpec(fields={"x": Field(shape=(num_bytes,), dtype="uint8")})


@given(st.integers(1, 3000), st.integers(1, LEAST_BLOCK), st.integers(0, 5), st.integers(1, 40))
def test_every_sample_has_one_row_of_one_file(num_samples: int, num_bytes: int, shards: int, group: int) -> None:
    layout = Layout.of(spec(num_bytes), num_samples, 8, shards=shards, group=group)
    places = [layout.place(number) for number in range(layout.num_blocks)]
    assert [index for place in places for index in place.samples] == list(range(num_samples))
    for shard, shape in enumerate(layout.shapes):
        rows = [place.row + row for place in places if place.shard == shard for row in range(len(place))]
        assert rows == list(range(shape.num_samples))
        assert [places[number].shard for number in layout.blocks(shard)] == [shard] * shape.num_blocks
    assert sum(shape.num_samples for shape in layout.shapes) == layout.num_samples == num_samples
    assert 1 <= len(layout.shapes) <= max(1, shards)


@given(st.integers(2, 3000), st.integers(2, 40))
def test_a_group_is_never_parted(num_samples: int, group: int) -> None:
    layout = Layout.of(spec(LEAST_BLOCK // 3), num_samples, 8, shards=4, group=group)
    starts = {layout.place(number).first for number in range(layout.num_blocks)}
    assert all(start % group == 0 for start in starts)


def test_files_are_named_by_their_number() -> None:
    layout = Layout.of(spec(LEAST_BLOCK), 3, 8, shards=2)
    assert [file.name for file in layout.files(Path("set"))] == ["00000.h5", "00001.h5"]
    assert layout.num_bytes == 3 * (LEAST_BLOCK + 8)
