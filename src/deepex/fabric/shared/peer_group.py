"""Ranks that have opened each other's slots: where a step of a collective ends, and what they show each other in it.

It knows slots and a barrier, and nothing of how the ranks came together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deepex.errors import TrainingError
from deepex.fabric.shared.average import Bytes
from deepex.fabric.shared.barrier import Barrier
from deepex.fabric.shared.blocks import SharedBlocks
from deepex.fabric.shared.failure import FailureDetector
from deepex.fabric.shared.peer_slot import COLLECTIVES, CallHeader, PeerSlot
from deepex.world import World


@dataclass(frozen=True, kw_only=True, eq=False)
class PeerGroup:
    """A group of ranks of one host, as one of them sees it.

    Attributes:
        world: this rank's place in the group.
        ranks: the members by their number among all ranks.
        slots: the slot of each member, in the group's order.
        barrier: where they wait for each other.
        blocks: the blocks that they share.
        detector: finds out who will never arrive.
    """

    world: World
    ranks: Sequence[int]
    slots: Sequence[PeerSlot]
    barrier: Barrier
    blocks: SharedBlocks
    detector: FailureDetector

    def arrive(self, header: CallHeader | None = None) -> Iterator[None]:
        """One step ends here, and the next begins when all have arrived."""
        if header is not None:
            self.slots[self.world.rank].write(header, self.barrier.count + 1)
        self.barrier.arrive()
        yield

    def windows(self) -> list[Bytes]:
        """The windows to write to before the next arrival, and to read between that and the one after."""
        count = self.barrier.count + 1
        return [slot.window(count) for slot in self.slots]

    def read_headers(self, own: CallHeader) -> list[CallHeader]:
        """The headers of all ranks; an error, on all of them, if they are not of the same collective."""
        count = self.barrier.count
        headers = [slot.read(count) for slot in self.slots]
        if any(each.signature != own.signature for each in headers):
            calls = "; ".join(f"rank {rank}: {each}" for rank, each in zip(self.ranks, headers, strict=True))
            raise TrainingError(
                f"{self.detector.world}: ranks called different collectives: {calls}. Every rank must call the same "
                "ones in the same order, with tensors of the same size and type."
            )
        return headers

    def view(self, rank: int, header: CallHeader, own: Bytes) -> Bytes:
        """The tensor of a rank, in its memory; this rank's is `own`."""
        if rank == self.world.rank:
            return own
        try:
            return self.blocks.view(self.ranks[rank], header.location, len(own))
        except (OSError, LookupError) as error:
            raise self.detector.unreachable(COLLECTIVES[header.collective], error) from error
