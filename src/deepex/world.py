"""World: who am I, who are my peers. A value; `launch/` finds it out, and nothing else reads the environment for it."""

import socket
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True, kw_only=True)
class World:
    """A rank's place among its peers, the host it runs on and the device it computes with.

    >>> World().is_first
    True
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    host: str = field(default_factory=socket.gethostname)
    device: str = "cpu"
    launcher: str = "none"

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise ValueError(f"rank {self.rank} of a world of {self.size}")

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes and speaks for all."""
        return self.rank == 0

    @property
    def file_stem(self) -> str:
        """The name of this rank in file names."""
        return f"rank{self.rank:05d}"

    @property
    def torch_device(self) -> torch.device:
        return torch.device(self.device)

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.size} on {self.host}"
