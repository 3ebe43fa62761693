"""A tree of pictures: where they stand, what they hold, and that a second try writes only what is missing."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from deepex.data.packing.image_tree import write_image_tree
from deepex.data.source import ArraySource
from deepex.errors import DataError
from deepex.fabric import Fabric
from deepex.sample import Field
from deepex.testing.ranks import on_ranks

CLASSES = ("cat", "dog")


def make_source(channels: int = 1, count: int = 1200) -> ArraySource:
    images = np.random.default_rng(0).integers(0, 256, (count, channels, 5, 7), dtype=np.uint8)
    labels = np.arange(count) % 2
    fields = {
        "image": Field(shape=(channels, 5, 7), dtype="uint8"),
        "label": Field(shape=(), dtype="int64", classes=CLASSES),
        "validation": Field(shape=(), dtype="uint8"),
    }
    arrays = {"image": images, "label": labels, "validation": (np.arange(count) % 10 == 9).astype(np.uint8)}
    names = [f"{CLASSES[label]}/probe{number:05d}/t0" for number, label in enumerate(labels)]
    return ArraySource(arrays, fields, names)


def pictures(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("channels", [1, 3])
def test_every_picture_stands_in_its_class_and_holds_its_pixels(channels: int, tmp_path: Path) -> None:
    source = make_source(channels, count=30)
    write_image_tree(source, tmp_path)
    assert len(pictures(tmp_path)) == 30
    with Image.open(tmp_path / "val" / "dog" / "probe00009_t0.png") as image:
        stored = source.tensors["image"][9].permute(1, 2, 0).squeeze(-1).numpy()
        assert np.array_equal(np.asarray(image), stored)
    assert (tmp_path / "train" / "cat" / "probe00000_t0.png").exists()


def test_what_is_there_is_left_and_what_is_missing_is_written_by_two_ranks_as_by_one(tmp_path: Path) -> None:
    source = make_source()
    told: list[tuple[int, int]] = []
    write_image_tree(source, tmp_path / "one")
    write_image_tree(source, tmp_path / "two", ranks=2, tell=lambda done, total: told.append((done, total)))
    assert pictures(tmp_path / "one") == pictures(tmp_path / "two")
    assert told[-1] == (1200, 1200)
    kept, lost = (tmp_path / "two" / "train" / "cat" / f"probe0000{number}_t0.png" for number in (0, 2))
    stamp = kept.stat().st_mtime_ns
    lost.unlink()
    write_image_tree(source, tmp_path / "two")
    assert lost.exists()
    assert kept.stat().st_mtime_ns == stamp


def _write_as_rank(fabric: Fabric, folder: Path) -> None:
    write_image_tree(make_source(), folder, fabric=fabric)


def test_ranks_of_a_launcher_share_the_work(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    on_ranks(2, lambda fabric: _write_as_rank(fabric, folder))
    assert len(pictures(folder)) == 1200


def test_samples_that_are_no_pictures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="without --png"):
        write_image_tree(ArraySource({"x": torch.zeros(3, 2)}), tmp_path / "tree")
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="is a file"):
        write_image_tree(make_source(count=2), tmp_path / "file")
