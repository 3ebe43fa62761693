"""The header of a packed file: where HDF5 puts its datasets, and the bytes around them.

A file is written in two ways at once: its samples as plain bytes at known places, by as many ranks as there are, and
its header by HDF5 into an empty file of the same layout, from which all that is not data is copied. So the finished
file does not depend on who wrote what, or on how often writing was interrupted.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from deepex.data.packing.packed import NAMES, Column, content_sha256
from deepex.data.statistics import Moments
from deepex.errors import DataError
from deepex.sample import Field, SampleSpec

PAGE = 4096  # data begins on a page, as memory maps and direct reads like it


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What decides where things stand in a file: its fields, how many samples, how long their names are."""

    spec: SampleSpec
    num_samples: int
    name_bytes: int
    block_samples: int

    @property
    def num_blocks(self) -> int:
        return -(-self.num_samples // self.block_samples)


@dataclass(frozen=True, kw_only=True)
class Content:
    """What is known once all samples are written: checksums of blocks and statistics by field, and free attributes."""

    block_sha256: Mapping[str, tuple[str, ...]]
    moments: Mapping[str, Moments]
    class_counts: Mapping[str, Any]
    attributes: Mapping[str, Any]


def stored_form(field: Field) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The dtype and shape of a stored row: yes/no values as bits, all else as it is."""
    if field.dtype == "bool":
        return np.dtype(np.uint8), (-(-int(np.prod(field.shape, dtype=np.int64)) // 8),)
    try:
        return np.dtype(field.dtype), field.shape
    except TypeError:
        raise DataError(
            f"a field of dtype {field.dtype} can't be packed. Allowed: what HDF5 and NumPy know, as float32 or uint8."
        ) from None


def write_header(path: Path, shape: Shape, content: Content | None = None) -> dict[str, Column]:
    """Write an empty packed file, sparse, with its attributes if they are known; returns where its columns stand."""
    path.unlink(missing_ok=True)
    with h5py.File(path, "w", libver="v110", alignment_threshold=PAGE, alignment_interval=PAGE) as file:
        datasets = {name: _allocate(file, name, shape) for name in [*sorted(shape.spec.fields), NAMES]}
        columns = {
            name: Column(
                name=name,
                offset=int(dataset.id.get_offset()),
                dtype=np.dtype(np.uint8) if name == NAMES else dataset.dtype,
                row=(shape.name_bytes,) if name == NAMES else tuple(dataset.shape[1:]),
                is_bits=name != NAMES and shape.spec.fields[name].dtype == "bool",
                block_sha256=content.block_sha256[name] if content else (),
            )
            for name, dataset in datasets.items()
        }
        if content:
            for name, dataset in datasets.items():
                _describe(dataset, name, shape, content)
            for key, value in content.attributes.items():
                file.attrs[key] = json.dumps(value)
            file.attrs["num_samples"] = shape.num_samples
            file.attrs["block_samples"] = shape.block_samples
            file.attrs["content_sha256"] = content_sha256(shape.num_samples, columns)
    return columns


def copy_header(header: Path, target: int, shape: Shape, columns: Mapping[str, Column]) -> None:
    """Copy all that is not data from one file to the same places of another, given by its descriptor."""
    size = header.stat().st_size
    os.ftruncate(target, size)
    data = sorted((c.offset, c.offset + shape.num_samples * c.row_bytes) for c in columns.values())
    edges = [0, *(edge for extent in data for edge in extent), size]
    with open(header, "rb") as file:
        for first, last in zip(edges[::2], edges[1::2], strict=True):
            file.seek(first)
            write_all(target, memoryview(file.read(last - first)), first)


def write_all(descriptor: int, view: memoryview, offset: int) -> None:
    """Write bytes to a place in a file; what a nearly full disk does not take raises when the rest is tried."""
    written = 0
    while written < len(view):
        written += os.pwrite(descriptor, view[written:], offset + written)


def _allocate(file: h5py.File, name: str, shape: Shape) -> h5py.Dataset:
    """A contiguous dataset with its space set aside and nothing written."""
    dtype, row = (np.dtype(f"S{shape.name_bytes}"), ()) if name == NAMES else stored_form(shape.spec.fields[name])
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    properties.set_obj_track_times(False)  # else the time of day would stand in the file
    space = h5py.h5s.create_simple((shape.num_samples, *row))
    kind = h5py.h5t.py_create(dtype, logical=True)
    return h5py.Dataset(h5py.h5d.create(file.id, name.encode(), kind, space, dcpl=properties))


def _describe(dataset: h5py.Dataset, name: str, shape: Shape, content: Content) -> None:
    attributes = dataset.attrs
    checksums = [bytes.fromhex(text) for text in content.block_sha256[name]]
    attributes["block_sha256"] = np.frombuffer(b"".join(checksums), dtype=np.uint8).reshape(-1, 32)
    if name == NAMES:
        attributes["description"] = "what each sample is called in its source"
        return
    field, moments = shape.spec.fields[name], content.moments[name]
    attributes["shape"] = np.asarray(field.shape, dtype=np.int64)
    attributes["bits"] = field.dtype == "bool"
    attributes["unit"] = field.unit
    attributes["description"] = field.description
    attributes["channels"] = json.dumps(field.channels)
    attributes["classes"] = json.dumps(field.classes)
    attributes["count"] = moments.count
    attributes["minimum"] = moments.minimum
    attributes["maximum"] = moments.maximum
    attributes["mean"] = moments.mean
    attributes["deviation"] = moments.deviation
    if field.classes:
        attributes["class_counts"] = np.asarray(content.class_counts[name], dtype=np.int64)
