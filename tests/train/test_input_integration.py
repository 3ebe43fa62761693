"""Input as a run meets it: memory that is bounded, files that fail in the middle, classes that are balanced."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from deepex.data import ArraySource, DataConfig, Preparation, Subset
from deepex.data.feeding.convert import Convert
from deepex.data.packing.header import Content, Shape, write_header
from deepex.data.packing.pack import pack
from deepex.data.packing.packed import NAMES
from deepex.data.source import Indices
from deepex.data.statistics import Moments
from deepex.errors import ConfigError, DataError
from deepex.launch.start import start
from deepex.sample import Batch, Field, SampleSpec
from deepex.tasks.own import task
from deepex.train.recipe import Recipe, StopConfig
from tests.interpreter import PYTHON

WIDTH, LARGE = 1 << 14, 4 * 0.8  # bytes of a sample, GiB of a data set four times what its run may use

RUN = """
import sys, torch, deepex as dx
from torch import nn
from deepex.data import Preparation
from deepex.data.feeding.convert import Convert
task = dx.task(
    model=lambda: nn.Linear(64, 1),
    data=sys.argv[1],
    loss=lambda model, batch: model(batch["x"][:, :64]).square().mean(),
    target=-1.0,
    preparation=Preparation(convert={"x": Convert(scale=(255.0,))}),
)
dx.run(task, out="run", settings={"data.memory_gib": 0.8, "data.batch": 128, "stop.epochs": 1})
"""


def write_sparse(path: Path, num_samples: int) -> None:
    """A packed file that is all zeros and takes no space on the disk, but as much memory as any when it is read."""
    spec = SampleSpec(fields={"x": Field(shape=(WIDTH,), dtype="uint8")})
    shape = Shape(spec=spec, num_samples=num_samples, name_bytes=8, block_samples=num_samples)
    moments = {"x": Moments.of(np.zeros((1, 1, 1)))}
    checksums = {"x": ("00" * 32,), NAMES: ("00" * 32,)}
    content = Content(block_sha256=checksums, moments=moments, class_counts={}, attributes={})
    columns = write_header(path, shape, content)
    with open(path, "r+b") as file:
        file.seek(columns[NAMES].offset)
        file.write(b"".join(f"{number:08d}".encode() for number in range(num_samples)))


def test_a_run_on_four_times_the_memory_stays_within_it(tmp_path: Path) -> None:
    write_sparse(tmp_path / "large.h5", int(LARGE * 2**30 / WIDTH))
    command = [PYTHON, "-c", RUN, "large.h5"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["peak_memory_gib"] < 1.1 * 0.8
    kept = next(line for line in done.stdout.splitlines() if line.startswith("keeping"))
    assert 0 < int(kept.split()[1].replace(",", "")) < 0.25 * LARGE * 2**30 / WIDTH


def classes(count: int = 400) -> ArraySource:
    """Two classes, one of them rare, that a line tells apart."""
    labels = (torch.arange(count) % 20 == 0).long()
    values = torch.randn(count, 3, generator=torch.Generator().manual_seed(0)) + labels[:, None]
    fields = {
        "x": Field(shape=(3,), dtype="float32"),
        "label": Field(shape=(), dtype="int64", classes=("common", "rare")),
    }
    return ArraySource({"x": values, "label": labels}, fields)


def cross_entropy(model: nn.Module, batch: Batch) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch["x"]), batch["label"])


def recipe(data: object, **settings: object) -> Recipe:
    own = task(
        model=lambda: nn.Linear(3, 2),
        data=data,
        loss=cross_entropy,
        target=0.0,
        preparation=Preparation(convert={"x": Convert(scale=(2.0,))}),
    )
    config = replace(DataConfig(batch=16), **settings)  # type: ignore[arg-type]  # of several types
    return Recipe(task=own, data=config, stop=StopConfig(epochs=2))


@pytest.mark.parametrize(
    "settings", [{}, {"balance": "label"}, {"last": "pad", "shuffle": "local"}, {"memory_gib": 0.0}]
)
def test_a_packed_file_trains_as_the_source_it_came_from(tmp_path: Path, settings: dict[str, object]) -> None:
    path = pack(classes(), tmp_path / "packed.h5").path
    runs = [start(recipe(data, **settings), tmp_path / name, "quiet") for data, name in [(path, "a"), (classes(), "b")]]
    first, second = (run.read_json("summary.json") for run in runs)
    assert first["weights_sha256"] == second["weights_sha256"]
    assert runs[0].read_json("record.json")["data_left_out"] == {}


class Failing(ArraySource):
    """Samples on a disk that fails after some reads."""

    reads = 0

    def read(self, indices: Indices, out: Batch) -> None:
        self.reads += 1
        if self.reads > 30:
            raise DataError("disk.h5 was changed while it was read")
        super().read(indices, out)


class Counted:
    """Samples on a disk that counts how often each is read."""

    def __init__(self, source: ArraySource) -> None:
        self.source, self.spec = source, source.spec
        self.times = np.zeros(len(source), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.source)

    def name(self, index: int) -> str:
        return self.source.name(index)

    def read(self, indices: Indices, out: Batch) -> None:
        np.add.at(self.times, np.asarray(indices), 1)
        self.source.read(indices, out)


@pytest.mark.parametrize(("memory_gib", "times"), [(None, 1), (0.0, 2)])
def test_validation_samples_are_read_once_where_memory_holds_them(
    tmp_path: Path, memory_gib: float | None, times: int
) -> None:
    source = Counted(classes())
    chosen = recipe(source, memory_gib=memory_gib)
    start(chosen, tmp_path / "run", "quiet")
    validation = chosen.task.data().validation
    assert isinstance(validation, Subset)
    assert source.times[validation.indices].tolist() == [times] * len(validation)


def test_a_file_that_fails_in_mid_epoch_ends_the_run_with_its_error(tmp_path: Path) -> None:
    source = classes()
    with pytest.raises(DataError, match=r"disk\.h5 was changed"):
        start(recipe(Failing(source.tensors, source.spec.fields), memory_gib=0.0), tmp_path / "run", "quiet")


@pytest.mark.parametrize(("field", "text"), [("lable", "Did you mean 'label'"), ("x", "one whole number a sample")])
def test_a_field_that_can_not_be_balanced_is_refused(tmp_path: Path, field: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        start(recipe(classes(), balance=field), tmp_path / "run", "quiet")
    assert not (tmp_path / "run").exists()


OPENING = """
import os, sys, torch, deepex as dx
from pathlib import Path
from torch import nn

def open_logged():
    with open("opened.txt", "a") as file:
        file.write(f"{os.getpid()}\\n")
    return {"x": torch.randn(200, 4)}

task = dx.task(
    model=lambda: nn.Linear(4, 1),
    data=open_logged,
    loss=lambda model, batch: model(batch["x"]).square().mean(),
    target=-1.0,
)
if __name__ == "__main__":
    dx.run(task, out="run", ranks=int(sys.argv[1]), settings={"data.batch": 16, "stop.epochs": 2})
    print(os.getpid())
"""


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_every_process_of_a_run_opens_its_data_once(tmp_path: Path, num_ranks: int) -> None:
    """One rank is the process itself; two are processes of their own, and what starts them looks at the data first."""
    command = [sys.executable, "-c", OPENING, str(num_ranks)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    processes = (tmp_path / "opened.txt").read_text().split()
    assert len(processes) == len(set(processes)) == (1 if num_ranks == 1 else 1 + num_ranks)
    assert processes[0] == done.stdout.split()[-1]
