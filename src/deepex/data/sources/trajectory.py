"""Molecular trajectories, in any format that MDAnalysis reads, as contact maps: which atoms are near which.

Distances are those of the coordinates as they stand, without periodic images: make molecules whole first. For XTC and
TRR, MDAnalysis keeps an index in a hidden file beside the trajectory. Of most formats it leaves out a last frame that
was not written to its end.
"""

import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import MDAnalysis
import numpy as np
from MDAnalysis.exceptions import NoDataError, SelectionError
from MDAnalysis.lib.distances import self_distance_array
from numpy.typing import NDArray

from deepex.data.source import Indices, Source, as_array
from deepex.data.sources import READERS
from deepex.data.sources.reading.files import damaged, find_beside, list_files
from deepex.data.sources.reading.parts import OpenFiles, Parts
from deepex.errors import ConfigError, DataError, SampleError
from deepex.sample import Batch, Field, SampleSpec

# What MDAnalysis' readers raise for files that are damaged or don't fit their topology. Its XTC decoder does not check
# all that it reads: damage inside a frame may end the process instead.
UNREADABLE = (OSError, ValueError, IndexError, KeyError, TypeError, StopIteration, EOFError, RuntimeError, zlib.error)
# It tells of its next version, and of elements that a file does not name, which no contact map needs.
warnings.filterwarnings("ignore", message="DCDReader currently makes", category=DeprecationWarning)
warnings.filterwarnings("ignore", message="Element information is missing", category=UserWarning)
FRAME_PICOSECONDS = 1.0  # between frames of a format that knows no time, as MDAnalysis takes it


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to take from a trajectory.

    Attributes:
        topology: the file that names the atoms, from here or below the source's folder; needed for DCD, XTC, TRR and
            NCDF, none for PDB, GRO and others that name them themselves.
        selection: the atoms of the contact map, in MDAnalysis' language.
        cutoff_angstrom: atoms nearer than this are in contact.
        every: take each n-th frame.
    """

    topology: str | None = None
    selection: str = "name CA"
    cutoff_angstrom: float = 8.0
    every: int = 1

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ConfigError(f"every = {self.every}. It must be 1 (each frame) or more.")
        if not 0 < self.cutoff_angstrom < float("inf"):
            raise ConfigError(
                f"cutoff_angstrom = {self.cutoff_angstrom:g}. It must be above 0; 8 is usual for C-alpha."
            )
        if not self.selection.strip():
            raise ConfigError("selection is empty. Say which atoms, as in selection=name CA.")


def open_source(path: Path, options: Options) -> Source:
    """The frames of a trajectory file, or of all in a folder that share a topology.

    Example: `open_source(Path("runs"), Options(topology="protein.pdb", every=10))`
    """
    files = list_files(path, READERS["trajectory"].suffixes)
    if options.topology is not None:
        topology = find_beside(options.topology, path)
        options = replace(options, topology=str(topology))
        # Of a folder, the topology itself is no trajectory.
        files = [file for file in files if len(files) == 1 or not file.samefile(topology)]
    return TrajectorySource(path, files, options)


class TrajectorySource:
    """Frames as contact maps."""

    def __init__(self, path: Path, files: Sequence[Path], options: Options) -> None:
        self._options = options
        self._opened = OpenFiles(partial(Frames, options))
        self.spec = SampleSpec()
        self._parts = Parts(files, path, self._inspect)

    def __len__(self) -> int:
        return len(self._parts)

    def name(self, index: int) -> str:
        return self._parts.name(index)

    def read(self, indices: Indices, out: Batch) -> None:
        arrays = {name: as_array(buffer) for name, buffer in out.items()}
        for part, rows, places in self._parts.split(indices):
            frames = self._frames(part.file)
            for row, place in zip(rows.tolist(), places.tolist(), strict=True):
                try:
                    frames.go_to(row * self._options.every)
                except UNREADABLE as error:
                    raise damaged(f"frame {part.sample_name(row)} in {part.file}", error) from error
                if "contact_map" in arrays:
                    arrays["contact_map"][place] = frames.contact_map()
                if "time" in arrays:
                    arrays["time"][place] = frames.time()

    def _frames(self, file: Path) -> "Frames":
        try:
            return self._opened.get(file)
        except UNREADABLE as error:
            topology = f" with topology {self._options.topology}" if self._options.topology else ""
            reason = " ".join(str(error).split())  # MDAnalysis speaks in several lines
            raise SampleError(
                f"{file} can't be read{topology} ({reason}). Give the topology that it was made with, which has the "
                "same atoms (topology=FILE), or copy the file again."
            ) from error

    def _inspect(self, file: Path) -> Sequence[object]:
        """The numbers of a file's frames; the first file that can be read decides how large all maps are."""
        frames = self._frames(file)
        if not self.spec.fields:
            self.spec = _spec(frames.num_atoms, self._options)
        expected = self.spec.fields["contact_map"].shape[0]
        if frames.num_atoms != expected:
            raise SampleError(
                f"{file} has {frames.num_atoms} atoms of '{self._options.selection}', the files before it {expected}. "
                "Leave it out with --skip-bad N, or open it on its own."
            )
        return range(0, frames.num_frames, self._options.every)


class Frames:
    """One trajectory, open, at one of its frames."""

    def __init__(self, options: Options, file: Path) -> None:
        # What the selection does not ask for need not be guessed.
        topology = options.topology or str(file)
        self._universe = MDAnalysis.Universe(topology, str(file), to_guess=())
        self._atoms = _select(self._universe, options, file)
        self._cutoff = options.cutoff_angstrom
        self.num_atoms, self.num_frames = len(self._atoms), len(self._universe.trajectory)
        self._rows, self._columns = np.triu_indices(self.num_atoms, k=1)
        self._distances = np.empty(len(self._rows))

    def close(self) -> None:
        self._universe.trajectory.close()

    def go_to(self, frame: int) -> None:
        self._universe.trajectory[frame]

    def contact_map(self) -> NDArray[np.bool_]:
        """Which atoms are in contact; each is with itself."""
        near = self_distance_array(self._atoms.positions, result=self._distances, backend="serial") < self._cutoff
        contact = np.eye(self.num_atoms, dtype=np.bool_)
        contact[self._rows, self._columns] = contact[self._columns, self._rows] = near
        return contact

    def time(self) -> float:
        """Of this frame, in ps."""
        step = self._universe.trajectory.ts
        return float(step.data.get("time", step.frame * FRAME_PICOSECONDS))


def _select(universe: MDAnalysis.Universe, options: Options, file: Path) -> MDAnalysis.AtomGroup:
    """The atoms of the contact map."""
    source = options.topology or file
    try:
        atoms = universe.select_atoms(options.selection)
    except (SelectionError, NoDataError, AttributeError) as error:  # the last where the topology names nothing
        cure = "" if options.topology else ", or give the file that names the atoms: topology=FILE.pdb"
        raise DataError(
            f"selection '{options.selection}' can't be made in {source} ({error}). "
            f"Correct it (https://docs.mdanalysis.org/stable/documentation_pages/selections.html){cure}."
        ) from error
    if len(atoms) < 2:
        names = sorted(set(getattr(universe.atoms, "names", [])))  # a trajectory alone may name none
        raise DataError(
            f"selection '{options.selection}' finds {len(atoms)} of the {len(universe.atoms)} atoms in {source}; a map "
            f"needs 2. Names there: {', '.join(names[:12]) or 'none'}. Choose with selection=..., or give another "
            "topology=FILE."
        )
    return atoms


def _spec(num_atoms: int, options: Options) -> SampleSpec:
    near = f"atoms of '{options.selection}' within {options.cutoff_angstrom:g} angstrom of each other"
    return SampleSpec(
        fields={
            "contact_map": Field(shape=(num_atoms, num_atoms), dtype="bool", description=near),
            "time": Field(
                shape=(),
                dtype="float32",
                unit="ps",
                description=f"of the frame; frames are {FRAME_PICOSECONDS:g} ps apart where the format knows no time",
            ),
        }
    )
