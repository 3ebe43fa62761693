"""`allreduce`: synchronous training, the gradient averaged over all ranks in every step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from deepex.fabric import Fabric, Work
from deepex.fabric.link import measure_link
from deepex.replica import Entry
from deepex.sync.compressors.compressor import Compressor, Uncompressed
from deepex.sync.noise import NoiseMeter, square
from deepex.sync.spec import SyncSpec
from deepex.sync.sync import SyncContext, SyncTraits

MEBIBYTE = 2**20
LEAST_BUCKET, MOST_BUCKET = MEBIBYTE // 4, 32 * MEBIBYTE
LATENCIES = 16  # a bucket takes at least as many latencies, so that cutting costs a sixteenth at most


@dataclass
class Bucket:
    """A slice of the gradients that leaves at once; `missing` parameters have not got theirs yet."""

    start: int
    stop: int
    parameters: int
    missing: int


class AllReduce:
    """Average the whole gradient block in every step.

    g <- (1/P) sum_p g_p, then every replica makes the same update. Gradients stand in the order in which backward
    finishes them, so slices of the block leave while backward still runs, where the fabric works beside the rank.
    Weights stay equal bit for bit; batch-norm statistics follow each rank's own samples and are averaged by `drain`.

    A slice's size is found once, from the fabric's latency and bandwidth. From three ranks on, rounding depends on how
    the gradient is cut; the record has the size, and `bucket=MIB` fixes it.

    Arguments:
        compressor: what travels.
        bucket_bytes: the size of a slice; None to find it.

    Reference: Li et al., PyTorch Distributed, VLDB 2020, for buckets.
    """

    def __init__(self, compressor: Compressor | None = None, bucket_bytes: int | None = None) -> None:
        self.compressor = compressor or Uncompressed()
        self.bucket_bytes = bucket_bytes
        self.traits = SyncTraits(
            staleness=None if self.compressor.delays else 0, shares_gradients=True, repeats=True, interval=1
        )
        self.lockstep: Fabric
        self.notes: dict[str, Any] = {}
        self.noise = NoiseMeter()
        self._buckets: list[Bucket] = []
        self._bucket_of: dict[nn.Parameter, Bucket] = {}
        self._sent: list[Work] = []
        self._squares: list[Tensor] | None = None  # of what this rank has sent, in a step that is looked at

    @classmethod
    def parse(cls, spec: SyncSpec, compressor: Compressor) -> Self:
        spec.takes("bucket")
        return cls(compressor, parse_bucket(spec))

    def num_training_ranks(self, num_ranks: int) -> int:
        return num_ranks

    def prepare(self, context: SyncContext) -> None:
        self.replica, self.lockstep = context.replica, context.fabric
        self.lockstep.broadcast_(self.replica.block, source=0).wait()
        self.compressor.prepare(self.replica, self.lockstep)
        if self.lockstep.world.size == 1:
            return
        if context.measures_noise and not self.compressor.delays:
            self.noise.begin(self.lockstep.world.size, context.batch)
            self._squares = []  # slices leave before the step's number is known, so the first one is looked at
        total = self.replica.gradients.nbytes
        size = total
        if self.lockstep.overlaps:
            size = self.bucket_bytes or self._find_size(total)
            self.notes["bucket_mib"] = size / MEBIBYTE
        self._buckets = cut(self.replica.entries, size)
        if len(self._buckets) > 1 and context.sends_early:
            self._listen()

    def mix_gradients(self, step: int) -> bool:
        """Send what backward has not sent, in order, and wait for all of it."""
        for bucket in self._buckets[len(self._sent) :]:
            self._send(bucket)
        for work in self._sent:
            work.wait()
        self._sent.clear()
        for bucket in self._buckets:
            bucket.missing = bucket.parameters
        if self._squares is not None:
            self.noise.add_gradient(torch.stack(self._squares).sum(), square(self.replica.gradients))
        self._squares = [] if self.noise.is_due(step + 1) else None
        return True

    def mix_weights(self, step: int) -> bool:
        return False

    def drain(self) -> None:
        mean_statistics(self.replica.statistics, self.lockstep)

    def state(self) -> dict[str, Tensor]:
        return self.compressor.state()

    def _find_size(self, total: int) -> int:
        """The size at which a slice's latency is a small part of its time, as all ranks agree."""
        link = measure_link(self.lockstep, total)
        wanted = min(max(LATENCIES * link.latency_seconds * link.bytes_per_second, LEAST_BUCKET), MOST_BUCKET)
        size = int(2 ** round(wanted).bit_length() // 2)
        self.notes["link"] = link.to_json()
        spec = SyncSpec(name="allreduce", compression=self.compressor.name)
        self.notes["as_run"] = spec.with_options(bucket=f"{size / MEBIBYTE:g}").text
        return size

    def _listen(self) -> None:
        """Learn from each parameter when backward has finished its gradient."""
        for entry in self.replica.entries:
            bucket = next(bucket for bucket in self._buckets if bucket.start <= entry.start < bucket.stop)
            self._bucket_of[entry.parameter] = bucket
            _on_gradient(entry.parameter, self._finished)

    def _finished(self, parameter: nn.Parameter) -> None:
        """A gradient is complete: send the buckets that are, in their order, which all ranks share."""
        if not self.replica.collects:
            return
        self._bucket_of[parameter].missing -= 1
        while len(self._sent) < len(self._buckets) and self._buckets[len(self._sent)].missing == 0:
            self._send(self._buckets[len(self._sent)])

    def _send(self, bucket: Bucket) -> None:
        gradients = self.replica.gradients[bucket.start : bucket.stop]
        if self._squares is not None:
            self._squares.append(square(gradients))
        self._sent.append(self.compressor.mean_(gradients, bucket.start))


def parse_bucket(spec: SyncSpec) -> int | None:
    """The option `bucket=MIB` in bytes; None where it is not given."""
    return int(spec.number("bucket", 4.0, below=4096.0) * MEBIBYTE) if "bucket" in spec.options else None


def _on_gradient(parameter: nn.Parameter, call: Callable[[nn.Parameter], None]) -> None:
    parameter.register_post_accumulate_grad_hook(call)  # type: ignore[no-untyped-call]  # torch leaves it untyped


def cut(entries: Sequence[Entry], num_bytes: int) -> list[Bucket]:
    """Slices of whole parameters, each at least `num_bytes` long but for the last."""
    buckets: list[Bucket] = []
    for entry in entries:
        last = buckets[-1] if buckets else None
        if last is None or 4 * (last.stop - last.start) >= num_bytes:
            buckets.append(Bucket(entry.start, entry.stop, 1, 1))
        else:
            last.stop, last.parameters, last.missing = entry.stop, last.parameters + 1, last.missing + 1
    return buckets


def mean_statistics(statistics: Tensor, fabric: Fabric) -> None:
    """Average batch-norm's statistics, where there are any."""
    if statistics.numel():
        fabric.mean_(statistics).wait()
