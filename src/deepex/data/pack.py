"""The packed data set: one plain HDF5 file, contiguous and uncompressed, that names and verifies its content.

Every HDF5 tool opens it. A field of yes/no values may be stored as bits, eight to a byte. It knows no task.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray

from deepex.data.source import Indices
from deepex.errors import DataError
from deepex.sample import Batch, Field, SampleSpec


@dataclass(frozen=True, kw_only=True)
class Column:
    """One field to pack: values with samples along the first dimension, its unit, and what it is in words."""

    values: NDArray[Any]
    unit: str = ""
    description: str = ""


def write(path: Path, columns: Mapping[str, Column], attributes: Mapping[str, Any]) -> str:
    """Write a packed data set, atomically, and return the hash of its content.

    Boolean columns are stored as bits. `attributes` are JSON-able and say where the data comes from.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(temporary, "w", libver="v110") as file:
            for name, column in columns.items():
                is_bits = column.values.dtype == np.bool_
                flat = column.values.reshape(len(column.values), -1)
                stored = np.packbits(flat, axis=1) if is_bits else column.values
                dataset = file.create_dataset(name, data=stored)
                dataset.attrs["shape"] = np.asarray(column.values.shape[1:], dtype=np.int64)
                dataset.attrs["bits"] = is_bits
                dataset.attrs["unit"] = column.unit
                dataset.attrs["description"] = column.description
            for key, value in attributes.items():
                file.attrs[key] = json.dumps(value)
            content = _content_sha256(file)
            file.attrs["content_sha256"] = content
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise DataError(
            f"{path} can't be written ({error.strerror or error}). Give a folder with write permission and space."
        ) from error
    return content


class PackedSource:
    """Samples of a packed file, verified on opening, yes/no fields as float32 zeros and ones.

    Example: `PackedSource(Path("bba.h5")).spec.fields["contact_map"].shape` is `(28, 28)`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with _opened(path) as file:
            expected, found = str(file.attrs.get("content_sha256", "none")), _content_sha256(file)
            if expected != found:
                raise DataError(
                    f"{path} is damaged: its content has sha256 {found}, its header says {expected}. "
                    "Make or copy the file again."
                )
            self.content_sha256 = found
            self.attributes = {k: json.loads(v) for k, v in file.attrs.items() if k != "content_sha256"}
            self.arrays = {name: dataset[()] for name, dataset in file.items()}
            self.bits = {name for name, dataset in file.items() if dataset.attrs["bits"]}
            self.descriptions = {name: str(dataset.attrs["description"]) for name, dataset in file.items()}
            fields = {
                name: Field(
                    shape=tuple(int(n) for n in dataset.attrs["shape"]),
                    dtype="float32" if name in self.bits else str(dataset.dtype),
                    unit=str(dataset.attrs["unit"]),
                )
                for name, dataset in file.items()
            }
        self.spec = SampleSpec(fields=fields)

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def read(self, indices: Indices, out: Batch) -> None:
        chosen = np.asarray(indices)
        for name, buffer in out.items():
            values = self.arrays[name][chosen]
            if name in self.bits:
                count = int(np.prod(self.spec.fields[name].shape))
                values = np.unpackbits(values, axis=1, count=count)
            target = buffer[: len(chosen)]
            target.copy_(torch.from_numpy(values).view(target.shape))


def _opened(path: Path) -> h5py.File:
    if not path.exists():
        raise DataError(f"there is no data file {path}. Make one with: deepex data make protein --out {path}")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "no file"
        raise DataError(
            f"{path} is not a readable HDF5 file (sha256 {found}; {error}). Make or copy the file again."
        ) from error


def _content_sha256(file: h5py.File) -> str:
    """A hash over the names, shapes and bytes of all fields, independent of how HDF5 lays them out."""
    digest = hashlib.sha256()
    for name in sorted(file):
        values = np.ascontiguousarray(file[name][()])
        digest.update(f"{name} {values.dtype} {values.shape}".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()
