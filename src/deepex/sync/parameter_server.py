"""Parameter servers: each holds a slice of the weights and adds the changes that clients send, as they come.

A conversation between a client and a server is a fabric of two, in which a broadcast is a message. Servers are threads
of the ranks they live on, and run while an epoch's steps do, so that nothing is waited for between epochs.
"""

import threading
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from deepex.errors import DeepexError
from deepex.fabric import Fabric

STAY, LEAVE = 0.0, 1.0
HEADER = 2  # a message begins with: stay or leave (a reply: unused), and the version of the weights that it knows


class Server:
    """A slice of the weights, and how often it has changed."""

    def __init__(self, weights: Tensor) -> None:
        self.weights = weights.clone()
        self.version = torch.zeros(1)
        self._lock = threading.Lock()

    def exchange(self, message: Tensor) -> None:
        """Add a client's change, and put the new weights and their version in its place.

        The message's first element becomes the number of changes by others since the version that the client knew.
        """
        with self._lock:
            self.weights.add_(message[HEADER:])
            others = float(self.version) - float(message[1])
            self.version.add_(1)
            message[0], message[1] = others, self.version
            message[HEADER:].copy_(self.weights)


class Exchange:
    """This rank's part in a world of clients and servers.

    Arguments:
        fabric: all ranks.
        weights: the weights at the start, equal on all ranks.
        clients: the ranks that push changes and pull weights.
        homes: the ranks that servers live on, one each; a slice of the weights for each.
    """

    def __init__(self, fabric: Fabric, weights: Tensor, clients: Sequence[int], homes: Sequence[int]) -> None:
        rank = fabric.world.rank
        self.fabric, self.homes = fabric, list(homes)
        self.slices = [slice(*bounds) for bounds in _shares(len(weights), len(homes))]
        self.server = Server(weights[self.slices[self.homes.index(rank)]]) if rank in self.homes else None
        self.staleness: dict[int, int] = {}
        self.problem: DeepexError | None = None
        self._anchor = weights.clone()
        self._known = torch.zeros(len(homes))
        self._messages = [torch.zeros(HEADER + part.stop - part.start) for part in self.slices]
        self._to_servers: dict[int, Fabric] = {}
        self._from_clients: list[Fabric] = []
        self._threads: list[threading.Thread] = []
        for home in self.homes:  # in one order on all ranks, so that nobody waits in a circle
            for client in clients:
                if rank == client != home:
                    self._to_servers[home] = fabric.group([client, home])
                elif rank == home != client:
                    self._from_clients.append(fabric.group([client, home]))

    def open(self) -> None:
        """Serve, if this rank has a server that does not yet."""
        if self.problem is not None:
            raise self.problem
        if self.server is not None and not self._threads:
            self._threads = [
                threading.Thread(target=self._serve, args=(self.server, pair), name="deepex-server", daemon=True)
                for pair in self._from_clients
            ]
            for thread in self._threads:
                thread.start()

    def push_and_pull(self, weights: Tensor, *, leave: bool = False) -> None:
        """Send how the weights have changed since the last time, and replace them by what the servers now hold."""
        torch.sub(weights, self._anchor, out=self._anchor)
        sent = []
        for number, (home, part, message) in enumerate(zip(self.homes, self.slices, self._messages, strict=True)):
            message[0], message[1] = LEAVE if leave else STAY, self._known[number]
            message[HEADER:].copy_(self._anchor[part])
            if home in self._to_servers:
                sent.append(self._to_servers[home].broadcast_(message, source=0))
        for work in sent:
            work.wait()
        received = [self._to_servers[home].broadcast_(message, source=1) for home, message in self._remote()]
        if self.server is not None:
            self.server.exchange(self._messages[self.homes.index(self.fabric.world.rank)])
        for work in received:
            work.wait()
        for number, (part, message) in enumerate(zip(self.slices, self._messages, strict=True)):
            self._known[number] = message[1]
            weights[part].copy_(message[HEADER:])
        others = max(int(message[0]) for message in self._messages)
        self.staleness[others] = self.staleness.get(others, 0) + 1
        self._anchor.copy_(weights)

    def close(self) -> None:
        """Wait until all clients have left this rank's server."""
        for thread in self._threads:
            thread.join()
        self._threads = []
        if self.problem is not None:
            raise self.problem

    def spread(self, weights: Tensor) -> None:
        """What the servers hold, to all ranks of the world."""
        for home, part in zip(self.homes, self.slices, strict=True):
            if home == self.fabric.world.rank and self.server is not None:
                weights[part].copy_(self.server.weights)
            self.fabric.broadcast_(weights[part], source=home).wait()
        self._anchor.copy_(weights)
        self._known.copy_(torch.tensor(self.fabric.gather(self._version())).sum(0))

    def state(self) -> dict[str, Tensor]:
        own = {} if self.server is None else {"server": self.server.weights, "version": self.server.version}
        return {"anchor": self._anchor, "known": self._known, **own}

    def _remote(self) -> list[tuple[int, Tensor]]:
        pairs = zip(self.homes, self._messages, strict=True)
        return [(home, message) for home, message in pairs if home in self._to_servers]

    def _version(self) -> list[float]:
        """The version of this rank's server in its place among all servers' versions, zeros elsewhere."""
        rank, server = self.fabric.world.rank, self.server
        return [float(server.version) if server is not None and home == rank else 0.0 for home in self.homes]

    def _serve(self, server: Server, pair: Fabric) -> None:
        """What a thread does for one client, until it leaves."""
        message = torch.zeros(HEADER + len(server.weights))
        try:
            while True:
                pair.broadcast_(message, source=0).wait()
                leaves = float(message[0]) == LEAVE
                server.exchange(message)
                pair.broadcast_(message, source=1).wait()
                if leaves:
                    return
        except DeepexError as error:  # told to the rank in its next step
            self.problem = error


def _shares(length: int, parts: int) -> list[tuple[int, int]]:
    """Bounds of nearly equal slices.

    >>> _shares(10, 3)
    [(0, 3), (3, 6), (6, 10)]
    """
    return list(pairwise(length * part // parts for part in range(parts + 1)))
