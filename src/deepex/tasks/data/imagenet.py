"""Photographs in ImageNet's tree, train/<class>/*.JPEG and val/<class>/*.JPEG, as one source to pack.

Each becomes a square of three channels: the short side is fitted and the middle kept. Grey ones are replicated.
"""

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from deepex.data.source import Indices, as_array
from deepex.data.sources.reading.files import damaged
from deepex.errors import DataError, unknown
from deepex.sample import Batch, Field, SampleSpec
from deepex.tasks.data.make import SampleMaker
from deepex.text import say_plural

SUFFIXES = (".jpeg", ".jpg", ".png")
NUM_CLASSES: dict[str, int | None] = {"small": 10, "medium": 100, "paper": None}
IMAGE_SECONDS = 0.004  # of one core, for a JPEG of 500 x 375 and 110 kB
WORDS = "LOC_synset_mapping.txt"  # beside train and val where the set comes from Kaggle: "n01440764 tench, Tinca tinca"
TREE = "ROOT/train/CLASS/*.JPEG and ROOT/val/CLASS/*.JPEG"


@dataclass(frozen=True, kw_only=True)
class ImagenetData(SampleMaker):
    """What to pack: the first `classes` by name (none: all) of the tree in `folder`, as squares of `side` pixels."""

    folder: str = ""
    classes: int | None = 10
    side: int = 256

    def __post_init__(self) -> None:
        if self.classes is not None and self.classes < 2:
            raise DataError(f"classes = {self.classes}. Allowed: whole numbers from 2, or none for all.")
        if self.side < 1:
            raise DataError(f"side = {self.side}. Allowed: whole numbers from 1.")

    @classmethod
    def of_size(cls, size: str) -> "ImagenetData":
        if size not in NUM_CLASSES:
            raise DataError(unknown("size", size, NUM_CLASSES))
        return cls(classes=NUM_CLASSES[size])

    @property
    def group(self) -> int:
        return 1

    @property
    def core_seconds(self) -> float:
        return len(self._photographs) * IMAGE_SECONDS

    def source(self) -> "Photographs":
        return self._photographs

    def attributes(self) -> dict[str, Any]:
        classes = self._photographs.classes
        return {
            "title": f"photographs of {len(classes)} classes in ImageNet's tree, {self.side} x {self.side}",
            "source": {"path": Path(self.folder).absolute().name, "classes": self.classes, "side": self.side},
            "words": {name: word for name, word in self._words().items() if name in classes},
            "versions": {name: metadata.version(name) for name in ("deepex", "pillow")},
        }

    @cached_property
    def _photographs(self) -> "Photographs":
        root = Path(self.folder)
        known = _class_folders(root, self.folder, "train")
        if len(known) < 2:
            held = say_plural(len(known), "class folder")
            raise DataError(f"{root / 'train'} holds {held}. Allowed: 2 or more, as in {TREE}.")
        judged = _class_folders(root, self.folder, "val")
        if not judged:
            raise DataError(f"{root / 'val'} holds no class folders. Sort its images into those of train: {TREE}.")
        if strange := sorted(set(judged) - set(known)):
            raise DataError(
                f"{root / 'val'} has {len(strange)} classes that train has not: {', '.join(strange[:5])}. Give both "
                "the same class folders."
            )
        chosen = known[: self.classes]
        train = {name: _images_of(root, "train", name) for name in chosen}
        if empty := [name for name, files in train.items() if not files]:
            raise DataError(f"{root / 'train' / empty[0]} holds no image ({', '.join(SUFFIXES)}). Fill or remove it.")
        validation = {name: _images_of(root, "val", name) for name in chosen if name in judged}
        if not any(validation.values()):
            raise DataError(f"{root / 'val'} holds no image of {', '.join(chosen[:5])}. Fill its class folders.")
        return Photographs(root, train, validation, self.side)

    def _words(self) -> dict[str, str]:
        """What classes are called in English, where the tree says it."""
        try:
            lines = (Path(self.folder) / WORDS).read_text().splitlines()
        except OSError:
            return {}
        return {name: words.split(",")[0].strip() for name, _, words in (line.partition(" ") for line in lines)}


class Photographs:
    """Images, their classes, and whether they are for validation; those for training come first."""

    def __init__(
        self, root: Path, train: Mapping[str, Sequence[str]], validation: Mapping[str, Sequence[str]], side: int
    ) -> None:
        self._root, self._side, self.classes = str(root), side, tuple(train)
        parts = [(files, name, held) for held, part in ((0, train), (1, validation)) for name, files in part.items()]
        self._files = [file for files, _, _ in parts for file in files]
        counts = [len(files) for files, _, _ in parts]
        self._labels = np.repeat([self.classes.index(name) for _, name, _ in parts], counts).astype(np.int64)
        self._validation = np.repeat([held for _, _, held in parts], counts).astype(np.uint8)
        self.spec = SampleSpec(
            fields={
                "image": Field(shape=(3, side, side), dtype="uint8", channels=("red", "green", "blue")),
                "label": Field(shape=(), dtype="int64", description="class", classes=self.classes),
                "validation": Field(shape=(), dtype="uint8", description="1 for images of val, 0 for those of train"),
            }
        )

    def __len__(self) -> int:
        return len(self._files)

    def read(self, indices: Indices, out: Batch) -> None:
        chosen = np.asarray(indices, dtype=np.int64)
        for name, values in (("label", self._labels), ("validation", self._validation)):
            if name in out:
                as_array(out[name])[: len(chosen)] = values[chosen]
        if "image" in out:
            target = as_array(out["image"])
            for place, index in enumerate(chosen.tolist()):
                target[place] = _square(f"{self._root}/{self._files[index]}", self._side)

    def name(self, index: int) -> str:
        return self._files[index]


def missing_tree(path: Path) -> DataError:
    """The error where there is neither a packed data set nor a tree to pack."""
    return DataError(
        f"there is no packed data set {path}, and no tree of images to pack. Give one, {TREE}, with task.folder=ROOT; "
        "ImageNet itself is had from image-net.org. A small real set of images: deepex run fashion"
    )


def _class_folders(root: Path, given: str, part: str) -> list[str]:
    if not given:
        raise DataError(f"no folder of images is given. Expected is a tree {TREE}: give it with folder=ROOT.")
    if not (root / part).is_dir():
        raise DataError(f"there is no folder {root / part}. Expected is a tree {TREE}.")
    return sorted(entry.name for entry in os.scandir(root / part) if entry.is_dir() and entry.name[0] != ".")


def _images_of(root: Path, part: str, name: str) -> list[str]:
    found = (entry.name for entry in os.scandir(root / part / name))
    return sorted(f"{part}/{name}/{file}" for file in found if file.lower().endswith(SUFFIXES) and file[0] != ".")


def _square(file: str, side: int) -> NDArray[np.uint8]:
    """An image as 3 x side x side: its short side fitted, the middle of the long one."""
    try:
        with Image.open(file, formats=("JPEG", "PNG")) as image:
            image.draft(None, (side, side))  # a JPEG is decoded at 1/2, 1/4 or 1/8 where that still is large enough
            fitted = ImageOps.fit(image.convert("RGB"), (side, side), Image.Resampling.BILINEAR)
    # All that Pillow raises for damaged data, some of it not derived from anything of its own.
    except (OSError, RuntimeError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError) as error:
        raise damaged(file, f"damaged or not an image: {error}") from error
    return np.asarray(fitted).transpose(2, 0, 1)
