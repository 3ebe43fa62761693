"""Fashion-MNIST is read as Debian packages it, and its networks learn from it."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from deepex.data.feeding.prepare import Preparer
from deepex.data.source import allocate, read_all
from deepex.errors import ConfigError, DataError
from deepex.models.lenet import LeNet5
from deepex.models.resnet import ResNet14, ResNet50
from deepex.record.illustration import ImageGrid, Matrix
from deepex.tasks.fashion import CLASSES, DEBIAN_FOLDER, Fashion, recipe


def _save(file: Path, array: NDArray[Any]) -> None:
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">i4").tobytes()
    file.write_bytes(gzip.compress(head + array.astype(np.uint8).tobytes()))


def write_stripes(folder: Path) -> None:
    """Bright stripes at a height that tells the class, 80 to learn from and 40 to be judged by."""
    generator = np.random.default_rng(0)
    for part, count in (("train", 80), ("t10k", 40)):
        labels = np.arange(count) % 10
        images = generator.integers(0, 60, (count, 28, 28))
        for image, label in zip(images, labels, strict=True):
            image[2 + 2 * label : 5 + 2 * label, 4:20] = 220
        _save(folder / f"{part}-images-idx3-ubyte.gz", images)
        _save(folder / f"{part}-labels-idx1-ubyte.gz", labels)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    write_stripes(tmp_path)
    return str(tmp_path)


def _prepared(task: Fashion, draw_for: tuple[int, int] | None = None) -> dict[str, torch.Tensor]:
    splits = task.data()
    preparer = Preparer(splits.validation, splits.preparation)
    out = allocate(preparer.spec, len(preparer))
    preparer.read(range(len(preparer)), out, draw_for)
    return out


def test_the_whole_set_is_what_debian_installs() -> None:
    if not Path(DEBIAN_FOLDER).is_dir():
        with pytest.raises(DataError, match="apt-get install dataset-fashion-mnist"):
            Fashion().data()
        return
    splits = Fashion().data()
    assert (len(splits.train), len(splits.validation)) == (60_000, 10_000)
    labels = read_all(splits.validation)["label"]
    assert torch.bincount(labels).tolist() == [1000] * 10
    assert splits.content_sha256 == Fashion().data().content_sha256
    assert splits.preparation.convert["image"].shift == pytest.approx((72.94,), abs=0.01)  # as everybody has it


def test_samples_are_normalised_and_named(folder: str) -> None:
    task = Fashion(folder=folder)
    splits = task.data()
    assert splits.train.spec.fields["label"].classes == CLASSES
    assert splits.train.name(3) == "train:3"
    assert splits.validation.name(3) == "t10k:3"
    preparer = Preparer(splits.train, splits.preparation)
    out = allocate(preparer.spec, 80)
    preparer.read(range(80), out)
    assert out["image"].shape == (80, 1, 28, 28)
    assert out["image"].mean().item() == pytest.approx(0, abs=1e-4)
    assert out["image"].std().item() == pytest.approx(1, abs=1e-3)


def test_the_content_hash_tells_sets_apart(folder: str) -> None:
    before = Fashion(folder=folder).data().content_sha256
    _save(Path(folder) / "t10k-labels-idx1-ubyte.gz", (np.arange(40) + 1) % 10)
    assert Fashion(folder=folder).data().content_sha256 != before


def test_training_moves_and_mirrors_images_and_evaluation_does_not(folder: str) -> None:
    plain = _prepared(Fashion(folder=folder))["image"]
    moved = Fashion(folder=folder, shift=2)
    assert torch.equal(_prepared(moved)["image"], plain)
    drawn = _prepared(moved, (0, 1))["image"]
    assert drawn.shape == plain.shape
    assert not torch.equal(drawn, plain)
    mirrored = _prepared(Fashion(folder=folder), (0, 1))["image"]
    is_same = [torch.equal(a, b) for a, b in zip(mirrored, plain, strict=True)]
    is_mirrored = [torch.equal(a.flip(-1), b) for a, b in zip(mirrored, plain, strict=True)]
    assert all(same != other for same, other in zip(is_same, is_mirrored, strict=True))
    assert 0 < sum(is_same) < len(is_same)


def test_each_size_has_its_network_target_and_recipe(folder: str) -> None:
    networks = {"small": LeNet5, "medium": ResNet14, "paper": ResNet50}
    thresholds = {"small": 0.10, "medium": 0.07, "paper": 0.07}
    for size in ("small", "medium", "paper"):
        task = Fashion(folder=folder, size=size)
        with torch.device("meta"):
            model = task.model()
        assert isinstance(model, networks[size])
        assert model(torch.zeros(2, 1, 28, 28, device="meta")).shape == (2, 10)
        assert recipe(size).task.target.threshold == thresholds[size]
        assert recipe(size).task == Fashion(size=size, shift=2 if size == "paper" else 0)


def test_a_few_steps_learn_and_the_page_shows_it(folder: str) -> None:
    task = Fashion(folder=folder)
    torch.manual_seed(0)
    model, splits = task.model(), task.data()
    preparer = Preparer(splits.train, splits.preparation)
    batch = allocate(preparer.spec, 80)
    preparer.read(range(80), batch)
    validation = _prepared(task)
    before = task.evaluate(model, validation)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(40):
        optimiser.zero_grad()
        task.loss(model, batch).total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()
    after = task.evaluate(model, validation)
    assert after.value < 0.2 < before.value
    assert after.count == 40
    illustration = task.illustrate(model, batch, validation)
    assert illustration.findings["top1_error"] == pytest.approx(after.value)
    grid, matrix = illustration.pictures
    assert isinstance(grid, ImageGrid)
    assert grid.images.shape == (10, 1, 28, 28)
    assert 0 <= grid.images.min() < 0.1 < 0.8 < grid.images.max() <= 1
    assert isinstance(matrix, Matrix)
    assert matrix.names == CLASSES
    assert matrix.counts.sum() == 40


def test_files_that_are_missing_or_wrong_are_told(folder: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\[\.gz\]\. Install .*apt-get install dataset-fash"):
        Fashion(folder=str(tmp_path / "nowhere")).data()
    _save(tmp_path / "t10k-labels-idx1-ubyte.gz", np.full(40, 12))
    with pytest.raises(DataError, match=r"holds t10k label 12\. Allowed: 0 to 9"):
        Fashion(folder=folder).data()
    _save(tmp_path / "t10k-labels-idx1-ubyte.gz", np.zeros(39))
    with pytest.raises(DataError, match=r"t10k images uint8 \(40, 28, 28\) and labels uint8 \(39,\)"):
        Fashion(folder=folder).data()


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"task\.smoothing = 1"):
        Fashion(smoothing=1.0)
    with pytest.raises(ConfigError, match=r"task\.shift = -1"):
        Fashion(shift=-1)
