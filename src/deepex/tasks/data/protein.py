"""Making the protein's data set: plan trajectories, simulate those that are missing, measure them, pack them."""

import hashlib
import json
import os
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepex.data import ArraySource
from deepex.data.packing.block import explained_writing
from deepex.data.packing.pack import Packed, Tell, follow_starter, pack
from deepex.data.packing.packed import PackedSource
from deepex.errors import DataError, UsageError, unknown
from deepex.files import write_whole
from deepex.sample import Field
from deepex.science import protein
from deepex.science.protein import Frames, Trajectory
from deepex.tasks.data.make import MakeOptions
from deepex.tasks.protein import packaged_file

UNITS = {"temperature": "K", "radius_of_gyration": "angstrom", "rmsd": "angstrom"}
WORDS = {
    "contact_map": "C-alpha atoms within 8 angstrom",
    "temperature": "of the simulation",
    "radius_of_gyration": "all atoms",
    "rmsd": "C-alpha atoms, to the folded structure, after superposition",
    "native_fraction": "share of the folded structure's contacts between residues 3 or more apart",
    "trajectory": "index into the trajectories attribute",
}


@dataclass(frozen=True, kw_only=True)
class ProteinData:
    """What to make: how many frames of each trajectory, and a PDB file to start from too (none: only built starts)."""

    structure: str | None = None
    frames: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.frames < 1:
            raise DataError(f"frames={self.frames}. Allowed: whole numbers from 1.")
        if self.structure is not None and not Path(self.structure).is_file():
            raise DataError(f"there is no structure {self.structure}. Give a .pdb file, or leave structure= out.")

    @classmethod
    def of_size(cls, size: str) -> "ProteinData":
        """The paper's network learns from the same frames as the small one."""
        if size not in ("small", "paper"):
            raise DataError(unknown("size", size, ("small", "paper")))
        return cls()

    @property
    def structure_path(self) -> Path | None:
        return None if self.structure is None else Path(self.structure)

    def make(self, out: Path, options: MakeOptions) -> Packed:
        """Make the data set, a trajectory a rank at a time, on this node.

        Finished parts stay beside the file, in `OUT.parts`, until it is complete: the same settings go on from there.
        """
        if options.fabric is not None and options.fabric.world.size > 1:
            raise UsageError("trajectories are simulated on one node. Start deepex data make protein as one rank.")
        structure = self.structure_path
        if structure is not None and (found := len(protein.folded_trace(structure))) != len(protein.SEQUENCE):
            raise DataError(
                f"{structure} has {found} residues, BBA has {len(protein.SEQUENCE)}. Give that protein's (PDB 1FME)."
            )
        parts = out.with_name(out.name + ".parts")
        trajectories = protein.plan(folded=structure is not None, frames=self.frames, seed=self.seed)
        with explained_writing(out):
            _claim(parts, structure, trajectories)
            _simulate(parts, options.ranks, structure, trajectories, options.tell)
        reference = _folded_trace(parts, trajectories)
        measured = [protein.measure(parts / t.name, reference) for t in trajectories]
        attributes = _provenance(structure, trajectories, reference)
        packed = pack(_frames(trajectories, measured), parts / "packed.h5", attributes=attributes)
        os.replace(packed.path, out)
        for folder in [*(parts / t.name for t in trajectories), parts]:
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
        return replace(packed, path=out)

    def write_pictures(self, folder: Path, options: MakeOptions) -> None:
        raise UsageError("contact maps are no pictures. Leave --png out.")


def _frames(trajectories: list[Trajectory], measured: list[Frames]) -> ArraySource:
    """All frames as one source, named by trajectory and number."""
    counts = [len(frames.rmsd) for frames in measured]
    temperatures = np.asarray([t.temperature_kelvin for t in trajectories], dtype=np.float32)
    arrays: dict[str, NDArray[Any]] = {
        name: np.concatenate([getattr(frames, name) for frames in measured])
        for name in ("contact_map", "radius_of_gyration", "rmsd", "native_fraction")
    }
    arrays["temperature"] = np.repeat(temperatures, counts)
    arrays["trajectory"] = np.repeat(np.arange(len(trajectories), dtype=np.int32), counts)
    fields = {
        name: Field(shape=array.shape[1:], dtype=str(array.dtype), unit=UNITS.get(name, ""), description=WORDS[name])
        for name, array in arrays.items()
    }
    names = [f"{t.name}:{number}" for t, count in zip(trajectories, counts, strict=True) for number in range(count)]
    return ArraySource(arrays, fields, names)


def _claim(parts: Path, structure: Path | None, trajectories: list[Trajectory]) -> None:
    """Make the folder of parts, or check that it belongs to the same order."""
    plan = json.dumps({"structure": _sha256(structure), "plan": [asdict(t) for t in trajectories]}, indent=1)
    written = parts / "plan.json"
    parts.mkdir(parents=True, exist_ok=True)
    if not written.exists():
        write_whole(written, plan)
    if written.read_text() != plan:
        raise DataError(
            f"{parts} holds the parts of a data set with other settings. Repeat those to go on with it, delete it, "
            "or choose another --out."
        )


def _simulate(parts: Path, jobs: int, structure: Path | None, trajectories: list[Trajectory], tell: Tell) -> None:
    """Run what is missing, one core a trajectory."""
    total = sum(t.frames for t in trajectories)

    def count() -> int:
        done = (len(protein.finished_parts(parts / t.name)) * protein.FRAMES_PER_PART for t in trajectories)
        return min(total, sum(done))

    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=follow_starter)
    try:
        running = {pool.submit(protein.simulate, t, parts / t.name, protein.SEQUENCE, structure) for t in trajectories}
        while running:
            done, running = wait(running, timeout=1.0)
            for future in done:
                future.result()
            tell(count(), total)
    finally:
        pool.shutdown(cancel_futures=True)


def _folded_trace(parts: Path, trajectories: list[Trajectory]) -> NDArray[np.float32]:
    """What frames are measured against: the first folded start at its energy minimum, or the packaged data set's."""
    folded = [t for t in trajectories if t.start == "folded"]
    if folded:
        return protein.folded_trace(parts / folded[0].name / "start.pdb")
    return np.asarray(PackedSource(packaged_file()).attributes["folded_trace"], dtype=np.float32)


def _provenance(
    structure: Path | None, trajectories: list[Trajectory], reference: NDArray[np.float32]
) -> dict[str, Any]:
    return {
        "title": "C-alpha contact maps of the designed protein BBA (FSD-EY) from implicit-solvent molecular dynamics",
        "sequence": protein.SEQUENCE,
        "contact_angstrom": protein.CONTACT_ANGSTROM,
        "force_field": "ff14SB, OBC2 implicit solvent, 1.6 nm cut-off, hydrogen mass 2 u",
        "timestep_picoseconds": protein.TIMESTEP_PICOSECONDS,
        "trajectories": [asdict(t) for t in trajectories],
        "structure": {"file": structure.name, "sha256": _sha256(structure)} if structure else None,
        "folded_trace": [[round(float(x), 3) for x in row] for row in reference],
        "versions": {name: metadata.version(name) for name in ("deepex", "openmm", "MDAnalysis", "PeptideBuilder")},
    }


def _sha256(path: Path | None) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path else None
