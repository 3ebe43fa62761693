"""The input benchmark: samples a second of deepex's feed and of what people use today, taking turns in one process.

A turn is one or several epochs, from the request for the first batch to the last one. Files are in the page cache,
since all have read them before. The feed gives up what it has read ahead before each of its turns, so that it does not
profit from the turns of others; a DataLoader's processes live on and read nothing between epochs. Beside that, programs
of their own: packing, and real runs, of which it reads the records.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from deepex.bench.input.data import IMAGE, STORES, Stored, store_labelled
from deepex.bench.input.run import CLASSES
from deepex.bench.input.variants import VARIANTS, Delivery, variants_of
from deepex.errors import TrainingError

TURN_SECONDS, MOST_EPOCHS = 0.5, 10  # a turn is so many epochs that it takes about so long
RUN_EPOCHS = 3  # of a real run, after the first
RUN_SAMPLES = 4096  # at most, of the run on images: an epoch of a second or two
LARGE_GIB, TIMES_LARGER = 0.8, 4  # what a run may use, and how many times that its data set has

SOURCES = {
    "packed": "packed HDF5: 1×120×85 uint8 (10.2 kB) to float32, batch 64",
    "map": "NumPy map: 1×120×85 uint8 (10.2 kB) to float32, batch 64",
    "png": "PNG files: 1×120×85 uint8 to float32, batch 64",
    "climate": "packed HDF5: 16×192×288 float32 (3.5 MB), batch 4",
    "pack-png": "packing PNG files",
    "run:protein": "run of the protein task",
    "run:images": "run of a small residual network on packed 1×120×85 images, batch 64",
    "run:large": "run of the same on images of four times the memory that it may use",
}

Log = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One variant of one source; what is measured is the median over turns.

    Attributes:
        samples_per_second: delivered, packed, decoded or trained on.
        ratio: to the rate of the best DataLoader on the same source; of `deepex-pack` and `opencv-decode`: to that of
            `opencv-decode`; none if that was not measured.
        share_of_memcpy: float32 bytes delivered in a second (a sample's are 4 for each of its values, whatever it is
            stored as) over those that `memcpy` writes in a second: torch's `copy_` of batches of the same size and
            dtype, from 256 MiB of memory into four buffers, on all cores, or on one in turns where that is faster. What
            is stored as bytes is read from a quarter of that memory, so more than 1 is possible.
        spread: the middle half of the rates over turns, as a share of their median.
        turns: how many were measured; of a run, epochs.
        input_share: what a run's steps waited for input, as a share of their wall time, after the first epoch.
        first_input_share: the same in the first epoch, when samples are read from files.
        share_of_memory: the most memory that a run had, as a share of `data.memory_gib`.
    """

    source: str
    variant: str
    samples_per_second: float
    ratio: float | None
    share_of_memcpy: float | None
    spread: float
    turns: int
    input_share: float | None = None
    first_input_share: float | None = None
    share_of_memory: float | None = None


def measure(sources: Sequence[str], repeats: int, num_samples: int, folder: Path, log: Log) -> list[Row]:
    """Rows for each source; data is made in `folder`, which must be empty."""
    stored: dict[str, Stored] = {}
    rows = []
    for source in sources:
        store = "png" if source == "pack-png" else source
        if store in STORES and store not in stored:
            log(f"{source}: making samples")
            stored[store] = STORES[store](folder, num_samples)
        if source == "pack-png":
            log(f"{source}: packing, {repeats} times")
            rows += measure_packing(stored["png"], folder / "packed.h5", repeats)
        elif source in stored:
            rows += measure_deliveries(stored[source], repeats, log)
        else:
            log(f"{source}: training")
            rows.append(measure_run(source, folder, repeats, num_samples))
    return rows


def measure_deliveries(stored: Stored, repeats: int, log: Log) -> list[Row]:
    """All ways to get batches of one source, taking turns."""
    rates: dict[str, list[float]] = {}
    with ExitStack() as stack:
        ways: dict[str, tuple[Delivery, int]] = {}
        for variant in variants_of(stored):
            log(f"{stored.source}: the first epochs of {variant}")
            delivery = stack.enter_context(closing(VARIANTS[variant](stored)))
            delivery.epoch()  # fills caches
            ways[variant] = delivery, _affordable_epochs(delivery)
            rates[variant] = []
        names = list(ways)
        for turn in range(repeats):
            log(f"{stored.source}: turn {turn + 1} of {repeats}")
            for variant in names[turn % len(names) :] + names[: turn % len(names)]:
                rates[variant].append(take_turn(*ways[variant]))
    # On a busy machine one core copies faster than all do, which wait for each other.
    rates["memcpy"] = [max(pair) for pair in zip(rates["memcpy"], rates.pop("memcpy-1"), strict=True)]
    medians = {variant: median(found) for variant, found in rates.items()}
    best = max(rate for variant, rate in medians.items() if variant.startswith("dataloader"))
    return [
        Row(
            source=stored.source,
            variant=variant,
            samples_per_second=medians[variant],
            ratio=medians[variant] / best,
            share_of_memcpy=medians[variant] / medians["memcpy"],  # both deliver the same bytes a sample
            spread=_spread(found),
            turns=len(found),
        )
        for variant, found in rates.items()
    ]


def take_turn(delivery: Delivery, epochs: int) -> float:
    """Samples a second over some epochs."""
    delivery.rest()
    started = perf_counter()
    samples = sum(delivery.epoch() for _ in range(epochs))
    seconds = perf_counter() - started
    delivery.rest()
    return samples / seconds


def measure_packing(stored: Stored, out: Path, repeats: int) -> list[Row]:
    """Packing a folder of PNGs, beside decoding them by OpenCV on all cores if that is installed."""
    told = _run_program("deepex.bench.input.packing", str(stored.path), str(out), str(repeats))
    rates = {
        variant: [stored.num_samples / seconds for seconds in found] for variant, found in json.loads(told).items()
    }
    decoding = median(rates["opencv-decode"]) if "opencv-decode" in rates else None
    return [
        Row(
            source=stored.source,
            variant=variant,
            samples_per_second=median(found),
            ratio=None if decoding is None else median(found) / decoding,
            share_of_memcpy=None,
            spread=_spread(found),
            turns=len(found),
        )
        for variant, found in rates.items()
    ]


def measure_run(source: str, folder: Path, repeats: int, num_samples: int) -> Row:
    """A real run in a program of its own, told by its record."""
    out = folder / source.replace(":", "-")
    images = out.with_suffix(".h5")
    epochs = 1 + min(repeats, RUN_EPOCHS)
    share_of_memory = None
    if source == "run:protein":
        settings = ("--quiet", "--until", "0", f"stop.epochs={epochs}")
        _run_program("deepex", "run", "protein", "--out", str(out), *settings)
    elif source == "run:images":
        store_labelled(images, min(num_samples, RUN_SAMPLES), CLASSES)
        _run_program("deepex.bench.input.run", str(images), str(out), str(epochs))
    else:
        store_labelled(images, int(TIMES_LARGER * LARGE_GIB * 2**30 / prod(IMAGE)), CLASSES)
        _run_program("deepex.bench.input.run", str(images), str(out), "2", str(LARGE_GIB))
        share_of_memory = json.loads((out / "summary.json").read_text())["peak_memory_gib"] / LARGE_GIB
        images.unlink()
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    later = lines[1:]
    return Row(
        source=source,
        variant="deepex",
        samples_per_second=median(line["samples_per_second"] for line in later),
        ratio=None,
        share_of_memcpy=None,
        spread=_spread([line["samples_per_second"] for line in later]),
        turns=len(later),
        input_share=_input_share(later),
        first_input_share=_input_share(lines[:1]),
        share_of_memory=share_of_memory,
    )


def to_json(rows: Sequence[Row]) -> str:
    return json.dumps([asdict(row) for row in rows], indent=2) + "\n"


def _affordable_epochs(delivery: Delivery) -> int:
    """How many epochs make up a turn."""
    delivery.rest()
    started = perf_counter()
    delivery.epoch()
    seconds = perf_counter() - started
    return max(1, min(MOST_EPOCHS, round(TURN_SECONDS / seconds)))


def _input_share(lines: Sequence[dict[str, Any]]) -> float:
    waited = sum(line["phase_seconds"]["input"] for line in lines)
    return float(waited / sum(line["step_wall_seconds"] for line in lines))


def _spread(rates: Sequence[float]) -> float:
    """The distance between the quartiles, as a share of the median."""
    if len(rates) < 2:
        return 0.0
    low, middle, high = quantiles(rates, n=4, method="inclusive")
    return (high - low) / middle


def _run_program(*words: str) -> str:
    """What a module prints that is run as a program."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", *words], capture_output=True, text=True)
    if done.returncode:
        told = " ".join(done.stderr.strip().splitlines()[-5:])
        raise TrainingError(f"python -m {' '.join(words)} ended with exit code {done.returncode}: {told}")
    return done.stdout
