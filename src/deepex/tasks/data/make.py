"""Making a task's own data set: what can make one, and by whom. It knows no task.

A simulation whose samples follow from its settings alone is a source like any other. So ranks share its samples, a
stopped one goes on, and the same settings give the same file, byte for byte.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from deepex.data import Source
from deepex.data.packing.image_tree import write_image_tree
from deepex.data.packing.job import silent
from deepex.data.packing.pack import PackConfig, Packed, Tell, pack
from deepex.errors import UsageError
from deepex.fabric import Fabric


@dataclass(frozen=True, kw_only=True)
class MakeOptions:
    """By whom a data set is made, and how.

    Attributes:
        ranks: processes of this machine; those of a launcher bring their `fabric` instead.
        skip_bad: samples that may be left out since they can't be used, as where they come from files.
        tell: called with what is done and what there is to do.
    """

    ranks: int = 1
    skip_bad: int = 0
    tell: Tell = silent
    fabric: Fabric | None = None


class DataMaker(Protocol):
    """The settings of a data set that can be made: a frozen dataclass, which `key=value` can change."""

    def make(self, out: Path, options: MakeOptions) -> Packed:
        """Make the packed file; what was done before is kept."""

    def write_pictures(self, folder: Path, options: MakeOptions) -> None:
        """Make a tree of PNG files instead; pictures that are there are not made again."""


class SampleMaker(ABC):
    """A maker whose samples can be computed in any order, so that a packer reads them as it reads files."""

    @property
    @abstractmethod
    def group(self) -> int:
        """How many neighbouring samples come from one computation."""

    @property
    @abstractmethod
    def core_seconds(self) -> float:
        """What all of it takes on one core, roughly, by rates that were measured."""

    @abstractmethod
    def source(self) -> Source:
        """The samples, each computed when it is read."""

    @abstractmethod
    def attributes(self) -> dict[str, Any]:
        """Where the data comes from, for the packed file."""

    def make(self, out: Path, options: MakeOptions) -> Packed:
        config = PackConfig(ranks=options.ranks, group=self.group, skip_bad=options.skip_bad)
        attributes, tell, fabric = self.attributes(), options.tell, options.fabric
        return pack(self.source(), out, config, attributes=attributes, tell=tell, fabric=fabric)

    def write_pictures(self, folder: Path, options: MakeOptions) -> None:
        ranks, tell, fabric = options.ranks, options.tell, options.fabric
        write_image_tree(self.source(), folder, ranks=ranks, group=self.group, tell=tell, fabric=fabric)


@runtime_checkable
class SelfMade(Protocol):
    """A task that makes its data set where there is none."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> Path:
        """Where the data set stands, or will stand."""

    @property
    def making(self) -> SampleMaker:
        """What to make."""


def make_data(maker: DataMaker, out: Path, options: MakeOptions | None = None) -> Packed:
    """Make a data set; a simulator that is not installed is an error that says how to get it."""
    with _told_what_is_missing():
        return maker.make(out, options or MakeOptions())


def write_pictures(maker: DataMaker, folder: Path, options: MakeOptions | None = None) -> None:
    """Make a data set of images as a tree of PNG files."""
    with _told_what_is_missing():
        maker.write_pictures(folder, options or MakeOptions())


@contextmanager
def _told_what_is_missing() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{error.name} is missing. Install the simulators with: pip install 'deepex[science]'"
        ) from error
