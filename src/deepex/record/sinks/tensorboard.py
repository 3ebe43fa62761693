"""Epochs as TensorBoard's event files, in a folder of the run's own. It knows rows of metrics.jsonl, and no run.

What the files hold already is read from them, so no epoch is written twice, however often a writer is started.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from deepex.errors import UsageError
from deepex.files import explained
from deepex.record.rows import EpochRow

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

PLAIN = ("learning_rate", "samples_per_second", "noise_scale", "energy_joules")
LAST_TAG = "loss/loss"  # written last: where it stands, the whole epoch does


class EventLog:
    """Writes each epoch once.

    Arguments:
        folder: TensorBoard's log directory, of many runs maybe.
        name: the run's, and that of its folder there.
        started: when the run did, as in record.json; empty if that is not known.
    """

    def __init__(self, folder: Path, name: str, started: str = "") -> None:
        _check_installed()
        self.folder = folder / name
        self._started = datetime.fromisoformat(started).timestamp() if started else None
        self._suffix = "" if self._started is None else f".{int(self._started)}"
        self._writer: SummaryWriter | None = None
        with _writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._check_owner()
            self._written = self._read_epochs()

    def add(self, rows: Iterable[EpochRow]) -> None:
        """Write the epochs that are not there yet."""
        new = [row for row in rows if row.epoch not in self._written]
        if not new:
            return
        with _writing(self.folder):
            if self._writer is None:
                self._writer = self._open()
            for row in new:
                self._add_epoch(self._writer, row)
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            with _writing(self.folder):
                self._writer.close()

    def _add_epoch(self, writer: "SummaryWriter", row: EpochRow) -> None:
        wall_time = None if self._started is None else self._started + row.seconds
        for tag, value in scalars(row).items():
            writer.add_scalar(tag, value, row.epoch, wall_time)
        self._written.add(row.epoch)

    def _open(self) -> "SummaryWriter":
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(self.folder), filename_suffix=self._suffix)

    def _check_owner(self) -> None:
        """Refuse to mix two runs of one name; a file's ending tells when its run started."""
        for path in self.folder.glob("events.out.tfevents.*"):
            if not path.name.endswith(self._suffix):
                raise UsageError(
                    f"{self.folder} holds the events of another run of that name ({path.name}). "
                    "Choose another --tensorboard, or delete that folder."
                )

    def _read_epochs(self) -> set[int]:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        found = EventAccumulator(str(self.folder), size_guidance={"scalars": 0}).Reload()
        return {event.step for event in found.Scalars(LAST_TAG)} if LAST_TAG in found.Tags()["scalars"] else set()


def scalars(row: EpochRow) -> dict[str, float]:
    """What TensorBoard shows of an epoch, by tag; the loss, which tells that all of it is there, comes last."""
    found = {
        f"metric/{row.metric}": row.value,
        **{f"metric/{name}": value for name, value in row.beside.items()},
        **{name: getattr(row, name) for name in PLAIN},
        **{f"phase_seconds/{name}": seconds for name, seconds in row.phase_seconds.items()},
        **{f"loss/{name}": value for name, value in row.losses.items()},
    }
    last = found.pop(LAST_TAG)
    return {**{tag: value for tag, value in found.items() if isinstance(value, int | float)}, LAST_TAG: last}


def _check_installed() -> None:
    try:
        import torch.utils.tensorboard  # noqa: F401  # only whether it is there
    except ImportError as error:
        raise UsageError(
            "--tensorboard: the package tensorboard is not installed: pip install 'deepex[tensorboard]'"
        ) from error


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    elsewhere = "choose another with --tensorboard."
    otherwise = "Allowed: a folder, new or not, that you may write to. Choose another with --tensorboard."
    with explained(f"--tensorboard: {folder}", UsageError, elsewhere=elsewhere, otherwise=otherwise):
        yield
