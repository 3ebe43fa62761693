"""Contact sheets: which samples are on them, and that what is drawn can be seen."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from deepex.data.checking.contact_sheet import draw_sheet, read_samples
from deepex.data.checking.thumbnails import DARK, WRONG, Scale, choose_thumbnails
from deepex.data.source import ArraySource, Source
from deepex.data.sources import open_source
from deepex.errors import DataError
from deepex.sample import Field

LABEL = Field(shape=(), dtype="int64", classes=("cat", "dog", "eel"))


def test_a_few_of_each_class_are_shown() -> None:
    labels = torch.tensor([0] * 200 + [1] * 3 + [2] * 100)
    source = ArraySource(
        {"x": torch.rand(303, 8, 8), "label": labels}, {"x": Field(shape=(8, 8), dtype="float32"), "label": LABEL}
    )
    shown = [sample.label for sample in read_samples(source, choose_thumbnails(source.spec), 48)]
    assert shown == ["cat"] * 16 + ["dog"] * 3 + ["eel"] * 16


def test_without_classes_samples_are_taken_evenly_up_to_the_last() -> None:
    source = ArraySource({"x": torch.rand(1000, 8, 8)})
    names = [sample.name for sample in read_samples(source, choose_thumbnails(source.spec), 5)]
    assert names == ["0", "250", "500", "749", "999"]


def test_colours_are_drawn_as_they_are() -> None:
    image = np.zeros((1, 3, 32, 32), dtype=np.uint8)
    image[0, :, :, 16:] = np.array([200, 30, 60], dtype=np.uint8)[:, None, None]
    pixels = _drawn(ArraySource({"image": image}))
    assert (pixels == (200, 30, 60)).all(axis=2).sum() > 1000
    assert (pixels == (0, 0, 0)).all(axis=2).sum() > 1000


def test_grey_images_are_drawn_as_they_are() -> None:
    image = np.full((1, 1, 32, 32), 140, dtype=np.uint8)
    spec = {"image": Field(shape=(1, 32, 32), dtype="uint8", channels=("grey",))}
    assert (_drawn(ArraySource({"image": image}, spec)) == (140, 140, 140)).all(axis=2).sum() > 1000


def test_numbers_go_from_light_to_dark_and_what_is_none_stands_out() -> None:
    values = np.zeros((2, 16, 16), dtype=np.float32)
    values[0, :8] = 1.0
    values[1, :4] = np.nan
    values[1, 4] = np.inf
    pixels = _drawn(ArraySource({"density": values}))
    assert (pixels == DARK).all(axis=2).sum() > 5000
    assert (pixels == WRONG).all(axis=2).sum() > 2500


@pytest.mark.parametrize(
    ("shape", "channels", "titles"),
    [
        ((32, 32), (), ["x"]),
        ((3, 40), ("I", "II", "III"), ["x, I, II, III"]),
        ((64,), (), ["x"]),
        ((2, 32, 32), (), ["x, channel 0 (of 2 channels)", "x, channel 1 (of 2 channels)"]),
        ((16, 32, 32), (), ["x, middle of 16 × 32 × 32"]),
        ((16, 32, 32), tuple("abcdefghijklmnop"), [f"x, {name} (of 16 channels)" for name in "abc"]),
        ((1, 16, 16, 16), (), ["x, middle of 16 × 16 × 16"]),
    ],
)
def test_shapes_of_every_kind_are_drawn(shape: tuple[int, ...], channels: tuple[str, ...], titles: list[str]) -> None:
    values = torch.rand(5, *shape, generator=torch.Generator().manual_seed(0))
    source = ArraySource({"x": values}, {"x": Field(shape=shape, dtype="float32", channels=channels)})
    assert [thumbnail.title for thumbnail in choose_thumbnails(source.spec)] == titles
    pixels = _drawn(source)
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20


def test_fields_stand_beside_each_other_and_single_numbers_are_left_out() -> None:
    source = ArraySource({"image": torch.rand(4, 8, 8), "mask": torch.rand(4, 8, 8) < 0.5, "heat": torch.rand(4)})
    assert [thumbnail.field for thumbnail in choose_thumbnails(source.spec)] == ["image", "mask"]
    _drawn(source)


def test_single_numbers_alone_cannot_be_drawn() -> None:
    with pytest.raises(DataError, match=r"single numbers only \(heat\)"):
        draw_sheet(ArraySource({"heat": torch.rand(4)}), "heat")


def test_samples_that_cannot_be_read_are_marked(tmp_path: Path) -> None:
    for number in range(3):
        Image.new("RGB", (16, 16)).save(tmp_path / f"{number}.png")
    (tmp_path / "1.png").write_bytes(b"no image")
    source = open_source(tmp_path)
    samples = read_samples(source, choose_thumbnails(source.spec), 48)
    assert [sample.label for sample in samples] == ["", "can't be read", ""]
    assert (_drawn(source) == WRONG).all(axis=2).any()


def test_a_long_name_does_not_run_into_its_neighbour() -> None:
    source = ArraySource({"x": torch.zeros(1, 8, 8)}, names=["a_very_long_name" * 20])
    pixels = _drawn(source)
    heading = 90
    assert (pixels[heading:, 200:] == 255).all()


def test_a_few_extreme_values_do_not_spoil_a_scale_and_a_huge_range_is_logarithmic() -> None:
    values = np.linspace(1.0, 2.0, 10_000)
    values[0] = 50.0
    assert Scale.of([values]).high < 2.01
    densities = np.concatenate([np.ones(9900), np.full(100, 1e6)])
    scale = Scale.of([densities])
    assert scale.typical == 1.0
    levels = scale.apply(np.array([1.0, 1e3, 1e6, np.nan]))
    assert levels[0] == 0.0
    assert 0.3 < levels[1] < 0.7
    assert levels[2] == 1.0
    assert np.isnan(levels[3])


def _drawn(source: Source) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(draw_sheet(source, "a title"))) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"))
