"""The examination from start to end: look, measure, advise. It prints nothing; `say` is told what is under way."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from deepex.doctor.advice import advise
from deepex.doctor.allreduce import FABRICS, check_fabric
from deepex.doctor.compute import DTYPES, measure_copy, measure_gemm
from deepex.doctor.folders import measure_folder
from deepex.doctor.inspect import Neighbours, inspect_accelerators, inspect_memory, inspect_processor
from deepex.doctor.machine import FabricCheck, FolderSpeed, GemmRate, Machine, rounded
from deepex.doctor.software import inspect_software
from deepex.errors import UsageError
from deepex.record.provenance import describe_hardware

DATA_BYTES, TEMPORARY_BYTES = 256 * 10**6, 128 * 10**6


def examine(data_folder: Path, say: Callable[[str], None]) -> Machine:
    """Everything about this machine that matters for training; about half a minute."""
    start, measured = perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    say("looking at the machine")
    hardware, processor, memory = describe_hardware(), inspect_processor(), inspect_memory()
    software = inspect_software()
    thread_counts = tuple(sorted({1, processor.usable_cores}))
    gemm: list[GemmRate] = []
    neighbours = Neighbours()
    for dtype in DTYPES:
        say(f"measuring matrix products in {dtype}")
        gemm += measure_gemm(dtype, thread_counts)
    say("measuring memory copies")
    cache_bytes, available_bytes = (processor.l3_kib or 0) * 2**10, memory.available_gib * 2**30
    copy = measure_copy(thread_counts, cache_bytes=cache_bytes, available_bytes=available_bytes)
    others_cores = neighbours.cores()
    fabrics: list[FabricCheck] = []
    for name in FABRICS:
        say(f"measuring all-reduce between two ranks, fabric {name}")
        fabrics.append(check_fabric(name))
    say(f"measuring the data folder {data_folder}")
    data = measure_folder(data_folder.resolve(), DATA_BYTES)
    say("measuring the temporary folder")
    machine = Machine(
        measured=measured,
        seconds=0.0,
        host=hardware.host,
        system=hardware.system,
        processor=processor,
        memory=memory,
        accelerators=inspect_accelerators(),
        software=software,
        others_cores=others_cores,
        gemm=tuple(gemm),
        copy=copy,
        fabrics=tuple(fabrics),
        data_folder=data,
        temporary_folder=measure_temporary_folder(data),
    )
    return replace(machine, seconds=rounded(perf_counter() - start), warnings=advise(machine))


def measure_temporary_folder(data: FolderSpeed) -> FolderSpeed:
    """The folder for temporary files. On the data folder's file system it has its speed: once is enough."""
    try:
        folder = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no temporary folder that can be written: {error.strerror}. Set TMPDIR to one that can."
        ) from error
    if data.write_mb_per_second is not None and folder.stat().st_dev == Path(data.path).stat().st_dev:
        return replace(data, path=str(folder), measured_by="the data folder, on the same file system")
    return measure_folder(folder, TEMPORARY_BYTES)
