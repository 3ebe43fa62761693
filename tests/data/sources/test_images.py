import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from deepex.config import override
from deepex.data.source import read_all
from deepex.data.sources import images, open_source
from deepex.data.sources.images import ImageFiles, Options
from deepex.errors import ConfigError, DataError, SampleError
from deepex.testing.source import check_source

Draw = Callable[..., NDArray[Any]]


def _pixels(*shape: int, seed: int = 0, high: int = 256) -> NDArray[Any]:
    return np.random.default_rng(seed).integers(0, high, shape, dtype=np.uint8 if high <= 256 else np.uint16)


def _save(file: Path, image: NDArray[Any] | Image.Image, **options: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(file, **options)
    return file


@pytest.fixture(params=["kornia-rs", "pillow"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With kornia-rs and as if it were not installed."""
    if request.param == "pillow":
        monkeypatch.setattr(images, "_png_decoder", lambda: images._by_pillow)
    return str(request.param)


def _read(path: Path, *options: str) -> NDArray[Any]:
    return read_all(open_source(path, "images", options))["image"].numpy()


def test_class_folders_give_images_and_labels(tmp_path: Path, decoder: str) -> None:
    drawn = {name: _pixels(9, 7, seed=seed) for seed, name in enumerate(["dog/1.png", "cat/2.png", "cat/10.png"])}
    for name, pixels in drawn.items():
        _save(tmp_path / name, pixels)
    source = open_source(tmp_path)
    assert [source.name(index) for index in range(3)] == ["cat/10.png", "cat/2.png", "dog/1.png"]
    assert source.spec.fields["image"].shape == (1, 9, 7)
    assert source.spec.fields["image"].channels == ("grey",)
    assert source.spec.fields["label"].classes == ("cat", "dog")
    batch = read_all(source)
    assert batch["label"].tolist() == [0, 0, 1]
    for index, name in enumerate(sorted(drawn)):
        assert np.array_equal(batch["image"][index, 0], drawn[name])


def test_images_with_labels_keep_the_contract_of_a_source(tmp_path: Path) -> None:
    for index in range(5):
        _save(tmp_path / f"{'ab'[index % 2]}" / f"{index}.png", _pixels(6, 5, 3, seed=index))
    check_source(lambda: open_source(tmp_path))


def test_images_directly_in_the_folder_have_no_labels(tmp_path: Path) -> None:
    _save(tmp_path / "1.png", _pixels(4, 4))
    (tmp_path / "._1.png").write_bytes(b"what a Mac leaves beside files")
    source = open_source(tmp_path)
    assert list(source.spec.fields) == ["image"]
    assert len(source) == 1
    assert open_source(tmp_path / "1.png").name(0) == "1.png"
    with pytest.raises(DataError, match=r"no labels.*labels=FILE\.csv"):
        open_source(tmp_path, options=["classes=a,b"])


def test_an_image_beside_the_class_folders_and_one_in_an_unknown_folder_are_told_on_reading(tmp_path: Path) -> None:
    for name in ["a/1.png", "b/2.png", "3.png"]:
        _save(tmp_path / name, _pixels(4, 4))
    source = open_source(tmp_path, options=["classes=b,c"])
    names = [source.name(index) for index in range(3)]
    out = {"label": read_all(open_source(tmp_path / "a"))["image"][:, 0, 0, 0].long()}
    source.read([names.index("b/2.png")], out)
    assert out["label"].tolist() == [0]
    with pytest.raises(SampleError, match=r"a/1.png is of class 'a'. Allowed: b and c."):
        source.read([names.index("a/1.png")], out)
    with pytest.raises(SampleError, match=r"3.png lies in no class folder.*--skip-bad"):
        source.read([names.index("3.png")], out)


PNG_KINDS: dict[str, tuple[Draw, dict[str, Any], tuple[int, ...]]] = {
    "grey": (lambda: _pixels(8, 6), {}, (1, 8, 6)),
    "grey alpha": (lambda: _pixels(8, 6, 2), {}, (2, 8, 6)),
    "colour": (lambda: _pixels(8, 6, 3), {}, (3, 8, 6)),
    "colour alpha": (lambda: _pixels(8, 6, 4), {}, (4, 8, 6)),
    "grey transparency": (lambda: _pixels(8, 6), {"transparency": 5}, (1, 8, 6)),
}


@pytest.mark.parametrize("kind", PNG_KINDS)
def test_png_of_every_common_kind(tmp_path: Path, decoder: str, kind: str) -> None:
    draw, options, shape = PNG_KINDS[kind]
    pixels = draw()
    _save(tmp_path / "1.png", pixels, **options)
    assert np.array_equal(_read(tmp_path)[0], pixels.reshape(*pixels.shape[:2], -1).transpose(2, 0, 1))
    assert open_source(tmp_path).spec.fields["image"].shape == shape


def test_png_with_a_palette(tmp_path: Path, decoder: str) -> None:
    picture = Image.fromarray(_pixels(8, 6, 3)).quantize(16)
    expected = np.asarray(picture.convert("RGB")).transpose(2, 0, 1)
    _save(tmp_path / "plain" / "1.png", picture)
    _save(tmp_path / "small" / "1.png", picture, bits=4)
    _save(tmp_path / "clear" / "1.png", picture, transparency=3)
    assert np.array_equal(_read(tmp_path / "plain")[0], expected)
    assert np.array_equal(_read(tmp_path / "small")[0], expected)
    clear = _read(tmp_path / "clear")[0]
    assert clear.shape == (4, 8, 6)
    assert np.array_equal(clear[:3], expected)
    assert np.array_equal(clear[3] == 0, np.asarray(picture) == 3)
    assert np.array_equal(_read(tmp_path / "clear", "channels=3")[0], expected)


def test_png_of_one_bit_is_black_and_white(tmp_path: Path, decoder: str) -> None:
    picture = Image.fromarray(_pixels(8, 6)).convert("1")
    _save(tmp_path / "1.png", picture)
    assert np.array_equal(_read(tmp_path)[0, 0], np.asarray(picture) * 255)


def test_png_of_sixteen_bits_keeps_them(tmp_path: Path, decoder: str) -> None:
    pixels = _pixels(8, 6, high=65536)
    _save(tmp_path / "1.png", pixels)
    source = open_source(tmp_path)
    assert source.spec.fields["image"].dtype == "int32"
    assert np.array_equal(_read(tmp_path)[0, 0], pixels)
    assert np.array_equal(_read(tmp_path, "channels=3")[0], np.stack([pixels] * 3))
    flat = _save(tmp_path / "2.png", np.full((8, 6), 50_000, dtype=np.uint16))
    assert (_read(flat, "height=4", "width=9") == 50_000).all()
    _save(tmp_path / "9.png", _pixels(8, 6))
    mixed = open_source(tmp_path)
    with pytest.raises(SampleError, match=r"9.png is 1 × 8 × 6 .* of uint8; expected.* of int32"):
        read_all(mixed)


def test_jpeg(tmp_path: Path) -> None:
    smooth = np.linspace(0, 255, 16 * 24 * 3).reshape(16, 24, 3).astype(np.uint8)
    _save(tmp_path / "1.JPG", smooth, quality=95)
    _save(tmp_path / "2.jpeg", Image.fromarray(smooth).convert("CMYK"), quality=95)
    for index in range(2):
        found = _read(tmp_path)[index].astype(int)
        assert np.abs(found - smooth.transpose(2, 0, 1)).max() < 12
    assert _read(tmp_path, "channels=1").shape == (2, 1, 16, 24)


def test_channels_are_made_as_pillow_makes_them(tmp_path: Path, decoder: str) -> None:
    grey, colour, alpha = _pixels(8, 6), _pixels(8, 6, 3), _pixels(8, 6, 4)
    for name, pixels in {"1": grey, "2": colour, "3": alpha}.items():
        _save(tmp_path / f"{name}.png", pixels)
    three, one = _read(tmp_path, "channels=3"), _read(tmp_path, "channels=1")
    assert np.array_equal(three[0], np.stack([grey] * 3))
    assert np.array_equal(three[1], colour.transpose(2, 0, 1))
    assert np.array_equal(three[2], alpha[..., :3].transpose(2, 0, 1))
    assert np.array_equal(one[0, 0], grey)
    assert np.array_equal(one[1, 0], np.asarray(Image.fromarray(colour).convert("L")))


def test_images_are_resized_as_pillow_resizes_them(tmp_path: Path, decoder: str) -> None:
    colour = _pixels(20, 30, 3)
    _save(tmp_path / "1.png", colour)
    _save(tmp_path / "2.png", _pixels(11, 13, 3))
    found = _read(tmp_path, "height=8", "width=12")
    assert found.shape == (2, 3, 8, 12)
    expected = np.asarray(Image.fromarray(colour).resize((12, 8), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    assert np.abs(found[0].astype(int) - expected).max() <= 1


def test_images_of_another_shape_are_told_on_reading(tmp_path: Path, decoder: str) -> None:
    for name, shape in {"1": (8, 6), "2": (8, 7), "3": (8, 6, 3)}.items():
        _save(tmp_path / f"{name}.png", _pixels(*shape))
    source = open_source(tmp_path)
    out = read_all(open_source(tmp_path / "1.png"))
    source.read([0], out)
    with pytest.raises(
        SampleError, match=r"2.png is 1 × 8 × 7 .*expected.* 1 × 8 × 6 .*height= and width=.*--skip-bad"
    ):
        source.read([1], out)
    with pytest.raises(SampleError, match=r"3.png is 3 × 8 × 6 .*channels="):
        source.read([2], out)


def _damage(file: Path) -> dict[str, bytes]:
    whole = file.read_bytes()
    middle = len(whole) // 2
    changed = bytearray(whole)
    changed[middle] ^= 255
    return {"cut": whole[:middle], "changed": bytes(changed), "text": b"not an image at all", "empty": b""}


@pytest.mark.parametrize("suffix", ["png", "jpg"])
@pytest.mark.parametrize("damage", ["cut", "text", "empty"])
def test_a_damaged_file_is_told_on_reading(tmp_path: Path, decoder: str, suffix: str, damage: str) -> None:
    _save(tmp_path / f"1.{suffix}", _pixels(64, 64, seed=1))
    bad = _save(tmp_path / f"2.{suffix}", _pixels(64, 64, seed=2))
    bad.write_bytes(_damage(bad)[damage])
    source = open_source(tmp_path)
    with pytest.raises(SampleError, match=rf"2.{suffix} can't be read \(.*Copy it again.*--skip-bad"):
        read_all(source)


def test_a_png_with_a_changed_byte_is_told(tmp_path: Path, decoder: str) -> None:
    bad = _save(tmp_path / "1.png", _pixels(64, 64))
    _save(tmp_path / "2.png", _pixels(64, 64))
    bad.write_bytes(_damage(bad)["changed"])
    source = open_source(tmp_path)
    assert source.spec.fields["image"].shape == (1, 64, 64)
    with pytest.raises(SampleError, match=r"1.png can't be read"):
        read_all(source)


def test_a_first_image_that_is_damaged_does_not_hide_the_others(tmp_path: Path, decoder: str) -> None:
    (tmp_path / "0.png").write_bytes(b"")
    pixels = _pixels(5, 5)
    _save(tmp_path / "1.png", pixels)
    source = open_source(tmp_path)
    out = read_all(open_source(tmp_path / "1.png"))
    source.read([1], out)
    assert np.array_equal(out["image"][0, 0], pixels)
    (tmp_path / "1.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"none of the first 2 can be read.*0.png can't be read \(it is empty\)"):
        open_source(tmp_path)


def test_a_file_that_vanished_is_told_on_reading(tmp_path: Path) -> None:
    _save(tmp_path / "1.png", _pixels(5, 5))
    source = open_source(tmp_path)
    (tmp_path / "1.png").unlink()
    with pytest.raises(SampleError, match=r"1.png can't be read \(No such file"):
        read_all(source)


def test_a_file_without_permission_is_told_on_reading(tmp_path: Path) -> None:
    file = _save(tmp_path / "1.png", _pixels(5, 5))
    source = open_source(tmp_path)
    file.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may read everything
    try:
        with pytest.raises(SampleError, match=r"1.png can't be read \(Permission denied"):
            read_all(source)
    finally:
        os.seteuid(user)


@pytest.fixture
def three(tmp_path: Path) -> Path:
    for name in ["a.png", "b.png", "deep/c.png"]:
        _save(tmp_path / name, _pixels(4, 4))
    return tmp_path


@pytest.mark.parametrize("header", ["", "file,class\n"])
def test_labels_by_name_from_a_table(three: Path, header: str) -> None:
    (three / "labels.csv").write_text(f"{header}a.png,wolf\n./deep/c.png, bear\n\nb.png,wolf\n")
    source = open_source(three, "images", ["labels=labels.csv"])
    assert source.spec.fields["label"].classes == ("bear", "wolf")
    assert read_all(source)["label"].tolist() == [1, 1, 0]
    given = open_source(three, "images", [f"labels={three / 'labels.csv'}", "classes=wolf,fox,bear"])
    assert given.spec.fields["label"].classes == ("wolf", "fox", "bear")
    assert read_all(given)["label"].tolist() == [0, 0, 2]


def test_labels_by_number_from_a_table(three: Path) -> None:
    (three / "labels.csv").write_text("a.png,2\nb.png,0\ndeep/c.png,0\n")
    source = open_source(three, "images", ["labels=labels.csv"])
    assert source.spec.fields["label"].classes == ("0", "1", "2")
    assert read_all(source)["label"].tolist() == [2, 0, 0]
    named = open_source(three, "images", ["labels=labels.csv", "classes=x,y,z"])
    assert named.spec.fields["label"].classes == ("x", "y", "z")
    assert read_all(named)["label"].tolist() == [2, 0, 0]


def test_labels_out_of_range_and_unlisted_images_are_told_on_reading(three: Path) -> None:
    (three / "labels.csv").write_text("a.png,2\nb.png,0\n")
    source = open_source(three, "images", ["labels=labels.csv", "classes=x,y"])
    out = read_all(open_source(three, "images", ["labels=labels.csv"]), limit=1)
    source.read([1], out)
    with pytest.raises(SampleError, match=r"a.png: label 2 is out of range. Allowed: 0 to 1 \(x and y\)."):
        source.read([1, 0], {name: buffer.repeat_interleave(2, 0) for name, buffer in out.items()})
    with pytest.raises(SampleError, match=r"deep/c.png is not listed in .*labels.csv"):
        source.read([2], out)
    (three / "labels.csv").write_text("a.png,-1\nb.png,0\ndeep/c.png,1\n")
    with pytest.raises(SampleError, match=r"a.png: label -1 is out of range"):
        read_all(open_source(three, "images", ["labels=labels.csv"]))


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("a.png,1\nz.png,1\n", r"lists z.png, which is not among the 3 images.* as in a.png"),
        ("a.png,1\na.png,2\n", "line 2: a.png is listed twice"),
        ("a.png;1\n", "line 1: 'a.png;1'. Allowed: two columns"),
        ("a.png,1\nb.png,\n", "line 2: 'b.png,'. Allowed: two columns"),
        ("a.png,70000\n", "the largest class number is 70000"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(three: Path, table: str, problem: str) -> None:
    (three / "labels.csv").write_text(table)
    with pytest.raises(DataError, match=problem):
        open_source(three, "images", ["labels=labels.csv"])


def test_a_table_that_is_missing_or_not_text_is_refused(three: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file gone.csv, nor .*gone.csv"):
        open_source(three, "images", ["labels=gone.csv"])
    (three / "labels.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="can't be read as a CSV file"):
        open_source(three, "images", ["labels=labels.csv"])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["channels=2"], r"channels = 2. Allowed: 1 \(grey\), 3"),
        (["height=0"], "height = 0. Allowed: whole numbers from 1"),
        (["classes=a,a"], "stands twice"),
        (["colour=3"], "unknown key 'colour'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        override(Options(), options)


def test_a_height_without_a_width_is_refused(three: Path) -> None:
    with pytest.raises(ConfigError, match=r"height = 4, width = None. Give both"):
        open_source(three, "images", ["height=4"])


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file that ends with .png"):
        open_source(tmp_path, "images")


def test_large_files_are_read_whole(tmp_path: Path) -> None:
    pixels = _pixels(600, 700, 3)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "png", compress_level=0)
    (tmp_path / "1.png").write_bytes(buffer.getvalue())
    source = ImageFiles([str(tmp_path / "1.png")], tmp_path, Options())
    assert np.array_equal(read_all(source)["image"][0], pixels.transpose(2, 0, 1))
