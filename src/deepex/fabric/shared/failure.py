"""Whether peers that a rank waits for will never arrive, and the error that says so.

It knows processes, the heartbeat and the timeout, and nothing of what ranks wait for.
"""

from collections.abc import Callable, Sequence

from deepex.errors import PeerError
from deepex.fabric.heartbeat import peer_error
from deepex.fabric.rendezvous import Rendezvous
from deepex.fabric.shared.peers import Peers


class FailureDetector:
    """Raises where a peer of a group has died or left, or the time is up.

    Arguments:
        rendezvous: where all ranks have met.
        ranks: the group's members by their number among all ranks.
        peers: what is known of them.

    Attributes:
        world: this rank's place among all ranks.
        error: the failure that was found. Operations of the group can't be completed any more.
    """

    def __init__(self, rendezvous: Rendezvous, ranks: Sequence[int], peers: Peers) -> None:
        self.world = rendezvous.world
        self.error: PeerError | None = None
        self._rendezvous, self._ranks, self._peers = rendezvous, ranks, peers

    def check(
        self, operation: str, missing: Callable[[], list[int]], left: Callable[[], list[int]], waited_seconds: float
    ) -> None:
        """Raise if a member that is missing will not arrive.

        Arguments:
            operation: what this rank waits in, for the error.
            missing: the members that have not arrived yet, by their number in the group.
            left: the members that have said that they will not arrive again.
            waited_seconds: how long this rank has waited.
        """
        ended = {at for at in missing() if self._peers.has_ended(self._ranks[at])}
        gone = set(left())
        late = missing()  # by now: one that has arrived before it ended is not missing
        if who := self._find_cause(late, ended, gone, waited_seconds):
            names = ", ".join(self._peers.describe(self._ranks[at]) for at in late)
            seconds = self._rendezvous.timeout_seconds
            detail = f"a collective waits {seconds:g} s for a peer; missing: {names}"
            raise self._fail(operation, detail, who)

    def unreachable(self, operation: str, error: Exception) -> PeerError:
        """The error where a peer has arrived, but ended before its memory could be opened."""
        return self._fail(operation, f"its memory can't be opened: {error}")

    def _find_cause(self, late: Sequence[int], ended: set[int], left: set[int], waited_seconds: float) -> str:
        """Who will not arrive and why, in words; empty if there is hope."""
        heartbeat, peers = self._rendezvous.heartbeat, self._peers
        if fallen := [self._ranks[at] for at in late if at in ended - left]:
            heartbeat.failed_ranks.update(fallen)
            ending = "is gone: process {} has ended without a word, killed perhaps by a signal"
            return "; ".join(f"{peers.describe(rank)} {ending.format(peers.processes[rank])}" for rank in fallen)
        if leavers := [self._ranks[at] for at in late if at in left]:
            cause = heartbeat.find_failure()
            return cause if heartbeat.failure else "; ".join(f"{peers.describe(rank)} has left" for rank in leavers)
        return heartbeat.find_failure() if late and waited_seconds > self._rendezvous.timeout_seconds else ""

    def _fail(self, operation: str, detail: str, who: str = "") -> PeerError:
        self.error = peer_error(self._rendezvous.heartbeat, self.world, operation, detail=detail, who=who)
        return self.error
