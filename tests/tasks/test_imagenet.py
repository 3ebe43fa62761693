"""A tree of photographs as people have it becomes a packed set, and the task reads it as it should."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from deepex.data import ArraySource
from deepex.data.feeding.prepare import Preparer
from deepex.data.packing.pack import PackConfig, pack
from deepex.data.source import allocate, read_all
from deepex.errors import ConfigError, DataError, SampleError
from deepex.launch.data import make_missing_data
from deepex.record.illustration import ImageGrid, Matrix
from deepex.tasks.data.imagenet import ImagenetData
from deepex.tasks.imagenet import Imagenet, recipe
from deepex.testing.source import check_source

SIDE, STORED = 64, 72
SYNSETS = ("n01440764", "n01443537", "n01484850")
COLOURS = ((200, 40, 40), (40, 200, 40), (40, 40, 200))


def _save(file: Path, pixels: NDArray[Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file, format="JPEG", quality=95)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Three classes, told apart by their colour, 4 images of each to learn from and 2 to judge, the first ones grey."""
    generator, root = np.random.default_rng(0), tmp_path / "tree"
    for part, count in (("train", 4), ("val", 2)):
        for synset, colour in zip(SYNSETS, COLOURS, strict=True):
            for number in range(count):
                height, width = generator.integers(70, 160, 2)
                pixels = (np.array(colour) + generator.integers(0, 40, (height, width, 3))).astype(np.uint8)
                file = root / part / synset / f"{synset}_{number}.JPEG"
                _save(file, pixels[..., 0] if number == 0 else pixels)
    return root


def _packed(tree: Path, **settings: Any) -> Imagenet:
    task = Imagenet(folder=str(tree), file=str(tree.parent / "packed.h5"), side=SIDE, stored_side=STORED, **settings)
    making = task.making
    pack(making.source(), task.path, PackConfig(group=making.group), attributes=making.attributes())
    return task


def test_a_tree_is_a_source_with_classes_and_both_parts(tree: Path) -> None:
    data = ImagenetData(folder=str(tree), side=STORED)
    source = data.source()
    assert len(source) == 18
    assert source.name(0) == f"train/{SYNSETS[0]}/{SYNSETS[0]}_0.JPEG"
    batch = read_all(source)
    assert batch["image"].shape == (18, 3, STORED, STORED)
    assert batch["label"].tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [0] * 2 + [1] * 2 + [2] * 2
    assert batch["validation"].tolist() == [0] * 12 + [1] * 6
    assert source.spec.fields["label"].classes == SYNSETS
    grey, green = batch["image"][0].float(), batch["image"][5].float()
    assert torch.equal(grey[0], grey[1])
    assert torch.equal(grey[0], grey[2])
    assert green.mean(dim=(1, 2)).argmax() == 1
    assert 0 < data.core_seconds < 1
    assert data.attributes()["source"]["path"] == "tree"  # and nothing of where it stands
    check_source(lambda: ImagenetData(folder=str(tree), side=16).source())


def test_the_short_side_fits_and_the_middle_is_kept(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for name in ("a", "b"):
            stripes = np.zeros((64, 192, 3), dtype=np.uint8)
            stripes[:, 64:128] = 255
            _save(tmp_path / part / name / "1.jpg", stripes)
    batch = read_all(ImagenetData(folder=str(tmp_path), side=32).source())
    assert batch["image"][..., 2:-2].min() > 250  # the white middle third alone


def test_sizes_are_the_first_classes_by_name(tree: Path) -> None:
    assert [ImagenetData.of_size(size).classes for size in ("small", "medium", "paper")] == [10, 100, None]
    two = ImagenetData(folder=str(tree), classes=2, side=16).source()
    assert two.classes == SYNSETS[:2]
    assert len(two) == 12
    with pytest.raises(DataError, match=r"unknown size 'tiny'"):
        ImagenetData.of_size("tiny")


def test_the_packed_set_is_split_normalised_and_cut(tree: Path) -> None:
    task = _packed(tree)
    splits = task.data()
    assert (len(splits.train), len(splits.validation)) == (12, 6)
    assert splits.validation.name(0).startswith("val/")
    preparer = Preparer(splits.train, splits.preparation)
    batch = allocate(preparer.spec, 12)
    preparer.read(range(12), batch)
    assert batch["image"].shape == (12, 3, SIDE, SIDE)
    assert batch["image"].mean().abs() < 0.2
    stored = read_all(splits.train)["image"]
    edge = (STORED - SIDE) // 2
    assert torch.allclose(batch["image"][3], _normalised(task, stored[3, :, edge:-edge, edge:-edge]), atol=1e-4)
    drawn = allocate(preparer.spec, 12)
    preparer.read(range(12), drawn, (0, 1))
    assert not torch.equal(drawn["image"], batch["image"])


def _normalised(task: Imagenet, image: torch.Tensor) -> torch.Tensor:
    moments = task.source.moments["image"]
    mean, deviation = (torch.tensor(each).view(3, 1, 1) for each in (moments.mean, moments.deviation))
    return ((image - mean) / deviation).float()


@pytest.mark.parametrize("network", ["alexnet", "vgg16", "resnet50"])
def test_each_network_has_an_output_for_each_class(tree: Path, network: Any) -> None:
    task = replace(_packed(tree), network=network)
    with torch.device("meta"):
        model = task.model()
    assert model(torch.zeros(2, 3, SIDE, SIDE, device="meta")).shape == (2, 3)


def test_loss_metric_and_pictures(tree: Path) -> None:
    (tree / "LOC_synset_mapping.txt").write_text(f"{SYNSETS[0]} tench, Tinca tinca\nn0 other\n")
    task = _packed(tree)
    torch.manual_seed(0)
    model, splits = task.model(), task.data()
    preparer = Preparer(splits.validation, splits.preparation)
    batch = allocate(preparer.spec, 6)
    preparer.read(range(6), batch)
    loss = task.loss(model, batch).total
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    assert torch.isfinite(loss)
    tally = task.evaluate(model.eval(), batch)
    assert tally.count == 6
    assert tally.beside == {"top5_error": 0.0}
    illustration = task.illustrate(model, batch, batch)
    assert illustration.findings["top1_error"] == pytest.approx(tally.value)
    grid, matrix = illustration.pictures
    assert isinstance(grid, ImageGrid)
    assert grid.images.dtype == np.uint8
    assert grid.images.shape == (6, 1, SIDE, SIDE, 3)
    assert any(label.startswith("tench:") for label in grid.labels)
    photograph = task.source.column("image")[13][:, 4:-4, 4:-4].transpose(1, 2, 0)
    assert any(np.array_equal(image[0], photograph) for image in grid.images)
    assert isinstance(matrix, Matrix)
    assert matrix.names == ("tench", *SYNSETS[1:])


def test_an_image_that_can_not_be_read_is_named_and_may_be_left_out(tree: Path) -> None:
    broken = tree / "train" / SYNSETS[1] / "broken.JPEG"
    broken.write_bytes(b"\xff\xd8\xff no more")
    making = ImagenetData(folder=str(tree), side=16)
    with pytest.raises(SampleError, match=r"broken\.JPEG can't be read \(damaged or not an image"):
        read_all(making.source())
    with pytest.raises(DataError, match=r"--skip-bad N\. What is done is kept.* options: deepex data make imagenet"):
        make_missing_data(Imagenet(folder=str(tree), file=str(tree.parent / "run.h5")), None, "quiet")
    packed = pack(making.source(), tree.parent / "x.h5", PackConfig(skip_bad=1), attributes=making.attributes())
    assert packed.num_samples == 18
    assert list(packed.left_out) == [f"train/{SYNSETS[1]}/broken.JPEG"]


def test_trees_that_are_none_are_told(tree: Path, tmp_path: Path) -> None:
    def listed(folder: Path | str) -> None:
        ImagenetData(folder=str(folder)).source()

    with pytest.raises(DataError, match=r"no folder of images is given\. Expected is a tree ROOT/train/CLASS"):
        listed("")
    with pytest.raises(DataError, match=r"there is no folder .*nowhere/train\. Expected is a tree"):
        listed(tmp_path / "nowhere")
    stray = tree / "val" / "n99999999"
    _save(stray / "1.jpg", np.zeros((9, 9, 3), dtype=np.uint8))
    with pytest.raises(DataError, match=r"val has 1 classes that train has not: n99999999"):
        listed(tree)
    (stray / "1.jpg").unlink()
    stray.rmdir()
    (tree / "train" / "n02000000").mkdir()
    with pytest.raises(DataError, match=r"n02000000 holds no image"):
        listed(tree)
    (tree / "val").rename(tree / "elsewhere")
    with pytest.raises(DataError, match=r"there is no folder .*val\. Expected is a tree"):
        listed(tree)
    (tree / "val").mkdir()
    with pytest.raises(DataError, match=r"val holds no class folders\. Sort its images into those of train"):
        listed(tree)
    (tree / "val" / SYNSETS[0]).mkdir()
    (tree / "train" / "n02000000").rmdir()
    with pytest.raises(DataError, match=r"val holds no image of n01440764"):
        listed(tree)


def test_one_class_is_refused(tmp_path: Path) -> None:
    for part in ("train", "val"):
        _save(tmp_path / part / "only" / "1.jpg", np.zeros((9, 9, 3), dtype=np.uint8))
    with pytest.raises(DataError, match=r"train holds 1 class folder\. Allowed: 2 or more"):
        ImagenetData(folder=str(tmp_path)).source()


def test_without_a_tree_or_a_packed_set_the_way_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    message = r"no packed data set data/imagenet_small.h5, .*task\.folder=ROOT.*deepex run fashion"
    with pytest.raises(DataError, match=message):
        Imagenet().data()
    with pytest.raises(DataError, match=message):
        _ = Imagenet().making


def test_a_packed_set_without_images_is_refused(tmp_path: Path) -> None:
    pack(ArraySource({"x": torch.zeros(4, 2)}), tmp_path / "x.h5")
    with pytest.raises(DataError, match=r"x.h5 has no image and no label and no validation\. Pack a tree"):
        Imagenet(file=str(tmp_path / "x.h5")).data()


def test_impossible_settings_are_refused_and_recipes_stand() -> None:
    with pytest.raises(ConfigError, match=r"task\.side = 300 with task\.stored_side = 256"):
        Imagenet(side=300)
    with pytest.raises(ConfigError, match=r"task\.smoothing = -0.1"):
        Imagenet(smoothing=-0.1)
    with pytest.raises(DataError, match=r"classes = 1\. Allowed"):
        ImagenetData(classes=1)
    with pytest.raises(DataError, match=r"side = 0\. Allowed"):
        ImagenetData(side=0)
    assert recipe("paper").task.target.threshold == 0.241
    assert Imagenet(size="paper", network="alexnet").target.threshold == 0.435
    assert recipe().task == Imagenet()
