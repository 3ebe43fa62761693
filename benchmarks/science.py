"""The simulators against physics and against the clock, and the science tasks trained to their targets.

Parts: `diffraction` (against abTEM), `cosmology` (against linear theory and CAMB), `speed` (samples a CPU-second, two
ranks against one), `learning` (the trainings, hours of them) and `unseen` (CosmoFlow's, on boxes that nothing was
chosen by). What stands in benchmarks/science.json is not done again (delete it to begin anew), and a training that was
stopped goes on from its checkpoint in runs/science.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import nn

from deepex.api import build_recipe
from deepex.data.packing.packed import PackedSource
from deepex.data.source import allocate
from deepex.record.folder import RunFolder
from deepex.record.provenance import describe_hardware, describe_versions
from deepex.replica import Replica
from deepex.science.cosmology.checks import compare_growth, compare_with_halofit, compare_with_linear, measure
from deepex.science.cosmology.particle_mesh import Box, simulate
from deepex.science.cosmology.universe import PARAMETERS, Cosmology
from deepex.science.diffraction.checks import compare_with_abtem, measure_loss
from deepex.science.diffraction.crystals import CRYSTALS, build_crystal
from deepex.tasks.cosmoflow import Cosmoflow, to_physical
from deepex.tasks.data.atomai import AtomaiData
from deepex.tasks.data.cosmoflow import CosmoflowData
from deepex.tasks.data.make import MakeOptions, make_data
from deepex.train import checkpoint
from deepex.world import World

Row = dict[str, Any]
RUNS, JSON = Path("runs") / "science", Path("benchmarks") / "science.json"
TURNS = 3
TRAININGS = {
    "fashion, LeNet-5": ("fashion",),
    "fashion, ResNet-14": ("fashion", "--size", "medium"),
    "cosmoflow": ("cosmoflow",),
    "cosmoflow, seed 1": ("cosmoflow", "seed=1"),
    "cosmoflow, no symmetries": ("cosmoflow", "task.symmetries=false"),
    "atomai": ("atomai", "--ranks", "2", "data.batch=16"),
}
UNSEEN, RESAMPLINGS = Path("data") / "cosmoflow_unseen.h5", 10_000
# Boxes of 512 and 256 Mpc/h: the one holds waves that are still linear, the other resolves those that are not.
LARGE, FINE = Box(cells=128, cell_mpc=4.0), Box(cells=128, cell_mpc=2.0)


def main() -> None:
    """Do the parts that are asked for, and write rows and tables after each."""
    parts: dict[str, Callable[[], Iterable[Row]]] = {
        "diffraction": measure_diffraction,
        "cosmology": measure_cosmology,
        "speed": measure_speed,
        "learning": measure_learning,
        "unseen": measure_unseen,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=parts, action="append", help="one of them; again for another")
    chosen = parser.parse_args().part or list(parts)
    torch.set_num_threads(1)  # CPU-seconds of one core; trainings are programs of their own
    kept: dict[str, list[Row]] = json.loads(JSON.read_text()) if JSON.exists() else {}
    for part in chosen:
        done = [] if part in ("learning", "unseen") else kept.get(part, [])
        kept[part] = done or list(parts[part]())
        print_rows(part, kept[part])
        JSON.write_text(json.dumps(kept, indent=1) + "\n")
    write_markdown(kept)


def measure_diffraction() -> Iterable[Row]:
    """Each crystal's pattern beside abTEM's: its multislice on our grid, and all of it on one twice as fine."""
    microscope = replace(AtomaiData().microscope, box_angstrom=6.0)  # small, since abTEM sends each probe by itself
    for name in CRYSTALS:
        crystal = build_crystal(name)
        yield {
            "crystal": name,
            "L1, same potential, 500 Å": compare_with_abtem(crystal, 500.0, microscope),
            "L1, abTEM's own, 2 x as fine, 100 Å": compare_with_abtem(crystal, 100.0, microscope, refine=2),
            "lost beyond its angles, 500 Å": measure_loss(crystal, microscope.sampling_angstrom),
            "lost on a grid of 1/40 Å": measure_loss(crystal, 1 / 40, dtype=torch.complex128),
            "and by rounding to 32 bits": measure_loss(crystal, 1 / 40),
        }


def measure_cosmology() -> Iterable[Row]:
    """A middling universe beside linear theory and CAMB's halofit: two boxes, each a pair of opposite phases."""
    universe = Cosmology(omega_m=0.3, sigma_8=0.865, n_s=0.95, hubble=0.67)
    large, fine = (measure(universe, box, pairs=2) for box in (LARGE, FINE))
    for row in compare_with_linear(large):
        yield {"compared": "power / linear theory", **row}
    for row in compare_growth(large):
        yield {"compared": "growth / linear theory", **row}
    for name, measured in (("512", large), ("256", fine)):
        for row in compare_with_halofit(measured):
            yield {"compared": f"power / halofit, box of {name} Mpc/h", **row}
    counts = simulate(universe, Box(cells=64, cell_mpc=3.0), seed=(0,))
    yield {"compared": "particles lost of 64³, worst redshift", "z=0": max(64**3 - int(c.sum()) for c in counts)}


def measure_speed() -> Iterable[Row]:
    """CPU-seconds of one core, and the wall time of two ranks beside one; medians of turns."""
    paper, small = AtomaiData.of_size("paper"), CosmoflowData.of_size("small")
    yield from measure_patterns(paper)
    source, seconds = small.source(), []
    batch = allocate(source.spec, small.group)
    for box in range(TURNS + 1):
        before = time.process_time()
        source.read(range(box * small.group, (box + 1) * small.group), batch)
        seconds.append(time.process_time() - before)
    yield {"what": "cosmology: a box of 64³ at four redshifts", **_spread("CPU-seconds", seconds[1:])}
    few = {"diffraction": replace(paper, probes_per_crystal=400), "cosmology": replace(small, boxes=45)}
    for name, settings in few.items():
        yield {"what": f"{name}: {len(settings.source()):,} samples", **compare_ranks(settings)}


def measure_patterns(settings: AtomaiData) -> Iterable[Row]:
    """What a crystal's matrices take, what a pattern takes then, and the rate of the whole set."""
    source = settings.source()
    batch = allocate(source.spec, 400)
    for name in ("Al", "SrTiO3", "W"):
        first = CRYSTALS.index(name) * settings.group
        seconds = []
        for turn in range(TURNS + 1):
            before = time.process_time()
            source.read(range(first + 400 * turn, first + 400 * (turn + 1)), batch)
            seconds.append(time.process_time() - before)
        each = median(seconds[1:]) / 400
        build = seconds[0] - 400 * each
        yield {
            "crystal": name,
            "CPU-seconds for its matrices": build,
            "then patterns a CPU-second": 1 / each,
            "patterns a CPU-second at the paper's size": settings.group / (build + settings.group * each),
        }


def compare_ranks(settings: AtomaiData | CosmoflowData) -> Row:
    """One rank and two make the same data, in turns."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(TURNS):
        for ranks, times in seconds.items():
            with TemporaryDirectory() as folder:
                begun = time.monotonic()
                make_data(replace(settings, seed=turn), Path(folder) / "x.h5", MakeOptions(ranks=ranks))
                times.append(time.monotonic() - begun)
    ratios = [one / two for one, two in zip(seconds[1], seconds[2], strict=True)]
    return {
        "seconds, 1 rank": median(seconds[1]),
        "seconds, 2 ranks": median(seconds[2]),
        **_spread("times as fast", ratios),
    }


def _spread(name: str, values: list[float]) -> Row:
    return {name: median(values), "least": min(values), "most": max(values)}


def measure_learning() -> Iterable[Row]:
    """Each training to its target, or as far as its recipe goes."""
    for name, words in TRAININGS.items():
        folder = run_folder(name)
        if not (folder / "summary.json").exists():
            has_checkpoint = any((folder / "checkpoints").glob("epoch*"))
            command = ("resume", str(folder)) if has_checkpoint else ("run", *words, "--out", str(folder))
            subprocess.run([sys.executable, "-m", "deepex", *command], check=True)
        summary = json.loads((folder / "summary.json").read_text())
        kept = ("metric", "value", "target", "epochs_to_target", "epochs", "seconds", "samples_per_second", "ranks")
        cutoffs = {f"epochs to {c['value']:g}": c["epochs"] for c in summary["cutoffs"]}
        yield {"training": name, **{key: summary[key] for key in kept}, **cutoffs, **summary.get("findings", {})}


def run_folder(training: str) -> Path:
    return RUNS / training.replace(", ", "-").replace(" ", "-").lower()


def measure_unseen() -> Iterable[Row]:
    """CosmoFlow's networks on boxes of another seed, beside the baseline; bounds by drawing whole boxes again."""
    if not UNSEEN.exists():
        make_data(replace(CosmoflowData.of_size("small"), boxes=450, seed=2), UNSEEN, MakeOptions(ranks=2))
    source = PackedSource(UNSEEN)
    counts, power, target, box = (source.column(name) for name in ("counts", "power", "target", "box"))
    truth = to_physical(target)
    for training in (name for name in TRAININGS if name.startswith("cosmoflow")):
        task, model = load_cosmoflow(run_folder(training))
        guesses = task.predict(model, counts), task.fit_baseline().predict(power)
        network, baseline = (_mean_by_box(np.abs(to_physical(guess) - truth), box) for guess in guesses)
        for place, name in enumerate(PARAMETERS):
            least, most = _bound_ratio(network[:, place], baseline[:, place])
            yield {
                "training": training,
                "parameter": name,
                f"mean error, {len(truth):,} cubes of {len(network)} boxes": network[:, place].mean(),
                "the power spectrum's": baseline[:, place].mean(),
                "ratio": network[:, place].mean() / baseline[:, place].mean(),
                "95 % from": least,
                "to": most,
            }


def load_cosmoflow(folder: Path) -> tuple[Cosmoflow, nn.Module]:
    """The task of a finished run, and its network as trained."""
    task = build_recipe(str(folder / "recipe.toml")).task
    path = checkpoint.latest(RunFolder(folder))
    assert isinstance(task, Cosmoflow)
    assert path is not None
    state = checkpoint.load(path, World())
    replica = Replica(task.model(), state["layout"])
    replica.block.copy_(state["block"])
    return task, replica.model


def _mean_by_box(errors: NDArray[np.float64], box: NDArray[np.integer]) -> NDArray[np.float64]:
    return np.stack([errors[box == number].mean(axis=0) for number in np.unique(box)])


def _bound_ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> tuple[float, float]:
    """Where 95 % of the ratios lie that other boxes would give: a bootstrap of pairs."""
    drawn = np.random.default_rng(0).integers(len(above), size=(RESAMPLINGS, len(above)))
    least, most = np.quantile(above[drawn].mean(axis=1) / below[drawn].mean(axis=1), (0.025, 0.975))
    return float(least), float(most)


def print_rows(part: str, rows: list[Row]) -> None:
    """A part as tables, one for each kind of row."""
    console = Console(width=160, highlight=False)
    console.print(f"\n{part}", style="bold")
    for columns, alike in _alike(rows):
        table = Table(*columns, box=None, padding=(0, 2, 0, 0))
        for row in alike:
            table.add_row(*(_text(row[column]) for column in columns))
        console.print(table)


def write_markdown(kept: dict[str, list[Row]]) -> None:
    """All parts as a file to keep, which names its hardware."""
    hardware, versions = describe_hardware(), describe_versions(("abtem", "ase", "camb"))
    lines = [
        "# Science benchmark",
        "",
        f"- date: {datetime.now(UTC).date().isoformat()}",
        f"- processor: {hardware['processor']}, {hardware['instructions']}, {hardware['cores']} cores",
        f"- versions: {', '.join(f'{name} {version}' for name, version in versions.items())}",
        "- command: make science",
    ]
    for part, rows in kept.items():
        lines += ["", f"## {part}"]
        for columns, alike in _alike(rows):
            lines += ["", f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
            lines += [f"| {' | '.join(_text(row[column]) for column in columns)} |" for row in alike]
    path = JSON.with_name(f"science_{datetime.now(UTC).date().isoformat()}.md")
    path.write_text("\n".join([*lines, ""]))
    print(f"tables: {path}")


def _alike(rows: list[Row]) -> list[tuple[tuple[str, ...], list[Row]]]:
    """Rows by their columns, in their order."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row), []).append(row)
    return list(groups.items())


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return "yes" if value is True else "no" if value is False else "" if value is None else str(value)


if __name__ == "__main__":
    main()
