"""The samples of the input benchmark, made on the spot: the same ones in a packed file, a NumPy map, PNGs and tars.

A thousand images are drawn and stored again and again: reading, decoding and copying cost the same as for new ones.
"""

import io
import math
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deepex.data.packing.pack import pack
from deepex.data.source import ArraySource, Indices
from deepex.sample import Batch

IMAGE = (1, 120, 85)  # channels, height, width: 10.2 kB
CLIMATE = (16, 192, 288)  # of float32: 3.5 MB
IMAGES_A_CLIMATE_SAMPLE = 160  # so that 20,000 images and the climate samples fit into memory alike
DISTINCT_IMAGES, DISTINCT_CLIMATE = 1000, 8
SHARDS = 8
LEAST_SAMPLES = 128  # two batches of images
BYTES_A_SAMPLE = 100_000  # on disk, more than an image takes in all its forms together with its share of the others
SPOTS = 40


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Samples on disk: where, how many, what one of them is, and the tar files that hold the same, if there are any."""

    source: str
    path: Path
    field: str
    shape: tuple[int, ...]
    num_samples: int
    batch: int
    is_bytes: bool
    shards: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """Whole batches of an epoch."""
        return self.num_samples // self.batch

    @property
    def delivered_bytes(self) -> int:
        """Bytes of one sample as a network takes it, in float32."""
        return 4 * math.prod(self.shape)


class Repeated:
    """A source that gives its few samples again and again."""

    def __init__(self, source: ArraySource, num_samples: int) -> None:
        self.source, self.num_samples, self.spec = source, num_samples, source.spec

    def __len__(self) -> int:
        return self.num_samples

    def read(self, indices: Indices, out: Batch) -> None:
        self.source.read(np.asarray(indices) % len(self.source), out)

    def name(self, index: int) -> str:
        return str(index)


def draw_images(count: int) -> NDArray[np.uint8]:
    """Smooth spots with the noise of counted electrons: a PNG of them is as large as one of a diffraction pattern.

    >>> draw_images(2).shape
    (2, 1, 120, 85)
    """
    draw = np.random.default_rng(0)
    _, height, width = IMAGE
    images = np.empty((count, *IMAGE), dtype=np.uint8)
    for image in images:
        radius, strength = draw.uniform(2, 5, SPOTS), draw.exponential(60, SPOTS)
        rows = np.exp(-(((np.arange(height) - draw.uniform(0, height, (SPOTS, 1))) / radius[:, None]) ** 2) / 2)
        columns = np.exp(-(((np.arange(width) - draw.uniform(0, width, (SPOTS, 1))) / radius[:, None]) ** 2) / 2)
        image[0] = draw.poisson(6.0 + (rows * strength[:, None]).T @ columns).clip(max=255)
    return images


def store_packed(folder: Path, num_samples: int) -> Stored:
    """Images in a packed file, and as bytes in tar files."""
    images = draw_images(min(num_samples, DISTINCT_IMAGES))
    pack(Repeated(ArraySource({"image": images}), num_samples), folder / "images.h5")
    shards = _write_tars(folder, "bin", [image.tobytes() for image in images], num_samples)
    return _images_at(folder / "images.h5", "packed", "image", num_samples, shards)


def store_map(folder: Path, num_samples: int) -> Stored:
    """Images in a NumPy file."""
    images = draw_images(min(num_samples, DISTINCT_IMAGES))
    np.save(folder / "images.npy", np.resize(images, (num_samples, *IMAGE)))
    return _images_at(folder / "images.npy", "map", "x", num_samples)


def store_pngs(folder: Path, num_samples: int) -> Stored:
    """Images as PNG files, and those in tar files."""
    encoded = [_png(image[0]) for image in draw_images(min(num_samples, DISTINCT_IMAGES))]
    place = folder / "images"
    place.mkdir()
    for number in range(num_samples):
        (place / f"{number:06d}.png").write_bytes(encoded[number % len(encoded)])
    return _images_at(place, "png", "image", num_samples, _write_tars(folder, "png", encoded, num_samples))


def store_climate(folder: Path, num_samples: int) -> Stored:
    """Large float32 samples in a packed file, one for every 160 images."""
    batch = 4
    count = max(2, num_samples // IMAGES_A_CLIMATE_SAMPLE // batch) * batch
    values = np.random.default_rng(0).standard_normal((DISTINCT_CLIMATE, *CLIMATE), dtype=np.float32)
    path = folder / "climate.h5"
    pack(Repeated(ArraySource({"x": values}), count), path)
    return Stored(source="climate", path=path, field="x", shape=CLIMATE, num_samples=count, batch=batch, is_bytes=False)


def store_labelled(path: Path, num_samples: int, classes: int) -> None:
    """Images with a class each, for a run."""
    images = draw_images(min(num_samples, DISTINCT_IMAGES))
    labels = np.arange(len(images)) % classes
    pack(Repeated(ArraySource({"image": images, "label": labels}), num_samples), path)


STORES: dict[str, Callable[[Path, int], Stored]] = {
    "packed": store_packed,
    "map": store_map,
    "png": store_pngs,
    "climate": store_climate,
}


def _images_at(path: Path, source: str, field: str, num_samples: int, shards: Sequence[Path] = ()) -> Stored:
    return Stored(
        source=source,
        path=path,
        field=field,
        shape=IMAGE,
        num_samples=num_samples,
        batch=64,
        is_bytes=True,
        shards=tuple(map(str, shards)),
    )


def _png(image: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "png")
    return buffer.getvalue()


def _write_tars(folder: Path, ending: str, contents: Sequence[bytes], num_samples: int) -> list[Path]:
    """Samples as files in tar archives, as webdataset reads them."""
    shards = [folder / f"{ending}-{number:02d}.tar" for number in range(SHARDS)]
    for number, shard in enumerate(shards):
        with tarfile.open(shard, "w", format=tarfile.USTAR_FORMAT) as archive:
            for index in range(number, num_samples, SHARDS):
                content = contents[index % len(contents)]
                member = tarfile.TarInfo(f"{index:06d}.{ending}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return shards
