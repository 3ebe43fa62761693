"""Staging on real ranks that talk, with hosts that are made up: each has a folder of its own and knows no other."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from deepex.data import ArraySource, Plan, Splits, Subset
from deepex.data.packing.pack import PackConfig, pack
from deepex.data.packing.packed import PackedSource
from deepex.data.source import read_field
from deepex.data.staging import clean_stage, stage_splits
from deepex.errors import ConfigError, DataError
from deepex.fabric import Fabric, SoloFabric
from deepex.testing.ranks import on_ranks
from deepex.world import World

COUNT = 3000


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    generator = torch.Generator().manual_seed(0)
    arrays = {"x": torch.rand(COUNT, 300, generator=generator), "y": torch.arange(COUNT), "z": torch.rand(COUNT) > 0.5}
    return pack(ArraySource(arrays), tmp_path / "shared.h5").path


def open_splits(path: Path) -> Splits:
    source = PackedSource(path)
    indices = np.arange(COUNT)
    return Splits(
        train=Subset(source, indices[600:]),
        validation=Subset(source, indices[:600]),
        content_sha256=source.content_sha256,
    )


def alone(path: Path, folder: Path) -> tuple[Splits, str]:
    return stage_splits(open_splits(path), folder, Plan(num_samples=2400, batch=8), SoloFabric(World()))


def on_two_hosts(path: Path, folder: Path, shuffle: str) -> Callable[[Fabric], tuple[list[int], str, int]]:
    """What three ranks on two hosts see: the numbers of their training samples, what is said, samples in the copy."""

    def rank(fabric: Fabric) -> tuple[list[int], str, int]:
        host = "north" if fabric.world.rank < 2 else "south"
        fabric.world = replace(fabric.world, host=host)
        plan = Plan(num_samples=2400, batch=8, shuffle=shuffle, rank=fabric.world.rank, size=3)  # type: ignore[arg-type]
        source = PackedSource(path)
        indices = np.arange(COUNT)
        splits = Splits(
            train=Subset(source, indices[600:]), validation=Subset(source, indices[:600]), content_sha256=""
        )
        staged, sentence = stage_splits(splits, folder / host, plan, fabric)
        owned = Subset(staged.train, plan.owned())
        assert read_field(staged.validation, "y").tolist() == list(range(600))
        assert np.array_equal(read_field(owned, "x"), read_field(Subset(splits.train, plan.owned()), "x"))
        assert np.array_equal(read_field(owned, "z"), read_field(Subset(splits.train, plan.owned()), "z"))
        (copy,) = (folder / host).glob("*.h5")
        return read_field(owned, "y").tolist(), sentence, len(PackedSource(copy))

    return rank


def test_all_nodes_get_all_samples_and_pass_them_on_in_global_shuffling(packed: Path, tmp_path: Path) -> None:
    ranks = on_ranks(3, on_two_hosts(packed, tmp_path, "global"))
    for owned, sentence, in_copy in ranks:
        assert sorted(owned) == list(range(600, COUNT))
        assert "2 nodes read a part each and passed it on" in sentence
        assert in_copy == COUNT
    again = on_ranks(3, on_two_hosts(packed, tmp_path, "global"))
    assert all("staged by an earlier run" in sentence for _, sentence, _ in again)


def test_a_node_gets_the_share_of_its_ranks_in_local_shuffling(packed: Path, tmp_path: Path) -> None:
    ranks = on_ranks(3, on_two_hosts(packed, tmp_path, "local"))
    assert sorted(number for owned, _, _ in ranks for number in owned) == list(range(600, COUNT))
    assert [in_copy for _, _, in_copy in ranks] == [600 + 1600, 600 + 1600, 600 + 800]


def test_a_copy_is_used_again_while_it_is_sound_and_made_again_when_it_is_not(packed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "fast"
    assert "a copy of 3,000 samples" in alone(packed, folder)[1]
    assert "staged by an earlier run" in alone(packed, folder)[1]
    (copy,) = folder.iterdir()
    with h5py.File(copy) as file:
        offset = file["x"].id.get_offset()
    content = bytearray(copy.read_bytes())
    content[offset + 1000] ^= 1
    copy.write_bytes(content)
    splits, sentence = alone(packed, folder)
    assert "a copy of" in sentence
    assert np.array_equal(read_field(splits.train, "x"), read_field(open_splits(packed).train, "x"))
    copy.write_bytes(content[:10_000])
    assert "a copy of" in alone(packed, folder)[1]


def test_a_file_that_changed_since_it_was_packed_is_not_staged(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(packed) as file:
        offset = file["x"].id.get_offset()
    content = bytearray(packed.read_bytes())
    content[offset + 1000] ^= 1
    packed.write_bytes(content)
    monkeypatch.setattr("deepex.data.packing.packed.VERIFIED_BYTES", 0)  # as for a file too large to verify on opening
    with pytest.raises(DataError, match=r"shared\.h5 was changed since it was packed: block 0 of 'x' has sha256"):
        alone(packed, tmp_path / "fast")
    assert not list((tmp_path / "fast").iterdir())


def test_shards_are_staged_into_one_file(tmp_path: Path) -> None:
    arrays = {"x": torch.rand(COUNT, 300), "y": torch.arange(COUNT)}
    shards = pack(ArraySource(arrays), tmp_path / "set", PackConfig(shards=3)).path
    splits, _ = alone(shards, tmp_path / "fast")
    assert read_field(splits.train, "y").tolist() == list(range(600, COUNT))


def test_only_what_was_staged_is_cleaned_up(packed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "fast"
    alone(packed, folder)
    (folder / "mine.h5").write_text("keep")
    size = next(path for path in folder.iterdir() if path.name != "mine.h5").stat().st_size
    (folder / "0123456789abcdef-0123456789abcdef.h5.parts" / "shards").mkdir(parents=True)
    assert clean_stage(folder) == (1, size)
    assert [path.name for path in folder.iterdir()] == ["mine.h5"]
    assert clean_stage(tmp_path / "nowhere") == (0, 0)


def test_what_can_not_be_staged_is_refused(packed: Path, tmp_path: Path) -> None:
    arrays = ArraySource({"x": torch.zeros(10)})
    splits = Splits(train=arrays, validation=arrays, content_sha256="")
    with pytest.raises(ConfigError, match="--stage copies packed data"):
        stage_splits(splits, tmp_path / "fast", Plan(num_samples=10, batch=1), SoloFabric(World()))
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="can't be written"):
        alone(packed, tmp_path / "file")


def test_a_node_with_too_small_a_disk_says_so_and_keeps_nothing(
    packed: Path, small_disk: Callable[[int], Path]
) -> None:
    disk = small_disk(1 << 20)
    with pytest.raises(DataError, match=r"needs 3\.5 MiB, and its file system has 1\.0 MiB left\. Free some space"):
        alone(packed, disk)
    assert not list(disk.iterdir())
