"""Where ranks find each other before they can talk: a store of torch.distributed that all of them reach.

It knows texts under names, and nothing of collectives.
"""

from datetime import timedelta
from itertools import count

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore  # torch.distributed leaves them out of its types

from deepex.errors import PeerError
from deepex.fabric.heartbeat import Heartbeat, StoreHeartbeat, peer_error
from deepex.world import World

# By address and rank, with a number for each time that it meets there: a process may run one run after another, and
# the store of the first, which rank 0 may serve, is that of all.
_stores: dict[tuple[str, int], tuple[TCPStore, "count[int]"]] = {}


class Rendezvous:
    """A store that all ranks reach, and the heartbeat of all of them.

    Arguments:
        world: this rank's place.
        address: `host:port` of the store (rank 0 serves it unless an agent already does).
        agent_store: whether a launcher's agent serves the store already, as torchrun's does.
        timeout_seconds: how long a rank waits for a peer before it raises.
    """

    def __init__(self, world: World, *, address: str, agent_store: bool, timeout_seconds: float = 300.0) -> None:
        self.world, self.timeout_seconds = world, timeout_seconds
        host, _, port = address.rpartition(":")
        timeout = timedelta(seconds=timeout_seconds)
        serves = world.is_first and not agent_store
        try:
            if not _answers(address, world.rank):
                _stores[address, world.rank] = (
                    TCPStore(host, int(port), world.size, is_master=serves, timeout=timeout, wait_for_workers=False),
                    count(),
                )
            own = TCPStore(host, int(port), world.size, is_master=False, timeout=timeout, wait_for_workers=False)
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise PeerError(
                f"{world}: no rendezvous at {address} within {timeout_seconds:g} s ({reason}). Look for an error of "
                "rank 0, which serves it, and whether its host and port can be reached from here."
            ) from error
        self._tcp, numbers = _stores[address, world.rank]
        self._tcp.set_timeout(timeout)
        self._prefix = f"deepex/{next(numbers)}"  # an agent keeps keys of its own there, and earlier runs left theirs
        self.heartbeat: Heartbeat = StoreHeartbeat(
            PrefixStore(f"{self._prefix}/heartbeat", own), world, timeout_seconds, serves=serves
        )

    def store(self, name: str) -> Store:
        """A part of the store that no other name shares."""
        return PrefixStore(f"{self._prefix}/{name}", self._tcp)

    def exchange(self, name: str, text: str) -> list[str]:
        """Every rank's text under a name that is used once, in rank order; the slow way, before there is a fabric."""
        store = self.store(f"exchange/{name}")
        store.set(str(self.world.rank), text)
        try:
            return [store.get(str(rank)).decode() for rank in range(self.world.size)]
        except RuntimeError as error:
            detail = f"a rank waits {self.timeout_seconds:g} s for the others"
            raise peer_error(self.heartbeat, self.world, "rendezvous", detail=detail) from error


def _answers(address: str, rank: int) -> bool:
    """Whether the store of an earlier meeting is there still; another one may have come to its address since."""
    try:
        return (address, rank) in _stores and _stores[address, rank][0].num_keys() >= 0
    except RuntimeError:
        return False
