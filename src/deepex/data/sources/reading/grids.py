"""Variables on grids, by xarray: one dimension counts samples, variables become channels. What NetCDF and Zarr share.

Values are decoded as the files say: packed numbers are scaled, missing ones become NaN. How a file is opened is the
reader's business.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from deepex.data.source import Indices, as_array
from deepex.data.sources.reading.dtypes import HELD, WIDENED, held_dtype
from deepex.data.sources.reading.files import damaged, rows_together, runs
from deepex.data.sources.reading.parts import OpenFiles, Part, Parts
from deepex.errors import ConfigError, DataError, SampleError
from deepex.sample import Batch, Field, SampleSpec

# What netCDF4, zarr and the codecs beneath them raise for files that are cut short, damaged or gone.
UNREADABLE = (OSError, RuntimeError, ValueError, KeyError, TypeError, EOFError, zlib.error)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to take from the files.

    Attributes:
        variables: become channels of one field, in this order; none given, all numeric ones with the sample dimension,
            in the order of the alphabet.
        sample: the dimension that counts samples.
        field: what the field of stacked variables is called; it is float32, of shape (channels, *other dimensions).
        targets: further variables, each a field of its own with a dtype of its own, as labels are.
        stack: `false` makes each of the variables a field of its own too.
    """

    variables: tuple[str, ...] = ()
    sample: str = "time"
    field: str = "x"
    targets: tuple[str, ...] = ()
    stack: bool = True

    def __post_init__(self) -> None:
        named = (*self.variables, *self.targets)
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice:
            raise ConfigError(f"{', '.join(twice)} named twice in variables and targets. Name each variable once.")
        if not self.sample or not self.field:
            raise ConfigError("sample and field can't be empty. Give the dimension and the field a name: sample=time.")
        if self.stack and self.field in self.targets:
            raise ConfigError(
                f"field '{self.field}' has the name of a target. Call the field of channels differently: field=NAME."
            )


class GridSource:
    """Samples along one dimension of the variables in one or many files."""

    def __init__(
        self, path: Path, files: Sequence[Path], options: Options, open_dataset: Callable[[Path], xr.Dataset]
    ) -> None:
        self._sample = options.sample
        self._opened = OpenFiles(open_dataset)
        self._variables: dict[str, tuple[str, ...]] = {}  # of each field
        self._asked = options
        self.spec = SampleSpec()
        self._parts = Parts(files, path, self._inspect)

    def __len__(self) -> int:
        return len(self._parts)

    def name(self, index: int) -> str:
        return self._parts.name(index)

    def read(self, indices: Indices, out: Batch) -> None:
        for part, rows, places in self._parts.split(indices):
            for field, buffer in out.items():
                target = as_array(buffer)
                for channel, variable in enumerate(self._variables[field]):
                    where = target[:, channel] if self.spec.fields[field].channels else target
                    self._fill(part, variable, rows, places, where)

    def _fill(
        self, part: Part, variable: str, rows: NDArray[np.int64], places: NDArray[np.int64], target: NDArray[Any]
    ) -> None:
        """Read rows of a variable, in rising order, into places of `target`, run by run."""
        stored = self._dataset(part.file).variables[variable]
        chunk = stored.encoding.get("preferred_chunks", {}).get(self._sample, 1)
        row_bytes = stored.nbytes // max(1, stored.sizes[self._sample])
        for run in runs(rows, rows_together(chunk, row_bytes)):
            first, last = int(rows[run][0]), int(rows[run][-1])
            piece = stored.isel({self._sample: slice(first, last + 1)}).transpose(self._sample, ...)
            try:
                values = piece.values
            except UNREADABLE as error:
                if last > first:  # alone, each row shows whether it is the bad one
                    for row, place in zip(rows[run], places[run], strict=True):
                        self._fill(part, variable, np.array([row]), np.array([place]), target)
                    continue
                raise damaged(f"{variable} at {part.sample_name(first)} in {part.file}", error) from error
            target[places[run]] = values[rows[run] - first]

    def _dataset(self, file: Path) -> xr.Dataset:
        try:
            return self._opened.get(file)
        except UNREADABLE as error:
            raise damaged(file, error) from error

    def _inspect(self, file: Path) -> Sequence[object]:
        """The labels of a file's samples; the first file that can be read decides what all samples hold."""
        dataset = self._dataset(file)
        variables = _choose_variables(dataset, self._asked, file)
        fields = {name: _describe_field(dataset, name, names, self._asked, file) for name, names in variables.items()}
        if not self._variables:
            self.spec, self._variables = SampleSpec(fields=fields), variables
            # From now on, what was found to be all variables is what is asked for.
            found = tuple(name for names in variables.values() for name in names if name not in self._asked.targets)
            self._asked = replace(self._asked, variables=found)
        for name, field in fields.items():
            expected = self.spec.fields[name]
            if field.shape != expected.shape or not np.can_cast(field.dtype, expected.dtype, "same_kind"):
                raise SampleError(
                    f"field '{name}' of {file} is {field.dtype} of shape {field.shape}, in the files before it "
                    f"{expected.dtype} of shape {expected.shape}. Leave it out with --skip-bad N, or open it alone."
                )
        return _labels(dataset, self._sample)


def _choose_variables(dataset: xr.Dataset, options: Options, file: Path) -> dict[str, tuple[str, ...]]:
    """The variables of each field, checked to be there, to be numbers and to have the sample dimension."""
    sample = options.sample
    if sample not in dataset.sizes:
        sizes = ", ".join(f"{name} ({size})" for name, size in dataset.sizes.items()) or "none"
        raise DataError(
            f"{file} has no dimension '{sample}'. Its dimensions: {sizes}. Say which counts samples: sample=NAME."
        )
    for name in (*options.variables, *options.targets):
        if name not in dataset.variables:
            raise DataError(f"{file} has no variable '{name}'. {_holds(dataset)} Name those with variables=A,B.")
        if not _is_usable(dataset.variables[name], sample):
            raise DataError(
                f"variable '{name}' of {file} is {dataset.variables[name].dtype} with dimensions "
                f"{_dimensions(dataset.variables[name])}. It must be numbers with the dimension {sample}: "
                "choose others, or another dimension with sample=NAME."
            )
    chosen = options.variables or _all_variables(dataset, options)
    if not chosen:
        raise DataError(
            f"{file} has no numeric variable with dimension '{sample}'. {_holds(dataset)} "
            "Say which dimension counts samples: sample=NAME."
        )
    fields: dict[str, tuple[str, ...]] = {options.field: chosen} if options.stack else {v: (v,) for v in chosen}
    return fields | {name: (name,) for name in options.targets}


def _all_variables(dataset: xr.Dataset, options: Options) -> tuple[str, ...]:
    """All data variables that can be samples; those that just bound another variable's cells are not data."""
    bounds = {variable.attrs.get(key) for variable in dataset.variables.values() for key in ("bounds", "climatology")}
    usable = [
        str(name)
        for name, array in dataset.data_vars.items()
        if name not in bounds and name not in options.targets and _is_usable(array.variable, options.sample)
    ]
    return tuple(sorted(usable))  # a Zarr store has no order of its own


def _describe_field(dataset: xr.Dataset, name: str, variables: tuple[str, ...], options: Options, file: Path) -> Field:
    """What a field of these variables is: stacked in float32, or one of its own."""
    stored = [dataset.variables[variable] for variable in variables]
    shapes = [_sample_shape(variable, options.sample) for variable in stored]
    units = [str(variable.attrs.get("units", "")) for variable in stored]
    words = [str(v.attrs.get("long_name", v.attrs.get("standard_name", ""))) for v in stored]
    if options.stack and name == options.field:
        if len(set(shapes)) > 1:
            found = ", ".join(f"{variable} {shape}" for variable, shape in zip(variables, shapes, strict=True))
            raise DataError(
                f"variables of {file} have different shapes and can't be channels of one field: {found}. "
                "Choose those that fit with variables=A,B, keep others as targets=C, or set stack=false."
            )
        same = len(set(units)) == 1
        listed = [f"{v} in {unit}" if unit else f"{v} without unit" for v, unit in zip(variables, units, strict=True)]
        return Field(
            shape=(len(variables), *shapes[0]),
            dtype="float32",
            unit=units[0] if same else "",
            description="" if same else ", ".join(listed),
            channels=variables,
        )
    dtype = held_dtype(stored[0].dtype)
    if dtype is None:
        raise DataError(
            f"variable '{name}' of {file} is {stored[0].dtype}. A field of its own can be "
            f"{', '.join([*HELD, *WIDENED])}; others only channels of a float32 field: variables={name}."
        )
    return Field(shape=shapes[0], dtype=dtype, unit=units[0], description=words[0])


def _labels(dataset: xr.Dataset, sample: str) -> Sequence[object]:
    """The sample coordinate's values, times as ISO text; positions where there is none or its values repeat."""
    if sample not in dataset.indexes:
        return range(dataset.sizes[sample])
    try:
        index = xr.decode_cf(dataset[[sample]], decode_timedelta=False).indexes[sample]
    except (ValueError, OverflowError):  # units that no calendar knows, as months: their numbers tell them apart
        index = dataset.indexes[sample]
    is_time = isinstance(index, xr.CFTimeIndex) or index.dtype.kind == "M"
    labels = [value.isoformat() if is_time else str(value) for value in index]
    return labels if len(set(labels)) == len(labels) and all(labels) else range(len(labels))


def _is_usable(variable: xr.Variable, sample: str) -> bool:
    return sample in variable.dims and variable.dtype.kind in "fiub"


def _sample_shape(variable: xr.Variable, sample: str) -> tuple[int, ...]:
    return tuple(size for name, size in variable.sizes.items() if name != sample)


def _dimensions(variable: xr.Variable) -> str:
    return f"({', '.join(map(str, variable.dims))})"


def _holds(dataset: xr.Dataset) -> str:
    variables = [f"{name} {_dimensions(array.variable)}" for name, array in dataset.data_vars.items()]
    return f"It holds: {', '.join(sorted(variables)) or 'no variables'}."
