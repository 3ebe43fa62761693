"""What PyTorch users have, as sources: data sets, the data sets of loaders, tensors and arrays, packed files.

It reads items; it knows no model and no task.
"""

import hashlib
import random
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import data as torch_data

from deepex.data.feeding.augment import drawing
from deepex.data.feeding.cache import free_bytes
from deepex.data.packing.packed import PackedSource
from deepex.data.source import ArraySource, Indices, Source, Subset, allocate, as_array
from deepex.data.structure import Structure, describe_leaf, to_tensor
from deepex.errors import ConfigError, DataError, DeepexError, SampleError
from deepex.reference import is_reference, load_object
from deepex.sample import Batch, SampleSpec

PROBES = 16  # items that are read twice to see whether they are drawn at random
PLAIN_SAMPLERS = (torch_data.SequentialSampler, torch_data.RandomSampler, torch_data.DistributedSampler)

Given = Any
"""A data set, a loader, arrays by name or in a tuple, a path of a packed file, a Source, or a function of any."""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """A source, how its items are nested, a hash of what is known of its content, and whether samples have names."""

    source: Source
    structure: Structure
    content_sha256: str
    named: bool = False
    left_out: Mapping[str, str] | None = None


class DatasetSource:
    """The items of a map-style data set.

    Items are alike: one structure, one shape and one type for each part, those of the first item.

    Attributes:
        draws: whether items are drawn at random, so that reading one twice gives another; then nothing is cached.

    >>> source = DatasetSource([(torch.zeros(3), 1), (torch.ones(3), 0)])
    >>> len(source), list(source.spec.fields)
    (2, ['0', '1'])
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset, self.length = dataset, _measure(dataset)
        with _random_states_kept():
            first = self._items([0])[0]
            self.structure = Structure.of(first)
            leaves = self.structure.flatten(first)
            self.spec = SampleSpec(fields={name: describe_leaf(value, name) for name, value in leaves.items()})
        self.draws = self._find_draws()

    def __len__(self) -> int:
        return self.length

    def name(self, index: int) -> str:
        return str(index)

    def read(self, indices: Indices, out: Batch) -> None:
        chosen = [int(index) for index in indices]
        for place, (index, item) in enumerate(zip(chosen, self._items(chosen), strict=True)):
            _store(item, self.structure, place, out, f"item {index} of {_say(self.dataset)}")

    def read_drawn(self, indices: Indices, out: Batch, draw_for: tuple[int, int] | None) -> None:
        """Read items that are drawn at random: by (seed, epoch, sample), and by nothing else."""
        seed, epoch = draw_for or (0, 0)
        with _random_states_kept():
            for place, index in enumerate(map(int, indices)):
                _seed_all(drawing(seed, epoch, index)(2**32))
                _store(self._items([index])[0], self.structure, place, out, f"item {index} of {_say(self.dataset)}")

    def _items(self, indices: Sequence[int]) -> list[Any]:
        """Items by index; an error of the user's own code is told with the item."""
        many = getattr(self.dataset, "__getitems__", None)
        index = indices[0] if indices else 0
        try:
            if many is not None:
                return list(many(list(indices)))
            items = []
            for index in indices:  # an error names it
                items.append(self.dataset[index])
        except DeepexError:
            raise
        except Exception as error:  # whatever a user's data set raises
            raise _failed_item(self.dataset, index, error) from error
        return items

    def _find_draws(self) -> bool:
        """Whether reading an item draws from a random generator, or gives other values the second time."""
        chosen = np.unique(np.linspace(0, self.length - 1, PROBES).astype(np.int64)).tolist()
        first, second = (allocate(self.spec, len(chosen)) for _ in range(2))
        with _random_states_kept():
            _seed_all(1)
            before = _random_states()
            self.read(chosen, first)
            if not _same_states(before, _random_states()):
                return True
            self.read(chosen, second)
        return any(as_array(first[name]).tobytes() != as_array(second[name]).tobytes() for name in first)


def open_samples(given: Given) -> Samples:
    """What a user gave as data, as a source.

    >>> open_samples((torch.zeros(10, 3), torch.zeros(10))).structure.names()
    ['0', '1']
    """
    if isinstance(given, str) and is_reference(given):
        given = load_object(given)
    makes = callable(given) and not hasattr(given, "__getitem__") and not hasattr(given, "__iter__")
    if makes or isinstance(given, type):
        given = given()
    if isinstance(given, str | Path):
        packed = PackedSource(Path(given))
        structure = _flat(packed.spec)
        return Samples(
            source=packed,
            structure=structure,
            content_sha256=packed.content_sha256,
            named=True,
            left_out=packed.left_out,
        )
    if isinstance(given, torch_data.DataLoader):
        return open_samples(_dataset_of(given))
    if _is_source(given):
        names = "\n".join(given.name(index) for index in range(len(given)))
        digest = hashlib.sha256(names.encode()).hexdigest()  # all that is known of a source without a hash of its own
        return Samples(source=given, structure=_flat(given.spec), content_sha256=digest, named=True)
    return _open_items(given)


def find_batch(given: Given) -> int | None:
    """The batch size that comes with data: a loader's."""
    if not isinstance(given, torch_data.DataLoader):
        return None
    return given.batch_size or getattr(given.batch_sampler, "batch_size", None)


def _open_items(given: Given) -> Samples:
    """Arrays and data sets."""
    if isinstance(given, torch_data.TensorDataset):
        given = given.tensors
    if isinstance(given, torch_data.Subset):
        whole = open_samples(given.dataset)
        chosen = np.asarray(given.indices, dtype=np.int64)
        digest = hashlib.sha256(whole.content_sha256.encode() + chosen.tobytes()).hexdigest()
        return Samples(source=Subset(whole.source, chosen), structure=whole.structure, content_sha256=digest)
    if _is_arrays(given):
        return _open_arrays(given)
    is_list = isinstance(given, list) and all(isinstance(each, Tensor | np.ndarray) for each in given)
    if is_list and len({np.shape(each) for each in given}) > 1:
        raise DataError(
            f"data is a list of {len(given)} arrays of different shapes. Arrays that belong together stand in a tuple "
            "or a mapping: data=(x, y). A list is taken for a data set, an item each."
        )
    if isinstance(given, Mapping) and 0 not in given:
        told = ", ".join(f"{name}: {type(value).__name__}" for name, value in given.items())
        raise DataError(
            f"data is a mapping of {told or 'nothing'}. Allowed: tensors or NumPy arrays by name, with samples along "
            "the first dimension."
        )
    if isinstance(given, torch_data.IterableDataset) or not hasattr(given, "__getitem__"):
        return _read_iterable(given)
    source = DatasetSource(given)
    digest = _describe_dataset(source.length, source.spec)
    return Samples(source=source, structure=source.structure, content_sha256=digest)


def _open_arrays(given: Any) -> Samples:
    structure = Structure.of(given)
    arrays = structure.flatten(given)
    for name, array in arrays.items():
        if array.ndim == 0:
            raise DataError(
                f"array '{name}' is a single number. Allowed: arrays with samples along the first dimension."
            )
        try:
            to_tensor(array)
        except ValueError as error:
            raise DataError(f"array '{name}' is {error}. Allowed: numbers. Convert it, or leave it out.") from error
    source = ArraySource(arrays)
    digest = hashlib.sha256()
    for name, tensor in source.tensors.items():
        digest.update(name.encode())
        digest.update(as_array(tensor).tobytes())
    return Samples(source=source, structure=structure, content_sha256=digest.hexdigest())


def _read_iterable(given: Any) -> Samples:
    """An iterable data set, read once and kept in memory, as many items as it says that it has."""
    if not hasattr(given, "__iter__"):
        raise DataError(
            f"data is {_say(given)}. Allowed: a torch Dataset, a DataLoader, tensors or arrays by name or in a tuple, "
            "the path of a packed file, a Source, or a function that returns one of them."
        )
    length = _measure(given)
    try:
        items = iter(given)
        first = next(items, None)
    except Exception as error:  # whatever a user's data set raises
        raise _failed_item(given, 0, error) from error
    if first is None:
        raise DataError(f"{_say(given)} says that it has {length:,} items, and gave none. Let it give at least two.")
    structure = Structure.of(first)
    fields = {name: describe_leaf(value, name) for name, value in structure.flatten(first).items()}
    spec, room = SampleSpec(fields=fields), free_bytes()
    if length * spec.num_bytes > room:
        raise DataError(
            f"{_say(given)} is read once and kept in memory: {length:,} items of {spec.num_bytes:,} bytes are more "
            f"than the {room / 2**30:.1f} GiB that are free. Write them to files and pack these: deepex data pack"
        )
    out = allocate(spec, length)
    count = 0
    try:
        for count, item in enumerate(islice(chain([first], items), length), start=1):
            _store(item, structure, count - 1, out, f"item {count - 1} of {_say(given)}")
    except DeepexError:
        raise
    except Exception as error:  # whatever a user's data set raises
        raise _failed_item(given, count, error) from error
    if count < length:
        raise DataError(
            f"{_say(given)} says that it has {length:,} items, and ended after {count:,}. Let its __len__ return the "
            "right number."
        )
    return Samples(source=ArraySource(out), structure=structure, content_sha256=_describe_dataset(length, spec))


def _store(item: Any, structure: Structure, place: int, out: Batch, what: str) -> None:
    """Copy an item into a place of a batch; one that is unlike the first is an error that names it."""
    try:
        for name, value in structure.flatten(item).items():
            if name in out:
                tensor, buffer = to_tensor(value), out[name]
                if tensor.shape != buffer.shape[1:] or tensor.dtype != buffer.dtype:
                    raise ValueError(f"'{name}' is {_describe(tensor)}, and {_describe(buffer[0])} in the first item")
                buffer[place].copy_(tensor)
    except ValueError as error:
        raise SampleError(
            f"{what} is unlike the first: {error}. Allowed: items of one structure, shape and type. Pad, crop or "
            "convert them in the data set."
        ) from error


def _dataset_of(loader: "torch_data.DataLoader[Any]") -> Any:
    """The data set of a loader; one that does more than shuffle and collate is refused."""
    if loader.collate_fn is not torch_data.default_collate:
        raise ConfigError(
            "data is a DataLoader with a collate_fn of its own. deepex makes batches itself, of items that are alike. "
            "Do in the data set or in the loss what it does, and give the data set."
        )
    order: Any = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    order = order.sampler if type(order) is torch_data.BatchSampler else order
    if not isinstance(loader.dataset, torch_data.IterableDataset) and not _takes_all(order, loader.dataset):
        raise ConfigError(
            f"data is a DataLoader with a {type(order).__name__}. deepex orders samples itself, at random and "
            "the same on any number of ranks. Give the data set; classes are balanced by data.balance."
        )
    return loader.dataset


def _takes_all(sampler: Any, dataset: Any) -> bool:
    """Whether a sampler gives each item of a data set once."""
    if isinstance(sampler, torch_data.RandomSampler) and (sampler.replacement or sampler.num_samples != len(dataset)):
        return False
    owner = getattr(sampler, "data_source", getattr(sampler, "dataset", dataset))
    return isinstance(sampler, PLAIN_SAMPLERS) and owner is dataset


def _is_arrays(given: Any) -> bool:
    """Whether something is arrays, each with all samples: one, or some in a mapping or a tuple."""
    if isinstance(given, Mapping | tuple):
        return len(given) > 0 and all(map(_is_arrays, _values(given)))
    return isinstance(given, Tensor | np.ndarray)


def _is_source(given: Any) -> bool:
    return all(hasattr(given, name) for name in ("spec", "read", "name", "__len__"))


def _flat(spec: SampleSpec) -> Structure:
    return Structure(kind=dict, parts=tuple((name, Structure(name=name)) for name in spec.fields))


def _values(given: Any) -> list[Any]:
    return list(given.values()) if isinstance(given, Mapping) else list(given)


def _measure(dataset: Any) -> int:
    """How many items there are, from 1."""
    try:
        length = len(dataset)
    except TypeError:
        raise DataError(
            f"{_say(dataset)} has no length. Give it a __len__ that says how many items an epoch has, or write the "
            "items to files and pack these: deepex data pack"
        ) from None
    if not length:
        raise DataError(f"{_say(dataset)} has a length of 0. Give at least one sample to train on and one to validate.")
    return int(length)


def _describe_dataset(length: int, spec: SampleSpec) -> str:
    """A hash of what is known of a data set without reading it: how many items, and what they are like."""
    told = f"{length} {sorted((name, str(field)) for name, field in spec.fields.items())}"
    return hashlib.sha256(told.encode()).hexdigest()


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def _say(given: Any) -> str:
    return (
        f"data set {type(given).__name__}"
        if hasattr(given, "__getitem__") or hasattr(given, "__iter__")
        else f"a {type(given).__name__}"
    )


def _failed_item(dataset: Any, index: int, error: Exception) -> DataError:
    frames = traceback.extract_tb(error.__traceback__)
    return DataError(
        f"item {index} of {_say(dataset)} can't be read: {type(error).__name__} in {frames[-1].filename}, line "
        f"{frames[-1].lineno}: {error}. Look at that item by itself: dataset[{index}]"
    )


def _seed_all(seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  # the global state is what users' data sets draw from
    random.seed(seed)


def _random_states() -> tuple[Any, ...]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002  # as above


def _same_states(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    numbers = zip(one[1], other[1], strict=True)
    return torch.equal(one[0], other[0]) and all(np.array_equal(a, b) for a, b in numbers) and one[2] == other[2]


@contextmanager
def _random_states_kept() -> Iterator[None]:
    """Give generators back as they were: a run's own noise does not depend on how its data is read."""
    states = _random_states()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002  # as above
        random.setstate(states[2])
