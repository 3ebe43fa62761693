"""Checkpoints: a folder with a file a rank and a manifest, complete or absent. Only the newest is kept.

A checkpoint goes on with the same number of ranks, bit for bit: each rank's weights (replicas may differ between two
syncs), optimiser state, what the strategy remembers, random state and place in the run.
"""

import hashlib
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from deepex.errors import RunFolderError
from deepex.fabric import Fabric
from deepex.record.folder import RunFolder
from deepex.train.step import Step
from deepex.world import World


@dataclass(kw_only=True)
class Position:
    """How far a run has come. Seconds count training and evaluation, not what lies between a stop and a resume."""

    epoch: int = 0
    step: int = 0  # within the epoch
    seconds: float = 0.0
    loss_sums: dict[str, float] = field(default_factory=dict)
    epochs_to_target: int | None = None
    seconds_to_target: float | None = None


def save(folder: RunFolder, fabric: Fabric, step: Step, position: Position) -> Path:
    """Write a checkpoint; all ranks call it at the same step."""
    final = folder.checkpoints / f"epoch{position.epoch:05d}_step{position.step:06d}"
    partial = final.with_suffix(".partial")
    state = {
        "block": step.replica.block,
        "layout": step.replica.layout,
        "optimiser": step.optimiser.state_dict(),
        "sync": step.sync.state(),
        "loss_scale": step.loss_scale.state,
        "random": torch.get_rng_state(),
        "position": asdict(position),
    }
    with folder.writing():
        partial.mkdir(exist_ok=True)
        path = partial / f"{fabric.world.file_stem}.pt"
        torch.save(state, path)
        hashes = fabric.gather(_sha256(path))
        if fabric.world.is_first:
            manifest = {"ranks": len(hashes), "sha256": hashes, **asdict(position)}
            RunFolder(partial).write_json("manifest.json", manifest)
            shutil.rmtree(final, ignore_errors=True)
            os.replace(partial, final)
            for old in folder.checkpoints.iterdir():
                if old != final:
                    shutil.rmtree(old)
    fabric.gather(None)
    return final


def latest(folder: RunFolder) -> Path | None:
    """The newest complete checkpoint."""
    complete = [path.parent for path in folder.checkpoints.glob("epoch*/manifest.json") if not path.parent.suffix]
    return max(complete, default=None)


def load(path: Path, world: World) -> dict[str, Any]:
    """A rank's state from a checkpoint, verified. `restore` puts it into place."""
    manifest = RunFolder(path).read_json("manifest.json")
    if manifest["ranks"] != world.size:
        raise RunFolderError(
            f"{path} was written by {manifest['ranks']} ranks and can't go on with {world.size}. "
            f"Start it with {manifest['ranks']} ranks."
        )
    file = path / f"{world.file_stem}.pt"
    expected, found = manifest["sha256"][world.rank], _sha256(file) if file.exists() else "no file"
    if expected != found:
        raise RunFolderError(
            f"{file} is damaged: it has sha256 {found}, the manifest says {expected}. "
            "Start the run again from its recipe."
        )
    return dict(torch.load(file, weights_only=True))


def restore(state: dict[str, Any], step: Step) -> Position:
    """Put a loaded state into a step's replica, optimiser and loss scale."""
    step.replica.block.copy_(state["block"])
    step.optimiser.load_state_dict(state["optimiser"])
    for name, tensor in step.sync.state().items():
        tensor.copy_(state["sync"][name])
    step.loss_scale.state = state["loss_scale"]
    torch.set_rng_state(state["random"])
    return Position(**state["position"])


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
