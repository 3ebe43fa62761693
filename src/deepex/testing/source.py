"""The contract of a source of samples. `check_source` holds any source to it, in this process and in another."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import cloudpickle
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepex.data.source import Indices, Source, allocate
from deepex.sample import Batch
from deepex.testing.processes import clean_processes

NUM_SAMPLES = 8  # as many of a source are read, evenly spaced
MAX_NAMES = 10_000
SPARE = 2  # places of a buffer that a read must leave alone
Content = dict[str, bytes]


def check_source(make: Callable[[], Source]) -> None:
    """Raise AssertionError unless the source keeps its promises.

    1. It has samples, fields, and for each sample a name that no other has and that a second source gives it too.
    2. `read` fills the first places of the buffers it is given in the order of `indices`, and touches nothing else:
       any order, any repeats, lists, ranges and arrays, all fields or some.
    3. A sample is the same whenever it is read: again, alone, from a second source, in a thread, after a pickle, and
       in a process that was started anew.

    Example: `check_source(lambda: open_source(Path("photos")))`
    """
    source = make()
    assert len(source) > 0, "the source has no samples"
    assert source.spec.fields, "samples have no fields"
    _check_names(source, make())
    chosen = np.unique(np.linspace(0, len(source) - 1, min(NUM_SAMPLES, len(source))).round().astype(np.int64))
    expected = _read(source, chosen)
    _check_order(source, chosen, expected)
    _check_fields(source, chosen, expected)
    _same(_read(make(), chosen), expected, "a second source reads other samples")
    with ThreadPoolExecutor(1) as pool:
        _same(pool.submit(_read, source, chosen).result(), expected, "a thread reads other samples")
    try:
        body = cloudpickle.dumps(source)
    except Exception as error:  # whatever an object's own pickling raises
        raise AssertionError(f"the source can't be pickled: {error}") from error
    _same(_read(cloudpickle.loads(body), chosen), expected, "after a pickle other samples are read")
    with ProcessPoolExecutor(1, mp_context=clean_processes()) as processes:
        elsewhere = processes.submit(_read_pickled, body, chosen).result()
    _same(elsewhere, expected, "another process reads other samples")


def _check_names(source: Source, again: Source) -> None:
    assert len(again) == len(source), f"a second source has {len(again)} samples, the first {len(source)}"
    assert again.spec == source.spec, f"a second source holds {again.spec}, the first {source.spec}"
    count = min(len(source), MAX_NAMES)
    names = [source.name(index) for index in range(count)]
    for index, name in enumerate(names):
        assert isinstance(name, str), f"the name of sample {index} is {name!r}, not text"
        assert name, f"sample {index} has an empty name"
    name, times = Counter(names).most_common(1)[0]
    assert times == 1, f"{times} samples are called '{name}'"
    for index, name in enumerate(names):
        other = again.name(index)
        assert other == name, f"sample {index} is called '{name}', and '{other}' by a second source"


def _check_order(source: Source, chosen: NDArray[np.int64], expected: Content) -> None:
    """Every way to ask for the same samples gives the same samples."""
    rows = list(range(len(chosen)))
    _same(_read(source, chosen), expected, "reading again gives other samples")
    orders = {"backwards": rows[::-1], "with repeats": [rows[-1], *rows, rows[0], rows[0]], "shuffled": _shuffled(rows)}
    for way, order in orders.items():
        wanted = _arranged(expected, order, len(chosen))
        indices = chosen[order]
        _same(_read(source, indices), wanted, f"an array of indices {way} gives samples in another order")
        _same(_read(source, indices.tolist()), wanted, f"a list of indices {way} gives samples in another order")
    alone = [_read(source, [int(index)]) for index in chosen]
    together = {name: b"".join(one[name] for one in alone) for name in expected}
    _same(together, expected, "samples read one by one differ from those of a batch")
    first = range(min(NUM_SAMPLES, len(source)))
    _same(_read(source, first), _read(source, list(first)), "a range of indices and a list of them give other samples")


def _check_fields(source: Source, chosen: NDArray[np.int64], expected: Content) -> None:
    """Fields can be read one at a time."""
    for name in source.spec.fields:
        single = _read(source, chosen, fields=[name])
        _same(single, {name: expected[name]}, f"read without the other fields, {name} is another")


def _read(source: Source, indices: Indices, fields: Sequence[str] = ()) -> Content:
    """The bytes of samples by field, read into buffers full of zeros and again into buffers full of ones."""
    contents = []
    for number in (0, 1):
        buffers = allocate(source.spec, len(indices) + SPARE)
        out: Batch = {name: buffers[name].fill_(number) for name in fields or buffers}
        given = dict(out)
        source.read(indices, out)
        assert out.keys() == given.keys(), f"read was given {sorted(given)} to fill and left {sorted(out)}"
        for name, buffer in out.items():
            assert buffer is given[name], f"read put another tensor in the place of the buffer for {name}"
            spare = buffer[len(indices) :]
            assert torch.equal(spare, torch.full_like(spare, number)), f"read changed places of {name} beyond its own"
        contents.append({name: _bytes_of(buffer[: len(indices)]) for name, buffer in out.items()})
    _same(contents[0], contents[1], "what was in the buffer before shows in what was read")
    return contents[0]


def _read_pickled(body: bytes, indices: Indices) -> Content:
    torch.set_num_threads(1)
    return _read(cloudpickle.loads(body), indices)


def _arranged(content: Content, order: Sequence[int], count: int) -> Content:
    """The samples of `content`, `count` of them, in another order."""
    size = {name: len(data) // count for name, data in content.items()}
    return {
        name: b"".join(data[row * size[name] : (row + 1) * size[name]] for row in order)
        for name, data in content.items()
    }


def _shuffled(rows: Sequence[int]) -> list[int]:
    return [int(row) for row in np.random.default_rng(0).permutation(rows)]


def _bytes_of(tensor: Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def _same(found: Content, expected: Content, problem: str) -> None:
    for name, data in expected.items():
        assert found[name] == data, f"{problem} (field {name})"
