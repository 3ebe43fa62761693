"""Molecular dynamics of a small protein, and what its frames look like as contact maps.

OpenMM runs ff14SB with the OBC2 implicit solvent on one core a trajectory; MDAnalysis measures the frames.
A trajectory is written in parts, each with the integrator's state, so a killed simulation goes on where it stood.
Nothing here knows of data files, tasks or training.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepex.errors import DataError
from deepex.files import replacing

SEQUENCE = "EQYTAKYKGRTFRNEKELRDFIEKFKGR"  # FSD-EY, the designed beta-beta-alpha protein (BBA, PDB entry 1FME)
CONTACT_ANGSTROM = 8.0
TIMESTEP_PICOSECONDS = 0.004  # hydrogens weigh 2 u and their bonds are rigid, so 4 fs holds
FRAMES_PER_PART = 50
MIN_SEQUENCE_DISTANCE = 3  # nearer neighbours touch in every state and say nothing of the fold

# Backbone dihedrals (phi, psi) in degrees by letter: strand, helix, and the two corners of a type II' turn.
DIHEDRALS = {"E": (-120.0, 130.0), "H": (-57.0, -47.0), "t": (60.0, -120.0), "u": (-80.0, 0.0), "x": (-180.0, 180.0)}
EXTENDED, HELIX = "x", "H"
HAIRPIN = "EEEEEEEtuEEEExxxxxxxxxxxxxxx"
HAIRPIN_AND_HELIX = "EEEEEEEtuEEEEHHHHHHHHHHHHHHx"


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """One simulation: where it starts, how hot it is, whether it is held back for validation.

    `start` is `folded` (a model of the given structure) or a string of backbone letters, one a residue (one letter
    alone stands for the whole chain).
    """

    name: str
    start: str
    temperature_kelvin: float
    validation: bool = False
    model: int = 0
    frames: int = 1000
    steps_per_frame: int = 60
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Frames:
    """What was measured on the frames of one trajectory; F frames, R residues."""

    contact_map: NDArray[np.bool_]  # F x R x R
    radius_of_gyration: NDArray[np.float32]  # F, angstrom
    rmsd: NDArray[np.float32]  # F, angstrom, C-alpha, to the folded structure
    native_fraction: NDArray[np.float32]  # F, share of the folded structure's contacts


def plan(*, folded: bool, frames: int, seed: int) -> list[Trajectory]:
    """The trajectories of the standard data set: folded ones that stay or melt, others that collapse or re-form.

    Without a folded structure to start from, only the built starts remain. Hot and cold, folded and built starts
    are each represented among the validation trajectories.
    """
    kelvins = (300.0, 300.0, 330.0, 360.0, 390.0, 420.0, 450.0, 450.0)
    melting = [
        Trajectory(name=f"folded-{i}", start="folded", model=i, temperature_kelvin=k, validation=i in (3, 7))
        for i, k in enumerate(kelvins)
    ]
    built = [
        Trajectory(name="partial-0", start=HAIRPIN_AND_HELIX, temperature_kelvin=300.0),
        Trajectory(name="extended-0", start=EXTENDED, temperature_kelvin=300.0),
        Trajectory(name="partial-1", start=HAIRPIN_AND_HELIX, temperature_kelvin=350.0, validation=True),
        Trajectory(name="extended-1", start=EXTENDED, temperature_kelvin=375.0, validation=True),
        Trajectory(name="helix-0", start=HELIX, temperature_kelvin=350.0),
        Trajectory(name="hairpin-0", start=HAIRPIN, temperature_kelvin=350.0),
        Trajectory(name="partial-2", start=HAIRPIN_AND_HELIX, temperature_kelvin=400.0),
        Trajectory(name="extended-2", start=EXTENDED, temperature_kelvin=450.0),
    ]
    chosen = melting + built if folded else built
    return [replace(t, frames=frames, seed=seed + 1 + i) for i, t in enumerate(chosen)]


def build_peptide(sequence: str, letters: str) -> tuple[Any, Any]:
    """Topology and positions of a chain built from its sequence with the backbone angles that `letters` name."""
    import io

    import PeptideBuilder
    from Bio.PDB.PDBIO import PDBIO
    from openmm import app

    per_residue = letters * len(sequence) if len(letters) == 1 else letters
    if len(per_residue) != len(sequence):
        raise DataError(
            f"{len(letters)} backbone letters for a chain of {len(sequence)} residues. "
            "Give one letter a residue, or one for the whole chain."
        )
    angles = [DIHEDRALS[letter] for letter in per_residue]
    # PeptideBuilder wants residue i's phi with residue i-1's psi.
    chain = PeptideBuilder.make_structure(sequence, [a[0] for a in angles[1:]], [a[1] for a in angles[:-1]])
    PeptideBuilder.add_terminal_OXT(chain)
    writer, text = PDBIO(), io.StringIO()
    writer.set_structure(chain)
    writer.save(text)
    text.seek(0)
    pdb = app.PDBFile(text)
    return pdb.topology, pdb.positions


def read_structure(path: Path, model: int) -> tuple[Any, Any]:
    """Topology and positions of one model of a PDB file (model numbers wrap around)."""
    from openmm import app

    try:
        with open(path) as file:
            pdb = app.PDBFile(file)
        return pdb.topology, pdb.getPositions(frame=model % pdb.getNumFrames())
    except (AssertionError, ValueError, KeyError, IndexError, OSError) as error:  # OpenMM raises any of them
        raise DataError(
            f"{path} can't be read as a PDB structure ({error}). Give a .pdb file with one protein chain."
        ) from error


def _simulation(trajectory: Trajectory, sequence: str, structure: Path | None) -> Any:
    """An OpenMM simulation at its start: hydrogens added, forces and solvent set, energy not yet minimised."""
    import openmm
    from openmm import app
    from openmm.app.internal.customgbforces import GBSAOBC2Force

    if trajectory.start == "folded":
        if structure is None:
            raise DataError(f"trajectory '{trajectory.name}' starts folded. Give the structure: --structure FILE.pdb")
        topology, positions = read_structure(structure, trajectory.model)
    else:
        topology, positions = build_peptide(sequence, trajectory.start)
    force_field = app.ForceField("amber14/protein.ff14SB.xml")
    modeller = app.Modeller(topology, positions)
    modeller.delete([atom for atom in modeller.topology.atoms() if atom.element.symbol == "H"])
    modeller.addHydrogens(force_field, pH=7.0)
    system = force_field.createSystem(
        modeller.topology,
        nonbondedMethod=app.CutoffNonPeriodic,
        nonbondedCutoff=1.6,
        constraints=app.HBonds,
        hydrogenMass=2.0,
    )
    charges = next(force for force in system.getForces() if isinstance(force, openmm.NonbondedForce))
    charges.setReactionFieldDielectric(1.0)  # the solvent is the next force's business
    # OpenMM's native force is 5 to 10 times faster than the same model from an XML file.
    solvent = openmm.GBSAOBCForce()
    solvent.setNonbondedMethod(openmm.GBSAOBCForce.CutoffNonPeriodic)
    solvent.setCutoffDistance(1.6)
    for index, (radius, scale) in enumerate(GBSAOBC2Force.getStandardParameters(modeller.topology)):
        solvent.addParticle(charges.getParticleParameters(index)[0], radius, scale)
    system.addForce(solvent)
    integrator = openmm.LangevinMiddleIntegrator(trajectory.temperature_kelvin, 1.0, TIMESTEP_PICOSECONDS)
    integrator.setRandomNumberSeed(trajectory.seed)
    platform = openmm.Platform.getPlatformByName("CPU")
    properties = {"Threads": "1", "DeterministicForces": "true"}
    simulation = app.Simulation(modeller.topology, system, integrator, platform, properties)
    simulation.context.setPositions(modeller.positions)
    return simulation


def simulate(trajectory: Trajectory, folder: Path, sequence: str, structure: Path | None) -> None:
    """Run a trajectory, or the rest of it, into `folder`: `start.pdb` and `part00000.npz`, `part00001.npz`, ...

    Each part holds positions in angstrom (F x atoms x 3, float32) and the state to go on from, bit for bit.
    """
    from openmm import app, unit

    folder.mkdir(parents=True, exist_ok=True)
    simulation = _simulation(trajectory, sequence, structure)
    done = finished_parts(folder)
    if done:
        with np.load(done[-1]) as part:
            simulation.context.loadCheckpoint(part["state"].tobytes())
    else:
        simulation.minimizeEnergy(maxIterations=1000)
        simulation.context.setVelocitiesToTemperature(trajectory.temperature_kelvin, trajectory.seed)
        start = simulation.context.getState(positions=True)
        with open(folder / "start.pdb", "w") as file:
            app.PDBFile.writeFile(simulation.topology, start.getPositions(), file)
    first = len(done) * FRAMES_PER_PART
    for part_start in range(first, trajectory.frames, FRAMES_PER_PART):
        positions = []
        for _ in range(min(FRAMES_PER_PART, trajectory.frames - part_start)):
            simulation.step(trajectory.steps_per_frame)
            state = simulation.context.getState(positions=True)
            positions.append(state.getPositions(asNumpy=True).value_in_unit(unit.angstrom).astype(np.float32))
        if not np.isfinite(positions[-1]).all():
            raise DataError(f"trajectory '{trajectory.name}' blew up after frame {part_start}. Start it cooler.")
        checkpoint = simulation.context.createCheckpoint()
        target = folder / f"part{part_start // FRAMES_PER_PART:05d}.npz"
        with replacing(target) as temporary, open(temporary, "wb") as file:
            np.savez(file, positions=np.stack(positions), state=np.frombuffer(checkpoint, dtype=np.uint8))
        # Every part begins with new neighbour lists, whether the simulation was interrupted there or not.
        simulation.context.reinitialize()
        simulation.context.loadCheckpoint(checkpoint)


def finished_parts(folder: Path) -> list[Path]:
    """The parts of a trajectory that are complete."""
    return sorted(folder.glob("part*.npz"))


def measure(folder: Path, reference: NDArray[np.float32]) -> Frames:
    """Contact maps and order parameters of a trajectory's frames; `reference` is the folded C-alpha trace (R x 3)."""
    import MDAnalysis
    from MDAnalysis.analysis.distances import self_distance_array
    from MDAnalysis.analysis.rms import rmsd

    parts = []
    for path in finished_parts(folder):
        with np.load(path) as part:
            parts.append(part["positions"])
    universe = MDAnalysis.Universe(str(folder / "start.pdb"), np.concatenate(parts), to_guess=("masses",))
    trace = universe.select_atoms("name CA")
    residues = len(trace)
    if reference.shape != (residues, 3):
        raise DataError(f"the folded structure has {len(reference)} residues, the simulated chain {residues}.")
    rows, columns = np.triu_indices(residues, k=1)
    far = columns - rows >= MIN_SEQUENCE_DISTANCE
    native = (self_distance_array(reference) < CONTACT_ANGSTROM) & far
    maps, gyration, deviation, fraction = [], [], [], []
    for _ in universe.trajectory:
        touching = self_distance_array(trace.positions) < CONTACT_ANGSTROM
        contact = np.eye(residues, dtype=np.bool_)
        contact[rows, columns] = contact[columns, rows] = touching
        maps.append(contact)
        gyration.append(universe.atoms.radius_of_gyration())
        deviation.append(rmsd(trace.positions, reference, center=True, superposition=True))
        fraction.append(touching[native].mean())
    return Frames(
        contact_map=np.stack(maps),
        radius_of_gyration=np.asarray(gyration, dtype=np.float32),
        rmsd=np.asarray(deviation, dtype=np.float32),
        native_fraction=np.asarray(fraction, dtype=np.float32),
    )


def folded_trace(structure: Path) -> NDArray[np.float32]:
    """The C-alpha positions (R x 3, angstrom) of a structure's first model."""
    from openmm import unit

    topology, positions = read_structure(structure, 0)
    trace = [atom.index for atom in topology.atoms() if atom.name == "CA"]
    return np.asarray(positions.value_in_unit(unit.angstrom), dtype=np.float32)[trace]
