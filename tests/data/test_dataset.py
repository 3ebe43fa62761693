"""What PyTorch users have, as sources: every kind of data set, and every way in which one can be wrong."""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils import data as torch_data

import deepex as dx
from deepex.data import ArraySource
from deepex.data.dataset import DatasetSource, find_batch, open_samples
from deepex.data.feeding.cache import stands_in_memory
from deepex.data.feeding.feed import Feed
from deepex.data.feeding.plan import DataConfig, Plan
from deepex.data.packing.pack import pack
from deepex.data.source import allocate, draws
from deepex.errors import ConfigError, DataError, SampleError
from deepex.testing.source import check_source
from deepex.train.evaluate import plan_evaluation
from deepex.world import World
from tests.data.test_structure import assert_same

X = torch.arange(40.0).reshape(20, 2)
LABELS = torch.arange(20)
TENSORS = torch_data.TensorDataset(X, LABELS)
CPU = torch.device("cpu")


class Items(torch_data.Dataset[Any]):
    """A data set made of a function of the index."""

    def __init__(self, item: Callable[[int], Any], length: int = len(X)) -> None:
        self.item, self.length = item, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.item(index)


class Stream(torch_data.IterableDataset[Any]):
    """Items one after the other; counts how often it was begun."""

    def __init__(self, item: Callable[[int], Any] = lambda index: (X[index], index), count: int = len(X)) -> None:
        self.item, self.count, self.begun = item, count, 0

    def __iter__(self) -> Iterator[Any]:
        self.begun += 1
        yield from map(self.item, range(self.count))


class Measured(Stream):
    """A stream that says how many items it has."""

    def __init__(
        self, says: int, item: Callable[[int], Any] = lambda index: (X[index], index), count: int = 20
    ) -> None:
        super().__init__(item, count)
        self.says = says

    def __len__(self) -> int:
        return self.says


def read(given: Any, indices: Sequence[int]) -> Any:
    """Samples of what a user gave, nested as the user's functions get them."""
    samples = open_samples(given)
    out = allocate(samples.source.spec, len(indices))
    samples.source.read(indices, out)
    return samples.structure.nest(out)


GIVEN: dict[str, Any] = {
    "pairs": Items(lambda index: (X[index], index)),
    "mappings": Items(lambda index: {"x": X[index].numpy(), "y": float(index), "even": index % 2 == 0}),
    "single tensors": Items(lambda index: X[index]),
    "nested items": Items(lambda index: {"in": [X[index], (index, np.float32(index))], "out": LABELS[index]}),
    "a TensorDataset": TENSORS,
    "a part of a data set": torch_data.Subset(TENSORS, list(range(19, -1, -1))),
    "a part of a part": torch_data.Subset(torch_data.Subset(TENSORS, range(19, -1, -1)), range(18)),
    "several in a row": torch_data.ConcatDataset([torch_data.Subset(TENSORS, [3, 1, 2]), TENSORS]),
    "a list": [(X[index], index) for index in range(20)],
    "a stream with a length": Measured(20),
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_batches_are_those_of_a_loader_for_the_same_samples(given: Any) -> None:
    indices = [5, 0, 17, 5, 11]
    is_stream = isinstance(given, torch_data.IterableDataset)
    items: Any = list(given) if is_stream else given
    (theirs,) = torch_data.DataLoader(items, batch_size=len(indices), sampler=indices)
    assert_same(read(given, indices), theirs)


def test_the_source_of_a_data_set_keeps_the_contract_of_sources() -> None:
    pairs: Any = [(X[index], index) for index in range(20)]
    check_source(lambda: open_samples(torch_data.Subset(pairs, [4, 2, 9, 7])).source)


def test_parts_of_a_random_split_share_no_sample_and_lose_none() -> None:
    parts = torch_data.random_split(TENSORS, [0.7, 0.3], torch.Generator().manual_seed(3))
    labels = [read(part, range(len(part)))[1].tolist() for part in parts]
    assert [len(each) for each in labels] == [14, 6]
    assert sorted(labels[0] + labels[1]) == list(range(20))
    assert len({open_samples(part).content_sha256 for part in (*parts, TENSORS)}) == 3


def test_tensors_and_arrays_stand_where_they_are_and_are_copied_nowhere() -> None:
    for given in (X, X.numpy(), {"x": X}, (X, LABELS.numpy()), TENSORS, torch_data.Subset(TENSORS, [1, 2])):
        assert stands_in_memory(open_samples(given).source)
    source = open_samples({"x": X}).source
    assert isinstance(source, ArraySource)
    assert source.tensors["x"].data_ptr() == X.data_ptr()
    assert open_samples({"x": X}).content_sha256 != open_samples({"x": X + 1}).content_sha256


def test_a_packed_file_a_source_and_what_makes_data_are_data_too(tmp_path: Path) -> None:
    source = ArraySource({"x": X, "label": LABELS})
    path = pack(source, tmp_path / "packed.h5").path
    for given in (path, str(path), source, lambda: TENSORS, lambda: torch_data.DataLoader(TENSORS), lambda: source):
        values = read(given, [7, 3])
        found = values["x"] if isinstance(values, dict) else values[0]
        assert torch.equal(found, X[[7, 3]])

    class Made(Items):
        def __init__(self) -> None:
            super().__init__(lambda index: X[index])

    assert torch.equal(read(Made, [7, 3]), X[[7, 3]])


def test_a_loader_gives_its_data_set_and_its_batch_size(tmp_path: Path) -> None:
    choices: tuple[dict[str, Any], ...] = ({"shuffle": True}, {"drop_last": True}, {"num_workers": 2})
    for options in choices:
        loader: torch_data.DataLoader[Any] = torch_data.DataLoader(TENSORS, batch_size=6, **options)
        assert find_batch(loader) == 6
        assert torch.equal(read(loader, [7, 3])[0], X[[7, 3]])
    grouped = torch_data.BatchSampler(torch_data.SequentialSampler(TENSORS), 5, drop_last=False)
    assert find_batch(torch_data.DataLoader(TENSORS, batch_sampler=grouped)) == 5
    assert find_batch(TENSORS) is None
    sizes = set()

    def loss(model: nn.Module, batch: Any) -> Tensor:
        sizes.add(len(batch[0]))
        result: Tensor = model(batch[0]).mean()
        return result

    given: Any = torch_data.DataLoader(TENSORS, batch_size=6)
    own = dx.task(model=lambda: nn.Linear(2, 1), data=given, loss=loss)
    run = dx.run(own, epochs=1, out=tmp_path / "run", verbosity="quiet", page=False)
    assert run.metrics[0].batch == 6
    assert sizes == {4, 6}  # four are held out


def collate(items: list[Any]) -> Any:
    return torch_data.default_collate(items)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"collate_fn": collate}, "a DataLoader with a collate_fn of its own"),
        ({"batch_size": None}, "a DataLoader with a collate_fn of its own"),
        ({"sampler": torch_data.WeightedRandomSampler([1.0] * 20, 20)}, "with a WeightedRandomSampler. deepex orders"),
        ({"sampler": torch_data.SubsetRandomSampler([1, 2])}, "with a SubsetRandomSampler. deepex orders samples"),
        (
            {"batch_sampler": torch_data.BatchSampler(torch_data.WeightedRandomSampler([1.0] * 20, 20), 4, False)},
            "with a WeightedRandomSampler. deepex orders",
        ),
        ({"batch_sampler": [[1, 2], [3]]}, "with a list. deepex orders"),
    ],
)
def test_a_loader_that_orders_or_joins_items_its_own_way_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        open_samples(torch_data.DataLoader(TENSORS, **options))
    assert said in str(raised.value)
    assert "ive the data set" in str(raised.value)


def test_a_stream_is_read_once_and_no_further_than_it_says() -> None:
    endless = Measured(5, count=10**9)
    samples = open_samples(endless)
    assert len(samples.source) == 5
    out = allocate(samples.source.spec, 5)
    for _ in range(3):
        samples.source.read(range(5), out)
    assert out["1"].tolist() == [0, 1, 2, 3, 4]
    assert endless.begun == 1


def raise_at(wrong: int) -> Callable[[int], Any]:
    def item(index: int) -> Any:
        if index == wrong:
            raise OSError("the disk is gone")
        return X[index], index

    return item


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Stream(), "data set Stream has no length. Give it a __len__"),
        ((item for item in X), "data set generator has no length"),
        (Measured(20, count=7), "data set Measured says that it has 20 items, and ended after 7"),
        (Measured(20, count=0), "data set Measured says that it has 20 items, and gave none"),
        (Measured(20, raise_at(0)), "item 0 of data set Measured can't be read: OSError in "),
        (Measured(20, raise_at(7)), "item 7 of data set Measured can't be read: OSError in "),
        (Measured(20, lambda index: X[index] if index < 7 else LABELS[index]), "item 7 of data set Measured is unlike"),
        (Measured(10**12), "items of 16 bytes are more than the"),
        (Measured(0), "data set Measured has a length of 0. Give at least one sample to train on and one"),
        (Items(lambda index: X[index], 0), "data set Items has a length of 0"),
        ([], "data set list has a length of 0"),
        (Items(raise_at(0)), "item 0 of data set Items can't be read: OSError in "),
        (Items(lambda index: ("text", X[index])), "'0' of the first item is a str. Allowed: tensors"),
        (5, "data is a int. Allowed: a torch Dataset"),
        (lambda: 5, "data is a int. Allowed: a torch Dataset"),
        ("nothing.h5", "there is no data file nothing.h5"),
        ("nothing.py:data", "there is no file"),
        ({"x": X, "y": [1, 2]}, "data is a mapping of x: Tensor, y: list. Allowed: tensors or NumPy arrays by name"),
        ({}, "data is a mapping of nothing. Allowed: tensors or NumPy arrays by name"),
        ((X, LABELS[:5]), "arrays have {'0': 20, '1': 5} samples"),
        ((torch.tensor(1.0), LABELS), "array '0' is a single number"),
        ((X, np.array(["a"] * 20)), "array '1' is an array of <U1"),
    ],
)
def test_data_that_can_not_be_used_is_told_before_anything_else(given: Any, said: str) -> None:
    with pytest.raises((DataError, ConfigError)) as raised:
        open_samples(given)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("late", "said"),
    [
        (lambda: (X[0][:1], 0), "'0' is float32 of shape (1,), and float32 of shape (2,) in the first item"),
        (lambda: (X[0].double(), 0), "'0' is float64 of shape (2,), and float32 of shape (2,)"),
        (lambda: (X[0], 0.5), "'1' is float64 of shape (), and int64 of shape ()"),
        (lambda: (X[0], "text"), "a str"),
        (lambda: (X[0],), "it is a tuple of 1, and the first item a tuple of 2"),
        (lambda: None, "it is a NoneType, and the first item a tuple of 2"),
    ],
)
def test_an_item_unlike_the_first_is_named(late: Callable[[], Any], said: str) -> None:
    given = Items(lambda index: late() if index == 13 else (X[index], index))
    with pytest.raises(SampleError) as raised:
        read(given, [2, 13])
    assert str(raised.value).startswith(f"item 13 of data set Items is unlike the first: {said}")
    assert "Pad, crop or convert them in the data set" in str(raised.value)


def test_pairs_in_a_list_are_items_and_one_of_another_shape_is_named() -> None:
    pairs = [(torch.zeros(2), torch.zeros(1)) for _ in range(20)]
    assert open_samples(pairs).structure.names() == ["0", "1"]
    pairs[13] = (torch.zeros(3), torch.zeros(1))
    with pytest.raises(SampleError, match=r"item 13 of .* is unlike the first: '0' is float32 of shape \(3,\)"):
        read(pairs, [2, 13])


def test_an_error_of_a_data_set_names_item_file_and_line() -> None:
    with pytest.raises(DataError) as raised:
        read(Items(raise_at(13)), [2, 13])
    assert f"item 13 of data set Items can't be read: OSError in {__file__}, line " in str(raised.value)
    assert "the disk is gone. Look at that item by itself: dataset[13]" in str(raised.value)


def test_a_data_set_that_reads_many_at_once_is_asked_so() -> None:
    asked: list[list[int]] = []

    class Many(Items):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            asked.append(indices)
            return [self.item(index) for index in indices]

    given = Many(lambda index: X[index])
    assert torch.equal(read(given, [9, 4, 4]), X[[9, 4, 4]])
    assert asked[-1] == [9, 4, 4]


DRAWS: dict[str, Callable[[], float]] = {
    "torch": lambda: float(torch.rand(())),
    "numpy": lambda: np.random.rand(),  # noqa: NPY002  # as users' data sets draw
    "random": random.random,
}


def states() -> list[Any]:
    numpy_state: Any = np.random.get_state()  # noqa: NPY002  # as above
    return [torch.get_rng_state().tolist(), random.getstate(), numpy_state[1].tolist(), numpy_state[2:]]


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_data_set_that_draws_gives_other_samples_each_epoch_and_the_same_again(draw: Callable[[], float]) -> None:
    before = states()
    samples = open_samples(torch_data.Subset(Items(lambda index: (float(index), draw())), list(range(1, 20))))
    assert draws(samples.source)

    def epochs(seed: int) -> list[list[float]]:
        plan = Plan.for_rank(DataConfig(batch=19), len(samples.source), seed, World())
        feed = Feed(samples.source, plan, CPU)
        assert feed.start_cache(10**6) == 0
        values = []
        for epoch in range(2):
            batch = feed.batch(epoch, 0)
            values.append(batch["1"][batch["0"].argsort()].tolist())
        return values

    first, second = epochs(0)
    assert not set(first) & set(second)
    assert len(set(first)) == 19  # each sample its own
    assert epochs(0) == [first, second]
    assert epochs(1)[0] != first
    assert states() == before


def test_samples_to_validate_with_are_drawn_the_same_every_time() -> None:
    source = open_samples(Items(lambda index: (index, float(torch.rand(()))))).source
    feed = Feed(source, plan_evaluation(source.spec, len(source), World()), CPU)
    first, second = (feed.batch(0, 0)["1"].tolist() for _ in range(2))
    feed.close()
    assert first == second == feed.batch(0, 0)["1"].tolist()
    assert len(set(first)) == 20


def test_what_is_drawn_belongs_to_the_sample_whatever_the_number_of_ranks() -> None:
    source = open_samples(Items(lambda index: (index, float(torch.rand(()))))).source
    drawn = []
    for size in (1, 2):
        found: dict[int, float] = {}
        for rank in range(size):
            plan = Plan.for_rank(DataConfig(batch=10 // size), len(source), 0, World(rank=rank, size=size))
            feed = Feed(source, plan, CPU)
            for step in range(plan.steps_per_epoch):
                batch = feed.batch(0, step)
                found |= dict(zip(batch["0"].tolist(), batch["1"].tolist(), strict=True))
        drawn.append(found)
    assert len(drawn[0]) == 20
    assert drawn[0] == drawn[1]


def test_a_data_set_that_draws_nothing_is_read_once() -> None:
    times = np.zeros(20, dtype=np.int64)

    def item(index: int) -> Any:
        times[index] += 1
        return X[index]

    source = DatasetSource(Items(item))
    assert not source.draws
    times[:] = 0
    feed = Feed(source, Plan.for_rank(DataConfig(batch=10), 20, 0, World()), CPU)
    assert feed.start_cache(10**6) > 0
    for epoch in range(3):
        for step in range(2):
            feed.batch(epoch, step)
    assert times.tolist() == [1] * 20


def test_runs_on_drawn_samples_repeat_their_bits_and_judge_by_samples_given_apart(tmp_path: Path) -> None:
    def squared(model: nn.Module, batch: Any) -> Tensor:
        return nn.functional.mse_loss(model(batch["x"])[:, 0], batch["y"])

    noisy = Items(lambda index: {"x": X[index] / 40 + 0.1 * torch.randn(2), "y": X[index].mean() / 40})
    held_out = Items(lambda index: {"x": X[index] / 40, "y": X[index].mean() / 40}, 7)

    def train(name: str, **more: Any) -> dx.Run:
        return dx.run(
            model=lambda: nn.Linear(2, 1), data=noisy, validation=held_out, loss=squared, batch_size=5, epochs=2,
            out=tmp_path / name, verbosity="quiet", page=False, **more,
        )  # fmt: skip

    first, again, other = train("a"), train("b"), train("c", seed=1)
    assert first.summary.weights_sha256 == again.summary.weights_sha256 != other.summary.weights_sha256
    assert first.metrics[0].samples == 20  # none is held out
    with torch.no_grad():
        value = float(squared(first.model(), read(held_out, range(7))))
    assert value == pytest.approx(first.summary.value, rel=1e-5)


def test_samples_to_validate_with_are_of_the_same_kind() -> None:
    own = dx.task(
        model=lambda: nn.Linear(2, 1), data=(X, LABELS), validation=(X.double(), LABELS), loss=nn.functional.mse_loss
    )
    with pytest.raises(ConfigError, match=r"0: float64 of shape \(2,\), 1: int64 of shape \(\), and those to train on"):
        own.data()
