"""What all groups of a fabric share on this rank: its peers' processes, shared blocks, and operations under way.

It knows which process each rank is, and nothing of collectives.
"""

from collections.abc import Mapping
from weakref import WeakSet

from deepex.fabric.shared.barrier import Barrier
from deepex.fabric.shared.blocks import SharedBlocks
from deepex.fabric.shared.process_watch import ProcessWatch
from deepex.fabric.shared.progress import ThreadEngine


class Peers:
    """Ranks of one host, by their number among all ranks.

    Arguments:
        hosts: the host of each, as far as known.
        processes: the process of each, once this rank has seen that it is a process of this host.
        num_cores: how many cores they have together.
    """

    def __init__(
        self, hosts: Mapping[int, str] | None = None, processes: Mapping[int, int] | None = None, num_cores: int = 0
    ) -> None:
        self.hosts, self.processes = hosts or {}, processes or {}
        self.blocks = SharedBlocks(self.processes)
        self.engine = ThreadEngine(is_oversubscribed=num_cores < len(self.processes))
        self.barriers: WeakSet[Barrier] = WeakSet()
        self._watch = ProcessWatch(self.processes.values())

    def has_ended(self, rank: int) -> bool:
        """Whether a rank's process is known to have ended."""
        return rank in self.processes and self._watch.has_ended(self.processes[rank])

    def describe(self, rank: int) -> str:
        return f"rank {rank} on {self.hosts.get(rank, 'its host')}"

    def leave(self) -> None:
        """Tell those who wait at any barrier that this rank will not arrive again."""
        for barrier in self.barriers:
            barrier.leave()
        self._watch.close()
