"""What a rank trains and is judged on: the task's samples, planned, staged, kept and fed as the recipe says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepex import sync as strategies
from deepex.data import Feed, Plan, Preparer, Splits
from deepex.data.feeding.cache import room_for_samples
from deepex.data.feeding.plan import class_weights
from deepex.data.source import Source, read_field
from deepex.data.staging import stage_splits
from deepex.errors import ConfigError, DataError, unknown
from deepex.fabric import Fabric
from deepex.record.sinks.progress import Listener
from deepex.train.recipe import Recipe
from deepex.world import World


class Input:
    """The samples of one rank: a feed to train from, and those it is judged on."""

    def __init__(self, recipe: Recipe, fabric: Fabric, listener: Listener) -> None:
        self.recipe, self.world = recipe, fabric.world
        splits = recipe.task.data()
        _compare_data(splits, fabric)
        plan = plan_rank(recipe, splits, self.world)
        if recipe.data.stage is not None:
            splits, sentence = stage_splits(splits, Path(recipe.data.stage), plan, fabric)
            listener.say(sentence)
        self.steps = plan.steps_per_epoch if self.world.rank < _trainers(recipe, self.world.size) else 0
        self.feed = Feed(splits.train, plan, self.world.torch_device, splits.preparation)
        self.validation = Preparer(splits.validation, splits.preparation)

    def begin(self) -> None:
        """Keep samples from here on, in the memory that a step's trial has left."""
        self.feed.keep(room_for_samples(self.recipe.data.memory_gib, self.world.local_size))

    def tell_kept(self, listener: Listener) -> None:
        """Say how much is kept; nothing if all stood in memory from the start."""
        kept = self.feed.kept
        if kept is None:
            return
        needed = len(self.feed.plan.owned())
        size = kept.capacity * kept.spec.num_bytes / 2**20
        share = "all" if kept.capacity == needed else f"{kept.capacity:,} of"
        listener.say(f"keeping {share} {needed:,} samples in memory as they come, {size:,.1f} MiB on this rank")


def check_data(recipe: Recipe) -> dict[str, Any]:
    """Find what would fail later: data that can't be opened, more ranks than samples. Returns what the record keeps."""
    splits = recipe.task.data()
    plan_rank(recipe, splits, World(size=recipe.world.ranks))
    splits.preparation.spec(splits.train.spec)
    return {"data_sha256": splits.content_sha256, "data_left_out": dict(splits.left_out)}


def plan_rank(recipe: Recipe, splits: Splits, world: World) -> Plan:
    """Which samples a rank reads when; one that does not train is given another's place, and never reads."""
    trainers = _trainers(recipe, world.size)
    world = replace(world, rank=min(world.rank, trainers - 1), size=trainers)
    plan = Plan.for_rank(recipe.data, len(splits.train), recipe.seed, world)
    return plan if recipe.data.balance is None else replace(plan, weights=_weights(splits.train, recipe.data.balance))


def _trainers(recipe: Recipe, num_ranks: int) -> int:
    return strategies.parse(recipe.sync).trainers(num_ranks)


def _compare_data(splits: Splits, fabric: Fabric) -> None:
    """Refuse to train where ranks have opened different data."""
    found = fabric.gather((splits.content_sha256, fabric.world.host))
    for rank, (digest, host) in enumerate(found):
        if digest != found[0][0]:
            raise DataError(
                f"rank {rank} on {host} has other data than rank 0 on {found[0][1]}: sha256 {digest[:16]} against "
                f"{found[0][0][:16]}. Give all ranks the same files, and pack them once."
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
