import struct
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from deepex.data.source import read_all
from deepex.data.sources import open_source as open_any
from deepex.data.sources.trajectory import Options, TrajectorySource, open_source
from deepex.errors import ConfigError, DataError, SampleError
from deepex.testing.source import check_source

pytestmark = [
    # MDAnalysis tells what will change in its next version.
    pytest.mark.filterwarnings("ignore:DCDReader currently makes independent timesteps:DeprecationWarning"),
    # A PDB file need not name elements.
    pytest.mark.filterwarnings("ignore:Element information is missing:UserWarning"),
]
# A reader of MDAnalysis that fails on opening also fails to close itself.
ignore_unclosed = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <function ReaderBase.__del__:pytest.PytestUnraisableExceptionWarning"
)
NUM_RESIDUES = 5


def positions(num_frames: int = 6, num_residues: int = NUM_RESIDUES) -> NDArray[np.float32]:
    """Frames of two atoms a residue, in angstrom, with the decimals that every format keeps."""
    random = np.random.default_rng(num_residues)
    return (random.integers(0, 1500, (num_frames, 2 * num_residues, 3)) / 100).astype(np.float32)


def contacts(frames: NDArray[np.float32], cutoff: float = 8.0) -> NDArray[np.bool_]:
    """Contact maps of the C-alpha atoms, by the definition."""
    trace = frames[:, ::2].astype(np.float64)
    return np.asarray(np.linalg.norm(trace[:, :, None] - trace[:, None], axis=-1) < cutoff)


def write_pdb(path: Path, frames: NDArray[np.float32], alpha: str = "CA") -> Path:
    """A PDB file with a model a frame, by the columns of the format."""
    lines = []
    for number, frame in enumerate(frames):
        lines.append(f"MODEL     {number + 1:4d}")
        for atom, (x, y, z) in enumerate(frame):
            name = alpha if atom % 2 == 0 else "CB"
            lines.append(
                f"ATOM  {atom + 1:5d}  {name:3s} ALA A{atom // 2 + 1:4d}    {x:8.3f}{y:8.3f}{z:8.3f}  1.00  0.00"
            )
        lines.append("ENDMDL")
    path.write_text("\n".join([*lines, "END", ""]))
    return path


def write(path: Path, frames: NDArray[np.float32]) -> Path:
    """A trajectory in the format that its name says, frames 2 ps apart."""
    universe = MDAnalysis.Universe.empty(frames.shape[1], trajectory=True)
    universe.load_new(frames, dt=2.0, dimensions=[100, 100, 100, 90, 90, 90])
    with MDAnalysis.Writer(str(path), frames.shape[1], dt=2.0) as writer:
        for _ in universe.trajectory:
            writer.write(universe.atoms)
    return path


@pytest.fixture
def topology(tmp_path: Path) -> str:
    return str(write_pdb(tmp_path / "topology.pdb", positions(1)))


def test_the_contract_holds(tmp_path: Path, topology: str) -> None:
    write(tmp_path / "a.dcd", positions())
    write(tmp_path / "b.xtc", positions())
    check_source(lambda: open_source(tmp_path, Options(topology=topology)))


@pytest.mark.parametrize("suffix", ["dcd", "xtc", "trr", "ncdf"])
def test_frames_become_contact_maps_and_times(tmp_path: Path, topology: str, suffix: str) -> None:
    path = write(tmp_path / f"run.{suffix}", positions())
    source = open_any(path, options=[f"topology={topology}"])
    field = source.spec.fields["contact_map"]
    assert (field.shape, field.dtype) == ((NUM_RESIDUES, NUM_RESIDUES), "bool")
    assert "'name CA' within 8 angstrom" in field.description
    assert source.spec.fields["time"].unit == "ps"
    assert source.name(3) == f"run.{suffix}:3"
    batch = read_all(source)
    assert np.array_equal(batch["contact_map"].numpy(), contacts(positions()))
    assert batch["time"].tolist() == pytest.approx([0, 2, 4, 6, 8, 10])


def test_a_pdb_of_many_models_needs_no_topology_and_knows_no_time(tmp_path: Path) -> None:
    path = write_pdb(tmp_path / "models.pdb", positions())
    batch = read_all(open_source(path, Options()))
    assert np.array_equal(batch["contact_map"].numpy(), contacts(positions()))
    assert batch["time"].tolist() == [0, 1, 2, 3, 4, 5]


def test_the_maps_are_those_of_the_protein_task_s_own_measure(tmp_path: Path) -> None:
    from deepex.science.protein import CONTACT_ANGSTROM, measure

    frames = positions(num_residues=20)
    write_pdb(tmp_path / "start.pdb", frames[:1])
    np.savez(tmp_path / "part00000.npz", positions=frames)
    measured = measure(tmp_path, frames[0, ::2])
    source = open_source(write_pdb(tmp_path / "a.pdb", frames), Options())
    assert Options().cutoff_angstrom == CONTACT_ANGSTROM
    assert np.array_equal(read_all(source)["contact_map"].numpy(), measured.contact_map)


def test_atoms_cutoff_and_frames_can_be_chosen(tmp_path: Path, topology: str) -> None:
    path = write(tmp_path / "run.dcd", positions(7))
    chosen = ["selection=name CA and resid 2:4", "cutoff_angstrom=5", "every=3", f"topology={topology}"]
    source = open_any(path, options=chosen)
    assert len(source) == 3
    assert [source.name(index) for index in range(3)] == ["run.dcd:0", "run.dcd:3", "run.dcd:6"]
    batch = read_all(source)
    assert np.array_equal(batch["contact_map"].numpy(), contacts(positions(7), cutoff=5)[::3, 1:4, 1:4])
    assert batch["time"].tolist() == pytest.approx([0, 6, 12])


def test_a_folder_s_trajectories_share_a_topology_that_is_none_of_them(tmp_path: Path, topology: str) -> None:
    write(tmp_path / "b.dcd", positions(2))
    (tmp_path / "below").mkdir()
    write(tmp_path / "below" / "a.xtc", positions(3))
    source = open_source(tmp_path, Options(topology="topology.pdb"))
    assert [source.name(index) for index in range(len(source))] == [
        "b.dcd:0",
        "b.dcd:1",
        "below/a.xtc:0",
        "below/a.xtc:1",
        "below/a.xtc:2",
    ]
    out = {"contact_map": torch.zeros(4, NUM_RESIDUES, NUM_RESIDUES, dtype=torch.bool)}
    source.read(np.array([4, 0, 4]), out)
    assert not out["contact_map"][3].any()
    assert torch.equal(out["contact_map"][0], out["contact_map"][2])


def test_a_topology_alone_in_its_folder_is_a_trajectory_too(tmp_path: Path, topology: str) -> None:
    assert len(open_source(tmp_path, Options(topology=topology))) == 1


@pytest.mark.parametrize(
    ("selection", "told"),
    [
        ("name XX", r"finds 0 of the 10 atoms in .*needs 2. Names there: CA, CB.*selection="),
        ("name CA and resid 1", "finds 1 of the 10 atoms"),
        ("nonsense", "'nonsense' can't be made in .*Unknown selection token.*selections.html"),
        ("prop mass > 1", "'prop mass > 1' can't be made"),
    ],
)
def test_a_selection_that_finds_nothing_is_told(tmp_path: Path, topology: str, selection: str, told: str) -> None:
    path = write(tmp_path / "run.dcd", positions())
    with pytest.raises(DataError, match=told):
        open_source(path, Options(topology=topology, selection=selection))


@pytest.mark.parametrize("suffix", ["dcd", "xtc", "trr", "ncdf"])
def test_a_missing_topology_is_asked_for(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"run.{suffix}", positions())
    with pytest.raises(DataError, match=r"topology=FILE"):
        open_source(path, Options())
    with pytest.raises(DataError, match=r"finds 1 of the 10 .*Names there: none.*topology=FILE"):
        open_source(path, Options(selection="index 0"))
    with pytest.raises(DataError, match=r"no file gone\.pdb"):
        open_source(path, Options(topology="gone.pdb"))


@pytest.mark.parametrize("suffix", ["dcd", "xtc", "trr", "ncdf", "pdb"])
@ignore_unclosed
def test_a_topology_of_another_molecule_is_told(tmp_path: Path, suffix: str) -> None:
    topology = write_pdb(tmp_path / "small.pdb", positions(1, num_residues=3))
    path = tmp_path / f"run.{suffix}"
    _ = write_pdb(path, positions()) if suffix == "pdb" else write(path, positions())
    with pytest.raises(DataError, match=rf"run\.{suffix} can't be read with topology .*small\.pdb.*same atoms"):
        open_source(path, Options(topology=str(topology)))


@ignore_unclosed
def test_a_topology_that_is_none_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "run.dcd", positions())
    for name, content in (("notes.txt", "hello"), ("empty.pdb", "")):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match=rf"with topology .*{name}"):
            open_source(path, Options(topology=name))


@pytest.mark.parametrize("suffix", ["dcd", "xtc", "trr", "ncdf", "pdb", "xyz"])
@ignore_unclosed
def test_one_bad_file_of_many_is_told_when_it_is_read(tmp_path: Path, topology: str, suffix: str) -> None:
    for name in "abc":
        write(tmp_path / f"{name}.dcd", positions())
    (tmp_path / f"bad.{suffix}").write_bytes(b"\x01\x02")
    source = open_source(tmp_path, Options(topology=topology))
    assert len(source) == 19
    out = {"time": torch.zeros(2)}
    source.read([0, 18], out)
    bad = next(index for index in range(19) if source.name(index) == f"bad.{suffix}")
    with pytest.raises(SampleError, match=rf"bad\.{suffix} can't be read"):
        source.read([bad], out)
    with pytest.raises(DataError, match=rf"bad\.{suffix} can't be read"):
        open_source(tmp_path / f"bad.{suffix}", Options(topology=topology))


@pytest.mark.filterwarnings("ignore:seek failed, recalculating offsets:UserWarning")  # MDAnalysis tries again
def test_a_damaged_frame_spares_the_others(tmp_path: Path) -> None:
    frames = positions(num_residues=2000)  # more than the system would read ahead
    topology = write_pdb(tmp_path / "topology.pdb", frames[:1])
    path = write(tmp_path / "run.xtc", frames)
    # Opening it, MDAnalysis finds all frames.
    source = open_source(path, Options(topology=str(topology), selection="name CA and resid 1:5"))
    content = path.read_bytes()
    start = struct.pack(">ii", 1995, 4000)  # of each frame: the format's number and that of atoms
    assert content.count(start) == 6
    third = content.index(start, content.index(start, content.index(start, 1) + 1) + 1)
    path.write_bytes(content[:third] + bytes(4) + content[third + 4 :])
    out = {"time": torch.zeros(4)}
    source.read([5, 4, 0, 1], out)
    assert out["time"].tolist() == [10, 8, 0, 2]
    with pytest.raises(SampleError, match=rf"frame run\.xtc:3 in {path} can't be read"):
        source.read(range(4), out)


def test_a_model_that_lacks_atoms_spares_the_others(tmp_path: Path) -> None:
    path = write_pdb(tmp_path / "models.pdb", positions())
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-5]))
    source = open_source(path, Options())
    assert len(source) == 6
    source.read([0, 4], {"time": torch.zeros(2)})
    with pytest.raises(SampleError, match=r"frame models\.pdb:5 .*number of atoms"):
        source.read([5], {"time": torch.zeros(1)})


def test_a_file_with_other_atoms_is_told_when_it_is_read(tmp_path: Path) -> None:
    write_pdb(tmp_path / "a.pdb", positions())
    write_pdb(tmp_path / "b.pdb", positions(num_residues=7))
    write_pdb(tmp_path / "c.pdb", positions(), alpha="CG")
    source = open_source(tmp_path, Options())
    assert len(source) == 8
    with pytest.raises(SampleError, match=r"b\.pdb has 7 atoms of 'name CA', the files before it 5"):
        source.read([6], {"time": torch.zeros(1)})
    with pytest.raises(SampleError, match="finds 0 of the 10"):
        source.read([7], {"time": torch.zeros(1)})


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("every=0", "every = 0. It must be 1"),
        ("cutoff_angstrom=0", "above 0"),
        ("cutoff_angstrom=nan", "above 0"),
        ("selection= ", "selection is empty"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, option: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        open_any(tmp_path, reader="trajectory", options=[option])


def test_few_trajectories_stay_open(tmp_path: Path, topology: str) -> None:
    for number in range(20):
        write(tmp_path / f"{number:02d}.dcd", positions(2))
    source = open_source(tmp_path, Options(topology=topology))
    assert isinstance(source, TrajectorySource)
    batch = read_all(source)
    assert np.array_equal(batch["contact_map"][-2:].numpy(), contacts(positions(2)))
