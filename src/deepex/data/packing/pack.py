"""Packing: any source into one packed data set, by as many ranks as there are.

Ranks are processes that this one starts, or those of a launcher. It knows how they share the blocks; what a block is
and where it goes, a job knows.
"""

import ctypes
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import cloudpickle
import torch

from deepex.data.packing.block import BlockResult, Writing, verify_block, write_block
from deepex.data.packing.job import Job, PackConfig, Packed, Tell, begun, finish, silent, write_alone, write_blocks
from deepex.data.packing.journal import Journal
from deepex.data.source import Source
from deepex.errors import TrainingError
from deepex.fabric import Fabric, from_first, together

__all__ = ["PackConfig", "Packed", "Tell", "follow_starter", "pack"]


def pack(
    source: Source,
    out: Path,
    config: PackConfig | None = None,
    *,
    attributes: Mapping[str, Any] | None = None,
    fingerprint: str = "",
    tell: Tell = silent,
    fabric: Fabric | None = None,
) -> Packed:
    """Pack a source into `out`, going on with what an earlier try left beside it.

    Arguments:
        attributes: JSON-able facts that say where the data comes from.
        fingerprint: tells one state of the source's files from another; parts of another state are not used.
        tell: called as samples are done.
        fabric: set where a launcher started the ranks; each then calls this, and rank 0 puts the file in place.

    Example: `pack(ArraySource({"x": torch.rand(100, 8)}), Path("x.h5")).num_samples` is 100.
    """
    job = Job.of(source, out, config or PackConfig(), attributes, fingerprint)
    if fabric is not None and fabric.world.size > 1:
        return _pack_as_rank(job, fabric, tell)
    if job.config.ranks == 1:
        return write_alone(job, tell)
    with begun(job):
        journal = job.journal()
        _write_by_pool(job, journal, tell)
        return finish(job, journal)


def _write_by_pool(job: Job, journal: Journal, tell: Tell) -> None:
    """Let processes verify what an earlier try has written, and write the rest."""
    journal.read()
    with _pool(job) as pool:
        sound = {number: pool.submit(_verify, result) for number, result in journal.done.items()}
        journal.retain([number for number, each in sound.items() if each.result()])
        tell(journal.num_samples, job.layout.num_samples)
        todo = [number for number in range(job.layout.num_blocks) if number not in journal.done]
        for future in as_completed([pool.submit(_write, number) for number in todo]):
            journal.add(future.result())
            tell(journal.num_samples, job.layout.num_samples)


_writing: Writing | None = None  # what this process writes; set once in each process of a pool


@contextmanager
def _pool(job: Job) -> Iterator[ProcessPoolExecutor]:
    """Processes that write blocks, gone when they are not needed any more."""
    # A fork costs nothing and is safe while there is one thread; a reader opens its files in each process anew.
    method = "fork" if threading.active_count() == 1 else "spawn"
    pool = ProcessPoolExecutor(
        min(job.config.ranks, job.layout.num_blocks),
        get_context(method),
        initializer=_prepare,
        initargs=(cloudpickle.dumps(job.writing()),),  # by value, where a reader is a file of the user's own
    )
    try:
        yield pool
    except BrokenProcessPool as error:
        raise TrainingError(
            "a rank of the packing was killed, perhaps for want of memory. What is done is kept: go on with the same "
            "command and fewer --ranks."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare(writing: bytes) -> None:
    """Make this process one that writes blocks."""
    global _writing  # a pool's processes have no other place for what they share
    _writing = cloudpickle.loads(writing)
    follow_starter()


def follow_starter() -> None:
    """Work on one core, leave Ctrl-C to the process that started this one, and end when that one ends."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that started it
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
    starter = parent_process()
    if starter is not None and os.getppid() != starter.pid:
        os._exit(1)  # it ended before the kernel was asked


def _write(number: int) -> BlockResult:
    assert _writing is not None
    return write_block(_writing, number)


def _verify(result: BlockResult) -> bool:
    assert _writing is not None
    return verify_block(_writing, result)


def _pack_as_rank(job: Job, fabric: Fabric, tell: Tell) -> Packed:
    """The share of one rank of a launcher's; rank 0 begins and ends it, and all learn what went wrong anywhere."""
    rank, size = fabric.world.rank, fabric.world.size
    with ExitStack() as stack:

        def put_in_place() -> Packed:
            journal = job.journal()
            journal.read()
            journal.retain(range(job.layout.num_blocks))
            return finish(job, journal)

        from_first(fabric, lambda: stack.enter_context(begun(job)))
        mine = range(rank, job.layout.num_blocks, size)
        together(fabric, lambda: write_blocks(job, mine, job.journal(rank), tell))
        return from_first(fabric, put_in_place)
