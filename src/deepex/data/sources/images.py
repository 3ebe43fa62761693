"""PNG and JPEG images in folders, as bytes of shape (channels, height, width), with the classes their folders name.

16-bit grey PNGs are whole numbers (int32); 16-bit colour has 8 bits, as Pillow gives it. Plain PNGs are decoded by
kornia-rs where that is installed, three times as fast as by Pillow. What can't be used is told when it is read.
"""

import csv
import io
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import interpolate

from deepex.data.source import Indices, Source, as_array
from deepex.data.sources import READERS
from deepex.data.sources.reading.files import damaged, find_beside, first_readable, list_paths
from deepex.data.sources.reading.labels import Labelled, Labels, check_classes, labels_by_name
from deepex.errors import ConfigError, DataError, SampleError
from deepex.sample import Batch, Field, SampleSpec

CHANNELS = {
    1: ("grey",),
    2: ("grey", "alpha"),
    3: ("red", "green", "blue"),
    4: ("red", "green", "blue", "alpha"),
}
MODES = {1: "L", 3: "RGB"}  # Pillow's words for channels
PLAIN_MODES = ("L", "LA", "RGB", "RGBA")
# How a PNG begins: its mark, then width, height, bits a channel and how colours are stored.
PNG_START, PNG_SHAPE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", struct.Struct(">IIBB")
PNG_COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}
PLAIN_PNG = {bytes([8, 0]): "mono", bytes([8, 2]): "rgb", bytes([8, 6]): "rgba"}  # bits and colours; kornia-rs's words

Decode = Callable[[bytes], NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What may be set.

    Attributes:
        channels: 1 makes colours grey, 3 repeats grey; none: as the first image has.
        height: of all images, which are resized to it; together with `width`.
        width: of all images, which are resized to it; together with `height`.
        labels: a CSV file of two columns, file name and class (a name or a number), instead of class folders.
        classes: names of the classes, in their order; none: those that occur, in the order of the alphabet.
    """

    channels: int | None = None
    height: int | None = None
    width: int | None = None
    labels: str | None = None
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.channels not in (None, *MODES):
            raise ConfigError(f"channels = {self.channels}. Allowed: 1 (grey), 3 (colour), none (as the first image).")
        for name, length in (("height", self.height), ("width", self.width)):
            if length is not None and length < 1:
                raise ConfigError(f"{name} = {length}. Allowed: whole numbers from 1, or none.")
        if (self.height is None) != (self.width is None):
            raise ConfigError(f"height = {self.height}, width = {self.width}. Give both, or neither to leave sizes.")
        check_classes(self.classes)

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width that images are resized to."""
        return None if self.height is None or self.width is None else (self.height, self.width)


def open_source(path: Path, options: Options) -> Source:
    """The images below a folder, or one image, with labels if they lie in class folders or a CSV file lists them.

    Example: `open_source(Path("photos"), Options(channels=3, height=224, width=224))`
    """
    files = list_paths(path, READERS["images"].suffixes)
    images = ImageFiles(files, path, options)
    if options.labels is not None:
        return Labelled(images, _listed_labels(find_beside(options.labels, path), images, options.classes))
    folders = [images.name(index).rpartition("/")[0].rpartition("/")[2] for index in range(len(images))]
    if any(folders):
        return Labelled(images, labels_by_name(folders, options.classes, images.name, "lies in no class folder"))
    if options.classes:
        raise DataError(
            f"classes = {', '.join(options.classes)}, but all images lie in {path} itself and have no labels. "
            "Put each class in a folder of its own, or list file names and classes in a CSV file: labels=FILE.csv."
        )
    return images


class ImageFiles:
    """Images of one shape, a file each."""

    def __init__(self, files: Sequence[str], root: Path, options: Options) -> None:
        self._files, self._options = files, options  # as text: a Path for each of millions takes its time
        self._root = str(root.parent if root.is_file() else root)
        first = first_readable(self._files, self._load)
        self._shape, self._dtype = first.shape, first.dtype
        image = Field(shape=first.shape, dtype=first.dtype.name, channels=CHANNELS[first.shape[0]])
        self.spec = SampleSpec(fields={"image": image})

    def __len__(self) -> int:
        return len(self._files)

    def read(self, indices: Indices, out: Batch) -> None:
        if "image" not in out:
            return
        target = as_array(out["image"])
        expected = self._expected_start()
        for place, index in enumerate(np.asarray(indices).tolist()):
            file = self._files[index]
            data = _bytes_of(file)
            if expected is not None and data.startswith(expected):
                # A PNG that says it is as the first image was: the way of nearly all, with nothing to ask.
                target[place] = _channels_first(_decoded(file, data))
            else:
                target[place] = self._fitting(file, data)

    def name(self, index: int) -> str:
        return self._files[index].removeprefix(self._root).lstrip("/")

    def _expected_start(self) -> bytes | None:
        """How a PNG begins that needs no conversion."""
        channels, height, width = self._shape
        if self._options.size is not None or self._dtype != np.uint8:
            return None
        return PNG_START + PNG_SHAPE.pack(width, height, 8, PNG_COLOURS[channels])

    def _load(self, file: str) -> NDArray[Any]:
        """Any image with the channels and the size that were asked for."""
        return self._converted(file, _bytes_of(file))

    def _fitting(self, file: str, data: bytes) -> NDArray[Any]:
        image = self._converted(file, data)
        if image.shape != self._shape or image.dtype != self._dtype:
            raise SampleError(
                f"{file} is {_described(image.shape, image.dtype)}; expected, as the first image: "
                f"{_described(self._shape, self._dtype)}. Set height= and width= to resize all, channels= for a number "
                "of channels, convert it, or leave it out with --skip-bad N."
            )
        return image

    def _converted(self, file: str, data: bytes) -> NDArray[Any]:
        image = _channels_first(_with_channels(_decoded(file, data), self._options.channels))
        return image if self._options.size is None else _resized(image, self._options.size)


@cache
def _png_decoder() -> Decode:
    """A decoder for all images, by kornia-rs for plain PNGs where that is installed."""
    try:
        decode = import_module("kornia_rs").io.decode_image_png_u8
    except ModuleNotFoundError:
        return _by_pillow

    def by_kornia(data: bytes) -> NDArray[Any]:
        mode = PLAIN_PNG.get(data[24:26])
        if mode is None or not data.startswith(PNG_START):
            return _by_pillow(data)
        width, height, *_ = PNG_SHAPE.unpack_from(data, len(PNG_START))
        try:
            pixels: NDArray[Any] = decode(data, (height, width), mode)
        except Exception:  # noqa: BLE001  # it raises nothing more special; what it can't do, Pillow can or explains
            return _by_pillow(data)
        return pixels[..., 0] if mode == "mono" else pixels

    return by_kornia


def _bytes_of(file: str) -> bytes:
    """All bytes of a file. Python's own file objects take twice as long for small ones."""
    try:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            data = os.read(descriptor, size)
            while len(data) < size and (more := os.read(descriptor, size - len(data))):
                data += more
        finally:
            os.close(descriptor)
    except OSError as error:
        raise damaged(file, error) from error
    if not data:
        raise damaged(file, "it is empty")
    return data


def _decoded(file: str, data: bytes) -> NDArray[Any]:
    """Pixels of an image, (height, width) or (height, width, channels)."""
    try:
        return _png_decoder()(data)
    # All that Pillow raises for damaged data, some of it not derived from anything of its own.
    except (OSError, RuntimeError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError) as error:
        told = str(error).partition(" <_io")[0]  # Pillow names the buffer that it was given
        raise damaged(file, f"damaged or not an image: {told}") from error


def _by_pillow(data: bytes) -> NDArray[Any]:
    with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
        if image.mode.startswith("I"):
            return np.asarray(image).astype(np.int32)
        if image.mode in PLAIN_MODES:
            return np.asarray(image)
        if image.mode == "1":
            return np.asarray(image.convert("L"))
        has_alpha = "transparency" in image.info or image.mode.endswith(("A", "a"))
        return np.asarray(image.convert("RGBA" if has_alpha else "RGB"))


def _with_channels(pixels: NDArray[Any], channels: int | None) -> NDArray[Any]:
    found = 1 if pixels.ndim == 2 else pixels.shape[2]
    if channels is None or channels == found:
        return pixels
    if pixels.dtype == np.int32:
        return pixels[..., None].repeat(channels, axis=2)
    return np.asarray(Image.fromarray(pixels).convert(MODES[channels]))


def _channels_first(pixels: NDArray[Any]) -> NDArray[Any]:
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _resized(image: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """An image of another size: bilinear, smoothed where it becomes smaller; for bytes as Pillow's, to one step."""
    tensor = torch.from_numpy(np.array(image, order="C"))[None]
    numbers = tensor if tensor.dtype == torch.uint8 else tensor.double()
    resized = interpolate(numbers, size=size, mode="bilinear", antialias=True)
    return (resized if resized.dtype == torch.uint8 else resized.round().to(tensor.dtype))[0].numpy()


def _described(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    return f"{' × '.join(map(str, shape))} (channels × height × width) of {dtype.name}"


def _listed_labels(table: Path, images: ImageFiles, classes: tuple[str, ...]) -> Labels:
    """The labels that a CSV file lists. An image that it does not list is told when it is read."""
    names = [images.name(index) for index in range(len(images))]
    listed = _read_table(table)
    if stray := listed.keys() - set(names):
        raise DataError(
            f"{table} lists {min(stray)}, which is not among the {len(names)} images. Give names below the folder "
            f"of images, as in {names[0]}."
        )
    words = [listed.get(name, "") for name in names]
    return labels_by_name(words, classes, images.name, f"is not listed in {table}")


def _read_table(table: Path) -> dict[str, str]:
    """Class by file name, from a CSV file whose first line may be a header."""
    listed: dict[str, str] = {}
    try:
        with open(table, newline="", encoding="utf-8-sig") as text:
            rows = [(number, row) for number, row in enumerate(csv.reader(text), 1) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{table} can't be read as a CSV file ({error}). Give one in UTF-8: name, class.") from error
    for place, (number, row) in enumerate(rows):
        if len(row) != 2 or not all(cell.strip() for cell in row):
            raise DataError(
                f"{table}, line {number}: '{','.join(row)}'. Allowed: two columns, file name and class, "
                "as in 7.png,cat."
            )
        name, label = row[0].strip().removeprefix("./"), row[1].strip()
        if place == 0 and not name.lower().endswith(READERS["images"].suffixes):
            continue  # a header
        if name in listed:
            raise DataError(f"{table}, line {number}: {name} is listed twice. Keep one of the lines.")
        listed[name] = label
    return listed
