"""Making a task's own data: simulations that a packer reads as it reads files, and the table of what can be made.

A simulation whose samples follow from its settings alone is a source like any other. So ranks share its samples, a
stopped one goes on, and the same settings give the same file, byte for byte.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from deepex.data import Source
from deepex.data.packing.image_tree import write_tree
from deepex.data.packing.job import silent
from deepex.data.packing.pack import PackConfig, Packed, Tell, pack
from deepex.errors import UsageError, unknown
from deepex.fabric import Fabric
from deepex.tasks.data.atomai import AtomaiData
from deepex.tasks.data.cosmoflow import CosmoflowData
from deepex.tasks.data.imagenet import ImagenetData
from deepex.tasks.data.protein import ProteinData


class Simulation(Protocol):
    """The settings of a data set whose samples can be computed in any order; a frozen dataclass."""

    @property
    def group(self) -> int:
        """How many neighbouring samples come from one computation."""

    @property
    def core_seconds(self) -> float:
        """What all of it takes on one core, roughly, by rates that were measured."""

    def source(self) -> Source:
        """The samples, each computed when it is read."""

    def attributes(self) -> dict[str, Any]:
        """Where the data comes from, for the packed file."""


@runtime_checkable
class SelfMade(Protocol):
    """A task that makes its data set where there is none."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> Path:
        """Where the data set stands, or will stand."""

    @property
    def making(self) -> Simulation:
        """What to make."""


MAKERS: dict[str, Callable[[str], Any]] = {
    "atomai": AtomaiData.of_size,
    "cosmoflow": CosmoflowData.of_size,
    "imagenet": ImagenetData.of_size,
    "protein": ProteinData.of_size,
}


def data_settings(name: str, size: str) -> Any:
    """The settings of a task's data set of a size, a dataclass that `key=value` can change."""
    if name not in MAKERS:
        raise UsageError(unknown("data set", name, MAKERS))
    return MAKERS[name](size)


def make_data(
    settings: Any, out: Path, *, ranks: int = 1, skip_bad: int = 0, tell: Tell = silent, fabric: Fabric | None = None
) -> Packed:
    """Make a data set by so many ranks of this machine, or by those of a launcher; what was done before is kept.

    `skip_bad` samples may be left out since they can't be used, as where they come from files.
    """
    with _told_what_is_missing():
        if isinstance(settings, ProteinData):
            if fabric is not None and fabric.world.size > 1:
                raise UsageError("trajectories are simulated on one node. Start deepex data make protein as one rank.")
            return settings.make(out, ranks, tell)
        simulation: Simulation = settings
        config = PackConfig(ranks=ranks, group=simulation.group, skip_bad=skip_bad)
        return pack(simulation.source(), out, config, attributes=simulation.attributes(), tell=tell, fabric=fabric)


def write_pictures(
    settings: Any, folder: Path, *, ranks: int = 1, tell: Tell = silent, fabric: Fabric | None = None
) -> None:
    """Make a data set of images as a tree of PNG files instead; pictures that are there are not made again."""
    if isinstance(settings, ProteinData):
        raise UsageError("contact maps are no pictures. Leave --png out.")
    simulation: Simulation = settings
    with _told_what_is_missing():
        write_tree(simulation.source(), folder, ranks=ranks, group=simulation.group, tell=tell, fabric=fabric)


@contextmanager
def _told_what_is_missing() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{error.name} is missing. Install the simulators with: pip install 'deepex[science]'"
        ) from error
