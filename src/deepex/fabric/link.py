"""What a message costs on a live fabric: its latency, and the bytes a second of a long one."""

from dataclasses import asdict, dataclass
from time import perf_counter

import torch

from deepex.fabric.fabric import Fabric

SHORT, LONG = 64, 2**18  # elements: 256 bytes, 1 MiB


@dataclass(frozen=True, kw_only=True)
class Link:
    """Seconds of an all-reduce are about `latency_seconds + bytes / bytes_per_second`."""

    latency_seconds: float
    bytes_per_second: float

    def seconds(self, num_bytes: float) -> float:
        """How long an all-reduce of so many bytes takes, by this line.

        >>> Link(latency_seconds=0.001, bytes_per_second=1e6).seconds(1e6)
        1.001
        """
        return self.latency_seconds + num_bytes / self.bytes_per_second

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def measure_link(fabric: Fabric, num_bytes: int) -> Link:
    """Time short and long all-reduces; all ranks get rank 0's answer. `num_bytes` bounds the long ones."""
    long = max(SHORT * 2, min(LONG, num_bytes // 4))
    short_seconds, long_seconds = _time(fabric, SHORT, 20), _time(fabric, long, 6)
    rate = 4 * (long - SHORT) / max(long_seconds - short_seconds, 1e-6)
    return fabric.gather(Link(latency_seconds=short_seconds, bytes_per_second=rate))[0]


def _time(fabric: Fabric, numel: int, times: int) -> float:
    """The best of a few times: on busy cores most of the others are the neighbours' doing, not the link's."""
    buffer = torch.zeros(numel, device=fabric.world.torch_device)
    seconds = []
    for _ in range(times):
        start = perf_counter()
        fabric.mean_(buffer).wait()
        seconds.append(perf_counter() - start)
    return min(seconds)
