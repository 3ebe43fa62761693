"""Doing something together: what goes wrong on one rank is raised on all, so that none waits for one that has left.

It knows the protocol of a fabric alone.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from deepex.errors import DeepexError
from deepex.fabric.fabric import Fabric

V = TypeVar("V")


def together(fabric: Fabric, what: Callable[[], V]) -> V:
    """Do something on each rank, and raise the first error of any rank on all of them.

    >>> from deepex.fabric import SoloFabric
    >>> from deepex.world import World
    >>> together(SoloFabric(World()), lambda: 3)
    3
    """
    outcome: V | None = None
    problem: DeepexError | None = None
    try:
        outcome = what()
    except DeepexError as error:
        problem = error
    for each in fabric.gather(problem):
        if each is not None:
            raise each
    return cast(V, outcome)


def from_first(fabric: Fabric, what: Callable[[], V]) -> V:
    """Do something on rank 0 alone, and give all ranks what came of it, its error too."""
    outcome = together(fabric, lambda: what() if fabric.world.is_first else None)
    return cast(V, fabric.gather(outcome)[0])
