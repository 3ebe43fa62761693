"""A task's own pictures: the model rebuilt from its checkpoint, and images as tiny PNGs inside the page.

It knows how a checkpoint becomes a model again, and nothing of what the pictures show.
"""

import base64
import struct
import zlib
from html import escape

import numpy as np
from numpy.typing import NDArray

from deepex.data import Preparer
from deepex.data.source import read_all
from deepex.errors import DataError, RunFolderError
from deepex.record.folder import RunFolder
from deepex.replica import Replica
from deepex.train import checkpoint
from deepex.train.recipe import Recipe
from deepex.train.task import Illustrated, Illustration, ImagePairs
from deepex.world import World

MAX_SAMPLES = 4000  # of each split: enough to see a distribution, few enough to turn smoothly
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
LIGHT, DARK = (255, 255, 255), (16, 42, 92)  # the colours of 0 and 1; page.css repeats them in .scale


def illustrate(folder: RunFolder, recipe: Recipe) -> tuple[Illustration | None, str]:
    """What the task shows of the newest checkpoint; if nothing, the reason in words for the page."""
    task = recipe.task
    if not isinstance(task, Illustrated):
        return None, ""
    path = checkpoint.latest(folder)
    if path is None:
        return None, "There are no pictures: the run has no checkpoint yet."
    try:
        splits = task.data()
        ranks = RunFolder(path).read_json("manifest.json")["ranks"]
        state = checkpoint.load(path, World(rank=0, size=ranks))
        replica = Replica(task.model(), state["layout"])
        replica.block.copy_(state["block"])
    except (DataError, RunFolderError) as error:
        return None, f"There are no pictures: {error}"
    train, validation = (
        read_all(Preparer(source, splits.preparation), limit=MAX_SAMPLES)
        for source in (splits.train, splits.validation)
    )
    return task.illustrate(replica.model.eval(), train, validation), ""


def image_grid(pairs: ImagePairs) -> str:
    """Pairs of images as a grid that fits any width, with their scale."""
    height, width = pairs.left.shape[1:]
    cells = "".join(
        f'<figure class="pair">{_image(left, pairs.names[0], label)}{_image(right, pairs.names[1], label)}'
        f"<figcaption>{escape(label)}</figcaption></figure>"
        for left, right, label in zip(pairs.left, pairs.right, pairs.labels, strict=True)
    )
    scale = f'<p class="scale">{width} × {height} values each, 0 <span class="ramp"></span> 1</p>'
    return f'<div class="pairs">{cells}</div>{scale}'


def _image(values: NDArray[np.float32], name: str, label: str) -> str:
    data = base64.b64encode(encode_png(values)).decode()
    height, width = values.shape
    return (
        f'<div><span class="name">{escape(name)}</span><img src="data:image/png;base64,{data}" '
        f'width="{width}" height="{height}" alt="{escape(name)}: {escape(label)}"></div>'
    )


def encode_png(values: NDArray[np.float32]) -> bytes:
    """Values from 0 (light) to 1 (dark) as a PNG with a pixel a value.

    >>> encode_png(np.zeros((2, 2), dtype=np.float32))[1:4]
    b'PNG'
    """
    levels = np.round(255 * np.clip(np.nan_to_num(values), 0.0, 1.0)).astype(np.uint8)
    palette = np.linspace(LIGHT, DARK, 256).round().astype(np.uint8)
    height, width = levels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)  # 8 bits a pixel, colours from a palette
    rows = b"".join(b"\0" + row.tobytes() for row in levels)
    return (
        PNG_SIGNATURE
        + _chunk(b"IHDR", header)
        + _chunk(b"PLTE", palette.tobytes())
        + _chunk(b"IDAT", zlib.compress(rows, 9))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
