"""What a rank reads beside its clock, an epoch at a time: the queue for a core, the fabric, the node's energy."""

from dataclasses import dataclass
from pathlib import Path

from deepex.fabric import Fabric, TrafficCount
from deepex.record.cores import CoreWait
from deepex.record.energy import Energy

BOOT = Path("/proc/sys/kernel/random/boot_id")  # the same in all hosts that a machine plays


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What a rank counted in an epoch, as in its row; `machine` and `energy_joules` only where it reads them."""

    core_wait_seconds: float | None
    traffic: TrafficCount
    energy_joules: float | None
    machine: str | None


class Counters:
    """Counts from here on, until `take` hands it out. The first rank of a node reads its energy for all of them.

    Arguments:
        fabric: among all ranks.
        whole_epoch: whether an epoch begins here; of one that is resumed, what was used before is not known.
    """

    def __init__(self, fabric: Fabric, *, whole_epoch: bool) -> None:
        self._traffic, self._queue = fabric.traffic, CoreWait()
        self._energy = Energy() if fabric.world.local_rank == 0 else None
        self._machine = BOOT.read_text().strip() if BOOT.exists() else fabric.world.host
        self._whole_epoch = whole_epoch

    def take(self) -> "Counts":
        """What was counted since the last call."""
        joules = self._energy.take() if self._energy is not None else None
        counts = Counts(
            core_wait_seconds=self._queue.take(),
            traffic=self._traffic.take(),
            energy_joules=joules if self._whole_epoch else None,
            machine=self._machine if self._energy is not None else None,
        )
        self._whole_epoch = True
        return counts

    def close(self) -> None:
        if self._energy is not None:
            self._energy.close()
