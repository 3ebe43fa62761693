"""The input benchmark as a user calls it, on few samples, and what it makes of its rows."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from deepex.bench.input.benchmark import Row
from deepex.bench.input.data import STORES, Repeated, draw_images
from deepex.bench.input.table import conclusions, markdown
from deepex.bench.input.variants import VARIANTS, variants_of
from deepex.cli.app import run_command
from deepex.data.source import ArraySource, read_all
from tests.conftest import Command

ROW = Row(
    source="packed",
    variant="dataloader-0",
    samples_per_second=100.0,
    ratio=1.0,
    share_of_memcpy=0.1,
    spread=0.1,
    turns=3,
)
SMALL = ("--samples", "192", "--repeats", "1")


def test_rows_tables_and_conclusions_of_few_samples(deepex: Command, tmp_path: Path) -> None:
    chosen = ("packed", "pack-png", "run:images")
    done = deepex(
        "bench",
        "input",
        *SMALL,
        *(word for source in chosen for word in ("--source", source)),
        *("--folder", str(tmp_path), "--json", "rows.json", "--markdown", "table.md"),
    )
    assert done.returncode == 0, done.stderr
    rows = {(row["source"], row["variant"]): row for row in json.loads((tmp_path / "rows.json").read_text())}
    assert all(row["samples_per_second"] > 0 and row["turns"] == 1 for row in rows.values())
    rates = {variant: row["samples_per_second"] for (source, variant), row in rows.items() if source == "packed"}
    assert {"dataloader-0", "dataloader-1", "dataloader-2", "deepex", "deepex-uncached", "memcpy"} <= set(rates)
    assert ("webdataset" in rates) == (find_spec("webdataset") is not None)
    best = max(rate for variant, rate in rates.items() if variant.startswith("dataloader"))
    for variant, rate in rates.items():
        assert rows["packed", variant]["ratio"] == pytest.approx(rate / best)
        assert rows["packed", variant]["share_of_memcpy"] == pytest.approx(rate / rates["memcpy"])
    assert (("png", "opencv-decode") in rows) == (find_spec("cv2") is not None)
    assert rows["png", "deepex-pack"]["share_of_memcpy"] is None
    assert 0 < rows["run:images", "deepex"]["input_share"] < 1
    assert "On packed 10 kB samples the feed gives" in " ".join(done.stdout.split())
    assert "| deepex |" in (tmp_path / "table.md").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"rows.json", "table.md"}, "the data is removed"


@pytest.mark.parametrize("source", list(STORES))
def test_every_way_delivers_an_epoch(source: str, tmp_path: Path) -> None:
    stored = STORES[source](tmp_path, 192)
    for variant in variants_of(stored):
        delivery = VARIANTS[variant](stored)
        assert delivery.epoch() == stored.num_samples
        delivery.rest()
        delivery.close()


def test_images_are_stored_again_and_again() -> None:
    images = draw_images(3)
    again = Repeated(ArraySource({"image": images}), 7)
    assert np.array_equal(read_all(again)["image"].numpy(), images[[0, 1, 2, 0, 1, 2, 0]])
    assert images.max() > 100
    assert len({image.tobytes() for image in images}) == 3


def test_conclusions_compare_with_the_best_dataloader_and_doubt_what_is_restless() -> None:
    rows = [
        ROW,
        replace(ROW, variant="dataloader-2", samples_per_second=50.0),
        replace(ROW, variant="webdataset", samples_per_second=25.0),
        replace(ROW, variant="deepex-uncached", samples_per_second=150.0),
        replace(ROW, variant="deepex", samples_per_second=200.0),
        replace(ROW, source="png", variant="deepex-pack", ratio=0.5),
        replace(ROW, source="run:protein", variant="deepex", ratio=None, input_share=0.005, first_input_share=0.01),
    ]
    feed, packing, run = conclusions(rows)
    assert "2.00 times the best DataLoader (dataloader-0), 4.00 times DataLoader with 2 workers" in feed
    assert "8.00 times webdataset; without samples kept in memory, 1.50 times" in feed
    assert "takes 2.00 times as long as OpenCV" in packing
    assert "waits 0.50 % of its step time for input, 1.00 % in its first epoch" in run
    assert "dataloader-0 on packed 90 %" in conclusions([replace(ROW, spread=0.9), *rows[1:]])[-1]
    assert "- processor: x" in markdown(rows, {"processor": "x"})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--source", "packet"], "unknown source 'packet'. Did you mean 'packed'?"),
        (["--repeats", "0"], "--repeats 0. Allowed: whole numbers from 1."),
        (["--samples", "10"], "--samples 10. Allowed: whole numbers from 128."),
        (["--folder", "absent"], "--folder absent is no folder that can be written to."),
        (["--samples", "1000000000000"], "Choose another with --folder, or fewer samples."),
        (["--json", "absent/rows.json"], "--json absent/rows.json can't be written"),
        (["--markdown", "absent/table.md"], "--markdown absent/table.md can't be written"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_measured(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["bench", "input", *words]) == 2
    assert message in capsys.readouterr().err
