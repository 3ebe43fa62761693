"""A small data set, really simulated: built, stopped, resumed, measured, packed."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from deepex.data.packing.packed import PackedSource
from deepex.errors import DataError
from deepex.science import protein
from deepex.science.protein import Trajectory
from deepex.tasks.data.make import MakeOptions
from deepex.tasks.data.protein import ProteinData

# The command with three of its trajectories: minimising the energy of each start takes seconds.
THREE = """
from deepex.cli import main
from deepex.science import protein
whole = protein.plan
protein.plan = lambda **settings: whole(**settings)[:3]
if __name__ == "__main__":
    main()
"""


def test_a_trajectory_goes_on_bit_for_bit_after_a_stop(tmp_path: Path) -> None:
    frames = protein.FRAMES_PER_PART + 2
    whole = Trajectory(
        name="t", start=protein.HELIX, temperature_kelvin=300.0, frames=frames, steps_per_frame=2, seed=4
    )
    protein.simulate(whole, tmp_path / "whole", protein.SEQUENCE[:10], None)
    first, second = protein.finished_parts(tmp_path / "whole")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / first.name).write_bytes(first.read_bytes())
    (tmp_path / "parts" / "part00001.tmp").write_bytes(b"half a part")
    protein.simulate(whole, tmp_path / "parts", protein.SEQUENCE[:10], None)
    again = protein.finished_parts(tmp_path / "parts")[1]
    with np.load(second) as one, np.load(again) as other:
        assert np.array_equal(one["positions"], other["positions"])


def test_built_chains_have_the_shape_they_are_named_for(tmp_path: Path) -> None:
    reference = np.zeros((28, 3), dtype=np.float32)
    sizes = {}
    for name, letters in {"extended": protein.EXTENDED, "helix": protein.HELIX}.items():
        start = Trajectory(name=name, start=letters, temperature_kelvin=300.0, frames=1, steps_per_frame=1)
        protein.simulate(start, tmp_path / name, protein.SEQUENCE, None)
        measured = protein.measure(tmp_path / name, reference)
        sizes[name] = float(measured.radius_of_gyration[0])
        in_helix = measured.contact_map[0].diagonal(offset=3)
        assert in_helix.mean() > 0.9 if name == "helix" else in_helix.mean() < 0.1
    assert sizes["extended"] > 25 > 16 > sizes["helix"] > 10


def test_the_command_can_be_killed_and_makes_the_file_in_the_end(tmp_path: Path) -> None:
    command = [sys.executable, "-c", THREE, "data", "make", "protein", "frames=2", "--out", "small.h5"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True) as killed:
        _wait_for_part(tmp_path / "small.h5.parts", killed)
        os.killpg(killed.pid, signal.SIGKILL)
    assert not (tmp_path / "small.h5").exists()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    source = PackedSource(tmp_path / "small.h5")
    assert len(source) == 2 * 3
    assert source.content_sha256 in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["small.h5"]


def test_parts_of_other_settings_are_not_mixed_in(tmp_path: Path) -> None:
    parts = tmp_path / "a.h5.parts"
    parts.mkdir()
    (parts / "plan.json").write_text("{}")
    with pytest.raises(DataError, match="other settings"):
        ProteinData().make(tmp_path / "a.h5", MakeOptions())


def test_a_file_that_is_no_structure_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.pdb").write_text("ATOM  nonsense\n")
    with pytest.raises(DataError, match=r"a\.pdb can't be read as a PDB structure"):
        protein.read_structure(tmp_path / "a.pdb", 0)


def test_a_structure_of_another_protein_is_refused_before_anything_is_simulated(tmp_path: Path) -> None:
    atom = "ATOM      1  CA  GLY A   1       0.000   0.000   0.000  1.00  0.00           C\nEND\n"
    (tmp_path / "other.pdb").write_text(atom)
    with pytest.raises(DataError, match="has 1 residues, BBA has 28"):
        ProteinData(structure=str(tmp_path / "other.pdb")).make(tmp_path / "a.h5", MakeOptions())
    assert [path.name for path in tmp_path.iterdir()] == ["other.pdb"]


def _wait_for_part(folder: Path, running: subprocess.Popen[bytes]) -> None:
    """Until the first part is written."""
    while not list(folder.glob("*/part*.npz")):
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"ended before it wrote a part, with exit code {running.wait(timeout=0.1)}")
