"""Checkpoints: a folder with a file a rank and a manifest, complete or absent. Only the newest is kept.

A checkpoint goes on with the same number of ranks, bit for bit: each rank's weights (replicas may differ between two
syncs), optimiser state, what the strategy remembers, random state and place in the run. Beside it stand the last and
the best weights by the names of the module, for whoever wants the model: rank 0's.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from deepex.errors import RunFolderError
from deepex.fabric import Fabric
from deepex.record.folder import RunFolder
from deepex.record.weights import Weights, collect_weights, read_weights, write_weights
from deepex.replica import Replica
from deepex.sync import Sync
from deepex.train.compute.precision import LossScale
from deepex.world import World

LAST_FILE, BEST_FILE = "model.safetensors", "best.safetensors"
Which = Literal["last", "best"]


@dataclass(kw_only=True)
class Position:
    """How far a run has come. Seconds count training and evaluation, not what lies between a stop and a resume."""

    epoch: int = 0
    step: int = 0  # within the epoch
    seconds: float = 0.0
    loss_sums: dict[str, float] = field(default_factory=dict)
    epochs_to_target: int | None = None
    seconds_to_target: float | None = None
    best_epoch: int | None = None
    best_value: float | None = None
    counts: dict[str, int] = field(default_factory=dict)  # steps of each model of a loop
    threads: int | None = None  # of a loop's steps: other threads round otherwise


class Trained(Protocol):
    """A model in training, with all that a later step of it depends on."""

    @property
    def replica(self) -> Replica: ...

    @property
    def optimiser(self) -> "Remembering": ...

    @property
    def sync(self) -> Sync: ...

    @property
    def loss_scale(self) -> LossScale: ...


class Remembering(Protocol):
    """An optimiser's memory."""

    def state_dict(self) -> dict[str, Tensor]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


Models = Mapping[str, Trained]
"""What a run trains, by name; the only model of a run has none."""


def save(folder: RunFolder, fabric: Fabric, models: Models, position: Position, best: Weights | None = None) -> Path:
    """Write a checkpoint; all ranks call it at the same step. `best` are rank 0's weights of the best epoch so far."""
    final = folder.checkpoints / f"epoch{position.epoch:05d}_step{position.step:06d}"
    partial = final.with_suffix(".partial")
    state = {
        "models": {name: _state_of(model) for name, model in models.items()},
        "random": torch.get_rng_state(),
        "position": asdict(position),
    }
    with folder.writing():
        partial.mkdir(exist_ok=True)
        path = partial / f"{fabric.world.file_stem}.pt"
        torch.save(state, path)
        hashes = fabric.gather(_sha256(path))
        if fabric.world.is_first:
            weights = _write_weights(partial, collect_all(models), position, best)
            manifest = {"ranks": len(hashes), "sha256": hashes, "weights": weights, **asdict(position)}
            RunFolder(partial).write_json("manifest.json", manifest)
            shutil.rmtree(final, ignore_errors=True)
            os.replace(partial, final)
            for old in folder.checkpoints.iterdir():
                if old != final:
                    shutil.rmtree(old)
    fabric.gather(None)
    return final


def collect_all(models: Models) -> Weights:
    """A copy of the weights of all models, by the names of their own modules, behind the model's name if it has one."""
    named = {name: collect_weights(model.replica.model) for name, model in models.items()}
    return {f"{name}.{key}" if name else key: value for name, held in named.items() for key, value in held.items()}


def _state_of(model: Trained) -> dict[str, Any]:
    return {
        "block": model.replica.block,
        "loose": model.replica.loose_tensors(),
        "layout": model.replica.layout,
        "optimiser": model.optimiser.state_dict(),
        "sync": model.sync.state(),
        "loss_scale": model.loss_scale.state,
    }


def _write_weights(folder: Path, last: Weights, position: Position, best: Weights | None) -> dict[str, str]:
    """The weights as they are and as they were best; returns the files' hashes."""
    write_weights(folder / LAST_FILE, last, {"epochs": str(position.epoch)})
    if best is not None and position.best_epoch == position.epoch and not position.step:
        shutil.copyfile(folder / LAST_FILE, folder / BEST_FILE)  # the same
    elif best is not None:
        write_weights(folder / BEST_FILE, best, {"epochs": str(position.best_epoch)})
    return {name: _sha256(folder / name) for name in (LAST_FILE, BEST_FILE) if (folder / name).exists()}


def weights_file(folder: RunFolder, which: Which) -> Path:
    """The file with a run's weights, the last or the best, verified."""
    path = latest(folder)
    if path is None:
        raise RunFolderError(
            f"{folder.path} has no weights yet: they are written with each checkpoint. Wait for the first one, or "
            f"start the run again: deepex run {folder.recipe}"
        )
    hashes = RunFolder(path).read_json("manifest.json").get("weights", {})
    name = BEST_FILE if which == "best" else LAST_FILE
    if name not in hashes:
        cure = "Take the last." if which == "best" else f"It was {folder.made_by}; load it with that version."
        raise RunFolderError(f"{path} has no {which} weights. {cure}")
    if not (path / name).exists() or _sha256(path / name) != hashes[name]:
        raise RunFolderError(f"{path / name} is damaged or missing. Bring it back from a copy.")
    return path / name


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
    state = dict(torch.load(file, weights_only=True))
    if "models" not in state:
        raise RunFolderError(f"{file} was written by an earlier version of deepex. Go on with that version.")
    return state


def load_best(path: Path) -> Weights | None:
    """The best weights of a checkpoint, if it has any."""
    return read_weights(path / BEST_FILE) if (path / BEST_FILE).exists() else None


def restore(state: dict[str, Any], models: Models) -> Position:
    """Put a loaded state into the models' replicas, optimisers and strategies, and into the random generator."""
    for name, model in models.items():
        restore_model(state["models"][name], model)
    torch.set_rng_state(state["random"])
    return Position(**state["position"])


def restore_model(state: dict[str, Any], model: Trained) -> None:
    """Put one model's part of a loaded state into place."""
    model.replica.block.copy_(state["block"])
    for name, tensor in model.replica.loose_tensors().items():
        tensor.copy_(state["loose"][name])
    model.optimiser.load_state_dict(state["optimiser"])
    for name, tensor in model.sync.state().items():
        tensor.copy_(state["sync"][name])
    model.loss_scale.state.update(state["loss_scale"])


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
