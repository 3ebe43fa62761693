"""What a rank reads beside its clock, an epoch at a time: the queue for a core, the fabric, the node's energy."""

from pathlib import Path
from typing import Any

from deepex.fabric import Fabric
from deepex.record.cores import CoreWait
from deepex.record.energy import Energy

BOOT = Path("/proc/sys/kernel/random/boot_id")  # the same in all hosts that a machine plays


class Gauges:
    """Counts from here on, until `take` hands it out. The first rank of a node reads its energy for all of them.

    Arguments:
        fabric: among all ranks.
        whole_epoch: whether an epoch begins here; of one that is resumed, what was used before is not known.
    """

    def __init__(self, fabric: Fabric, *, whole_epoch: bool) -> None:
        self._meter, self._queue = fabric.meter, CoreWait()
        self._energy = Energy() if fabric.world.local_rank == 0 else None
        self._machine = BOOT.read_text().strip() if BOOT.exists() else fabric.world.host
        self._whole_epoch = whole_epoch

    def take(self) -> dict[str, Any]:
        """What was counted since the last call, as plain values; `energy_joules` only from a rank that reads it."""
        carried = self._meter.take()
        taken = {
            "core_wait_seconds": self._queue.take(),
            "fabric": carried,
            "sync_hidden_seconds": max(0.0, carried["busy_seconds"] - carried["waited_seconds"]),
        }
        if self._energy is not None:
            joules = self._energy.take()
            taken["energy_joules"] = joules if self._whole_epoch else None
            taken["machine"] = self._machine
        self._whole_epoch = True
        return taken

    def close(self) -> None:
        if self._energy is not None:
            self._energy.close()
