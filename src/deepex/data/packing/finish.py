"""The end of a packing: what all blocks together say of a file becomes its header, put around the samples.

It knows results of blocks and their layout; it reads no samples.
"""

import os
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from deepex.data.packing.block import BlockResult
from deepex.data.packing.header import Content, Shape, copy_header, write_header
from deepex.data.packing.layout import Layout
from deepex.data.packing.packed import NAMES
from deepex.data.statistics import Moments
from deepex.sample import SampleSpec


def put_headers(
    layout: Layout, folder: Path, results: Mapping[int, BlockResult], attributes: Mapping[str, Any], *, sharded: bool
) -> None:
    """Make files of written samples whole, each with the attributes; shards say which of how many they are.

    Arguments:
        layout: of the samples.
        folder: that its files stand in.
        results: of all blocks, by number.
        attributes: JSON-able facts that say where the data comes from.
        sharded: whether each file is one of several.
    """
    files = layout.files(folder)
    for shard, (file, shape) in enumerate(zip(files, layout.shapes, strict=True)):
        numbered = {"shard": [shard, len(files)]} if sharded else {}
        blocks = [results[number] for number in layout.blocks(shard)]
        _put_header(file, shape, _merge(layout.spec, blocks, {**attributes, **numbered}))


def _put_header(file: Path, shape: Shape, content: Content) -> None:
    header = file.with_suffix(".header")
    columns = write_header(header, shape, content)
    descriptor = os.open(file, os.O_RDWR)
    try:
        copy_header(header, descriptor, shape, columns)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    header.unlink()


def _merge(spec: SampleSpec, blocks: Sequence[BlockResult], attributes: Mapping[str, Any]) -> Content:
    """What blocks say of their file, in their order."""
    return Content(
        block_sha256={name: tuple(block.sha256[name] for block in blocks) for name in [*spec.fields, NAMES]},
        moments={
            name: reduce(
                Moments.merge,
                [block.moments[name] for block in blocks if block.moments],
                Moments.none(len(each.channels) or 1),
            )
            for name, each in spec.fields.items()
        },
        class_counts={
            name: np.sum([block.class_counts[name] for block in blocks], axis=0)
            for name, each in spec.fields.items()
            if each.classes
        },
        attributes=attributes,
    )
