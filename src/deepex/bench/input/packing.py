"""A program of the input benchmark: packs a folder of PNGs, in turns with OpenCV that decodes them on all cores.

`python -m deepex.bench.input.packing FOLDER OUT REPEATS` prints the seconds of each turn as JSON. It is a process of
its own since packing starts its ranks by a fork where no thread runs, as it does in a script.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter

from deepex.bench.input.variants import opencv
from deepex.data.packing.pack import PackConfig, pack
from deepex.data.sources import open_source


def time_packing(folder: Path, out: Path, cores: int) -> float:
    """Seconds from the folder to the packed file, written to disk."""
    started = perf_counter()
    pack(open_source(folder), out, PackConfig(ranks=cores))
    seconds = perf_counter() - started
    out.unlink()
    return seconds


class Decoders:
    """Processes that decode a share of the files each, whenever they are told to."""

    def __init__(self, pipes: Sequence["Connection[bool, bool]"]) -> None:
        self.pipes = pipes

    def time_decoding(self) -> float:
        """Seconds until all files are decoded."""
        started = perf_counter()
        for pipe in self.pipes:
            pipe.send(True)
        for pipe in self.pipes:
            pipe.recv()
        return perf_counter() - started


@contextmanager
def start_decoders(folder: Path, cores: int) -> Iterator[Decoders]:
    """One process a core, started beforehand and ended on leaving."""
    files = [str(file) for file in sorted(folder.iterdir())]
    context = get_context("fork")
    pipes, processes = [], []
    for core in range(cores):
        here, there = context.Pipe()
        process = context.Process(target=_decode, args=(files[core::cores], there), daemon=True)
        process.start()
        pipes.append(here)
        processes.append(process)
    try:
        yield Decoders(pipes)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def measure(folder: Path, out: Path, repeats: int) -> dict[str, list[float]]:
    """Seconds by variant and turn; OpenCV is left out where it is not installed."""
    cores = len(os.sched_getaffinity(0))
    if opencv() is None:
        time_packing(folder, out, cores)
        return {"deepex-pack": [time_packing(folder, out, cores) for _ in range(repeats)]}
    seconds: dict[str, list[float]] = {"deepex-pack": [], "opencv-decode": []}
    with start_decoders(folder, cores) as decoders:
        for turn in range(repeats + 1):
            taken = {"deepex-pack": time_packing(folder, out, cores), "opencv-decode": decoders.time_decoding()}
            if turn:  # the first one fills caches
                for variant, each in taken.items():
                    seconds[variant].append(each)
    return seconds


def _decode(files: Sequence[str], pipe: "Connection[bool, bool]") -> None:
    decoder = opencv()
    decoder.setNumThreads(1)
    while pipe.recv():
        for file in files:
            decoder.imread(file, decoder.IMREAD_UNCHANGED)
        pipe.send(True)


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))))
