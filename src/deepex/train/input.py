"""What a rank trains and is judged on: the task's samples, planned, staged, cached and fed as the recipe says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepex import sync as strategies
from deepex.data import ArraySource, Feed, Plan, Splits, Subset
from deepex.data.dataset import DatasetSource
from deepex.data.feeding.cache import room_for_samples
from deepex.data.feeding.plan import class_weights
from deepex.data.packing.packed import PackedSource
from deepex.data.source import Source, read_field
from deepex.data.staging import Staged, stage_splits
from deepex.diagnosis.evidence import Storage
from deepex.errors import ConfigError, DataError, unknown
from deepex.fabric import Fabric
from deepex.record.sinks.progress import Listener
from deepex.train.evaluate import plan_evaluation
from deepex.train.recipe import Recipe
from deepex.train.task import expect
from deepex.world import World


class Input:
    """The samples of one rank: a feed to train from, and one to evaluate from.

    Arguments:
        splits: from `open_data`.
        listener: told what is staged and cached.
    """

    def __init__(self, recipe: Recipe, splits: Splits, fabric: Fabric, listener: Listener) -> None:
        self.recipe, self.world = recipe, fabric.world
        _compare_data(splits, fabric)
        plan = plan_rank(recipe, splits, self.world)
        if recipe.data.stage is not None:
            splits, sentence = stage_splits(splits, Path(recipe.data.stage), plan, fabric)
            listener.say(sentence)
        self.splits, device = splits, self.world.torch_device
        self.steps = plan.steps_per_epoch if self.world.rank < _num_training_ranks(recipe, self.world.size) else 0
        self.feed = Feed(splits.train, plan, device, splits.preparation)
        prepared = splits.preparation.spec(splits.validation.spec)
        judged_by = plan_evaluation(prepared, len(splits.validation), self.world)
        self.validation = Feed(splits.validation, judged_by, device, splits.preparation)

    @property
    def storage(self) -> Storage:
        """Where the samples to train on are."""
        source = self.splits.train
        while isinstance(source, Subset):
            source = source.source
        given = isinstance(source, ArraySource | DatasetSource)
        return "packed" if isinstance(source, PackedSource | Staged) else "given" if given else "files"

    def begin(self) -> None:
        """Cache samples from here on, in the memory that a step's trial has left; those to train on come first."""
        room = room_for_samples(self.recipe.data.memory_gib, self.world.local_size) - self.validation.buffer_bytes
        self.validation.start_cache(room - self.feed.start_cache(room))

    def say_cached(self, listener: Listener) -> None:
        """Say how much is cached; nothing of what stood in memory from the start."""
        caches = {"training": self.feed.cache, "validation": self.validation.cache}
        needed = {"training": self.feed.plan.owned(), "validation": self.validation.plan.owned()}
        told = [
            f"{'all' if cache.capacity == len(needed[name]) else f'{cache.capacity:,} of'} {len(needed[name]):,} {name}"
            for name, cache in caches.items()
            if cache is not None
        ]
        size = sum(cache.num_bytes for cache in caches.values() if cache is not None) / 2**20
        if told:
            samples = " and ".join(told)
            listener.say(f"keeping {samples} samples in memory as they come, {size:,.1f} MiB on this rank")


def open_data(recipe: Recipe) -> Splits:
    """Open a task's data, and find what would fail later: splits without samples, more ranks than samples."""
    splits = expect(recipe.task.data(), Splits, "data()")
    check_data(recipe, splits)
    return splits


def check_data(recipe: Recipe, splits: Splits) -> None:
    """Refuse data that a recipe can't train on."""
    num_train, num_validation = len(splits.train), len(splits.validation)
    if not num_train or not num_validation:
        raise DataError(
            f"task '{recipe.task.name}' has {num_train:,} samples to train on and {num_validation:,} to validate with. "
            "Needed: at least 1 of each. Give more samples, or hold back another share of them for validation."
        )
    plan_rank(recipe, splits, World(size=recipe.world.ranks))
    splits.preparation.spec(splits.train.spec)


def describe_data(splits: Splits) -> dict[str, Any]:
    """What the record says of the data."""
    return {"data_sha256": splits.content_sha256, "data_left_out": dict(splits.left_out)}


def plan_rank(recipe: Recipe, splits: Splits, world: World) -> Plan:
    """Which samples a rank reads when; one that does not train is given another's place, and never reads."""
    num_training_ranks = _num_training_ranks(recipe, world.size)
    world = replace(world, rank=min(world.rank, num_training_ranks - 1), size=num_training_ranks)
    plan = Plan.for_rank(recipe.data, len(splits.train), recipe.seed, world)
    return plan if recipe.data.balance is None else replace(plan, weights=_weights(splits.train, recipe.data.balance))


def _num_training_ranks(recipe: Recipe, num_ranks: int) -> int:
    return strategies.parse(recipe.sync).num_training_ranks(num_ranks)


def _compare_data(splits: Splits, fabric: Fabric) -> None:
    """Refuse to train where ranks have opened different data."""
    found = fabric.gather((splits.content_sha256, fabric.world.host))
    for rank, (digest, host) in enumerate(found):
        if digest != found[0][0]:
            raise DataError(
                f"rank {rank} on {host} has other data than rank 0 on {found[0][1]}: sha256 {digest[:16]} against "
                f"{found[0][0][:16]}. Give all ranks the same files, and pack them once; seed random numbers that data "
                "is made of."
            )


def _weights(source: Source, field: str) -> NDArray[np.float64]:
    """Weights by class, from the field that holds the classes."""
    if field not in source.spec.fields:
        raise ConfigError("data.balance: " + unknown("field", field, source.spec.fields))
    found = source.spec.fields[field]
    if found.shape or found.dtype not in ("int64", "int32", "int16", "int8", "uint8", "bool"):
        raise ConfigError(
            f"data.balance={field}, which has shape {found.shape} and dtype {found.dtype}. Allowed: a field with one "
            "whole number a sample, its class."
        )
    return class_weights(read_field(source, field).astype(np.int64))
