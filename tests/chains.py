"""A data set for the protein task that is learned in a blink: contact maps of random chains."""

from pathlib import Path

import numpy as np

from deepex.data import ArraySource
from deepex.data.packing.pack import pack

RESIDUES = 28


def write_chains(path: Path, frames_each: int = 60, num_trajectories: int = 4) -> None:
    """Contact maps of random chains, more or less drawn together; the last trajectory is held back."""
    generator = np.random.default_rng(0)
    count = frames_each * num_trajectories
    native_fraction = generator.uniform(0, 1, count).astype(np.float32)
    steps = generator.normal(0, 1, (count, RESIDUES, 3)) * (4 - 3 * native_fraction[:, None, None])
    places = np.cumsum(steps, axis=1)
    distances = np.linalg.norm(places[:, :, None] - places[:, None], axis=-1)
    size = np.sqrt(np.square(places - places.mean(1, keepdims=True)).sum(2).mean(1)).astype(np.float32)
    temperatures = np.repeat(np.linspace(300, 390, num_trajectories, dtype=np.float32), frames_each)
    arrays = {
        "contact_map": distances < 8,
        "temperature": temperatures,
        "radius_of_gyration": size,
        "rmsd": size / 2,
        "native_fraction": native_fraction,
        "trajectory": np.repeat(np.arange(num_trajectories, dtype=np.int32), frames_each),
    }
    trajectories = [{"validation": number == num_trajectories - 1} for number in range(num_trajectories)]
    pack(ArraySource(arrays), path, attributes={"trajectories": trajectories})
