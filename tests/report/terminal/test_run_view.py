"""A run looked at while it goes on: what a reader would notice, from real files and made-up ones."""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from deepex.errors import RunFolderError
from deepex.launch.start import start
from deepex.record.folder import RunFolder
from deepex.record.typed_json import to_json
from deepex.report.terminal.follow import View, follow
from deepex.report.terminal.run_state import MAX_RANKS_READ, RunReader, find_lag
from deepex.report.terminal.run_view import describe_outcome, draw
from deepex.text import say_time
from deepex.train.recipe import Recipe, StopConfig
from tests.rows import rank_row

WORK = {"input": 0.1, "forward": 0.4, "backward": 0.4, "update": 0.1, "sync": 0.0, "evaluate": 0.2, "checkpoint": 0.0}


@pytest.fixture
def folder(line_recipe: Recipe, tmp_path: Path) -> RunFolder:
    """A real run of three epochs that is complete, and whose target is out of reach."""
    return start(replace(line_recipe, stop=StopConfig(epochs=3, target=0.0)), tmp_path / "run", "quiet")


def shown(folder: RunFolder) -> str:
    """The drawing as text; words that a narrow terminal would part stand in one line."""
    console = Console(file=StringIO(), width=300)
    console.print(draw(RunReader(folder).read()))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def change(folder: RunFolder, name: str, **values: Any) -> None:
    folder.write_json(name, {**folder.read_json(name), **values})


def unfinish(folder: RunFolder, **progress: Any) -> None:
    """As if the run were on its way."""
    (folder.path / "summary.json").unlink()
    change(folder, "progress.json", ended=False, **progress)


def grow_old(folder: RunFolder, seconds: float) -> None:
    """As if nothing had been written for so long."""
    change(folder, "progress.json", time=time.time() - seconds)
    for path in folder.path.iterdir():
        os.utime(path, (time.time() - seconds,) * 2)


def write_ranks(folder: RunFolder, num_ranks: int, slow: dict[int, float], epoch: int = 3) -> None:
    """Phases of made-up ranks, some of which have that many times the others' work."""
    for rank in range(num_ranks):
        phases = {**WORK, "backward": 0.4 + slow.get(rank, 1.0) - 1.0}
        for number in range(1, epoch + 1):
            row = rank_row(epoch=number, phase_seconds=phases)
            folder.append_line(f"phases/rank{rank:05d}.jsonl", to_json(row))


def test_a_complete_run_shows_its_curves_its_phases_and_its_outcome(folder: RunFolder) -> None:
    said = shown(folder)
    rows = folder.read_lines("metrics.jsonl")
    assert said.startswith("line  1 rank on ")
    assert "● complete" in said
    assert "3 of 3" in said
    assert "target < 0 not reached" in said
    assert f"{rows[-1]['samples_per_second']:,.0f}" in said
    assert "where epoch 3 went" in said
    drawn = {line.split()[0]: line for line in said.splitlines() if line.strip()}
    for name in ("input", "forward", "backward", "update", "sync", "evaluate"):
        assert say_time(rows[-1]["phase_seconds"][name]) in drawn[name]
    assert folder.read_json("summary.json")["diagnosis"]["verdict"] in said
    outcome = describe_outcome(RunReader(folder).read())
    assert f"{rows[-1]['metric']} " in outcome
    assert outcome.endswith("target < 0 not reached")


def test_a_run_within_an_epoch_shows_its_steps_and_what_is_left(folder: RunFolder) -> None:
    change(folder, "progress.json", target={**folder.read_json("progress.json")["target"], "threshold": 1e9})
    unfinish(folder, epoch=4, step=5, steps=10, seconds=7.0)
    text = folder.recipe.read_text().replace("epochs = 3", "epochs = 7")
    folder.write_text("recipe.toml", text)
    said = shown(folder)
    assert "● running" in said
    assert "4 of 7" in said
    assert "step 5 of 10, at most 0:07 left" in said
    assert "target < 1e+09 reached in epoch 1" in said


def test_a_stopped_run_says_where_and_how_to_go_on(folder: RunFolder) -> None:
    unfinish(folder, epoch=4, step=2, steps=10)
    change(folder, "progress.json", ended=True)
    (kept,) = folder.checkpoints.iterdir()
    kept.rename(kept.with_name("epoch00003_step000002"))
    assert (
        "● stopped early in epoch 4, after step 2 of 10. Its checkpoint is epoch00003_step000002; "
        f"go on with: deepex resume {folder.path}" in shown(folder)
    )


def test_a_run_that_failed_points_to_its_own_output(folder: RunFolder) -> None:
    unfinish(folder, epoch=4, step=2, steps=10)
    change(folder, "progress.json", ended=True)
    assert "ended early in epoch 4, after step 2 of 10; its own output says why. Its checkpoint is " in shown(folder)


def test_a_run_that_writes_nothing_any_more_may_have_died(folder: RunFolder) -> None:
    unfinish(folder, epoch=4, step=2, steps=10)
    grow_old(folder, 50)
    assert "● running" in shown(folder)
    grow_old(folder, 1000)
    said = shown(folder)
    assert "● silent in epoch 4, after step 2 of 10: nothing was written for 16 min" in said
    assert f"maybe it died. Its checkpoint is epoch00003_step000000; go on with: deepex resume {folder.path}" in said


def test_a_long_evaluation_is_not_taken_for_death(folder: RunFolder) -> None:
    rows = folder.read_lines("metrics.jsonl")
    rows[-1]["phase_seconds"]["evaluate"] = 600.0
    folder.write_text("metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    unfinish(folder, epoch=4, step=2, steps=10)
    grow_old(folder, 1000)
    assert "● running" in shown(folder)


def test_a_resumed_run_has_time_to_start(folder: RunFolder) -> None:
    unfinish(folder, epoch=0, step=0, steps=0)
    grow_old(folder, 300)
    assert "● running" in shown(folder)


def test_a_directory_that_has_only_its_recipe_is_starting(folder: RunFolder) -> None:
    for name in ("summary.json", "progress.json", "metrics.jsonl", "record.json"):
        (folder.path / name).unlink()
    said = shown(folder)
    assert "line  1 rank, sync allreduce, fp32" in said
    assert "● starting" in said
    assert "0 of 3" in said


def test_a_half_written_line_is_ignored(folder: RunFolder) -> None:
    (folder.path / "summary.json").unlink()
    path = folder.path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-100])
    said = shown(folder)
    assert "where epoch 2 went" in said


def test_what_is_read_follows_the_files(folder: RunFolder) -> None:
    reader = RunReader(folder)
    assert len(reader.read().rows) == 3
    folder.append_line("metrics.jsonl", {**folder.read_lines("metrics.jsonl")[-1], "epoch": 4})
    assert [row.epoch for row in reader.read().rows] == [1, 2, 3, 4]
    folder.keep_lines("metrics.jsonl", 1)
    assert [row.epoch for row in reader.read().rows] == [1]


def test_a_recipe_of_one_s_own_is_not_taken_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text('[task]\nname = "protein"\n')
    with pytest.raises(RunFolderError, match=r"is not a run directory: its recipe.toml has no sync"):
        RunReader(RunFolder.open(tmp_path)).read()


def test_ranks_that_lag_are_named_with_their_hosts_the_slowest_first(folder: RunFolder) -> None:
    (folder.path / "phases/rank00000.jsonl").unlink()
    write_ranks(folder, 8, {3: 1.3, 5: 1.5, 6: 1.05})
    folder.write_text("recipe.toml", folder.recipe.read_text().replace("ranks = 1", "ranks = 8"))
    change(folder, "record.json", places=[{"rank": rank, "host": f"n[{rank // 2}]", "threads": 1} for rank in range(8)])
    said = shown(folder)
    assert "line  8 ranks on n[0], n[1], n[2] and 1 more, sync" in said
    assert "slower than the median rank in their own work: rank 5 on n[2] by 50 % and rank 3 on n[1] by 30 %\n" in said
    assert "without a line" not in said


def test_a_rank_without_the_last_epoch_is_named_after_a_while(folder: RunFolder) -> None:
    (folder.path / "phases/rank00000.jsonl").unlink()
    write_ranks(folder, 4, {})
    folder.write_text("recipe.toml", folder.recipe.read_text().replace("ranks = 1", "ranks = 4"))
    path = folder.path / "phases/rank00002.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    (folder.path / "phases/rank00003.jsonl").unlink()
    assert "without a line" not in shown(folder)
    grow_old(folder, 30)
    assert "without a line for epoch 3: rank 2 and rank 3\n" in shown(folder)


def test_a_rank_that_only_serves_parameters_does_not_count(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    write_ranks(folder, 3, {}, epoch=1)
    idle = rank_row(trains=False, phase_seconds=dict.fromkeys(WORK, 0.0))
    folder.append_line("phases/rank00003.jsonl", to_json(idle))
    lag = find_lag(folder, 4, 1)
    assert (dict(lag.slower), list(lag.absent)) == ({}, [])


def test_of_ten_thousand_ranks_some_are_read_and_that_is_said(folder: RunFolder) -> None:
    early, row, slow = (
        json.dumps(to_json(rank_row(epoch=epoch, phase_seconds=phases))) + "\n"
        for epoch, phases in ((1, WORK), (3, WORK), (3, {**WORK, "input": 0.5}))
    )
    for rank in range(10_000):
        (folder.path / f"phases/rank{rank:05d}.jsonl").write_text(early + (slow if rank >= 9_900 else row))
    # So long a file would be noticed if it were read as a whole.
    with open(folder.path / "phases/rank00000.jsonl", "r+b") as file:
        file.truncate(1 << 34)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + row.encode())
    folder.write_text("recipe.toml", folder.recipe.read_text().replace("ranks = 1", "ranks = 10000"))
    began = time.perf_counter()
    said = shown(folder)
    assert time.perf_counter() - began < 10
    assert f"({MAX_RANKS_READ} of 10,000 ranks looked at)" in said
    assert "slower than the median rank in their own work: rank 99" in said


def look_at(*views: View) -> Callable[[], View]:
    left = iter(views)
    return lambda: next(left)


VIEWS = (
    View(drawing=Text("first drawing"), news=["one"]),
    View(drawing=Text("last drawing"), news=["two", "three"], ending=["the end"]),
)


@pytest.mark.parametrize(
    ("terminal", "once", "said"),
    [(False, False, "one\ntwo\nthree\nthe end\n"), (False, True, "first drawing\n"), (True, True, "first drawing\n")],
)
def test_following_prints_news_or_one_drawing(terminal: bool, once: bool, said: str) -> None:
    console = Console(file=StringIO(), force_terminal=terminal, width=80)
    follow(console, look_at(*VIEWS), once)
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue() == said


def test_following_on_a_terminal_draws_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    console = Console(file=StringIO(), force_terminal=True, width=80)
    follow(console, look_at(*VIEWS), once=False)
    assert isinstance(console.file, StringIO)
    said = console.file.getvalue()
    assert said.index("first drawing") < said.index("\x1b[2K") < said.index("last drawing") < said.index("the end")
    assert "one" not in said.replace("drawing", "")


def test_ctrl_c_ends_the_following_and_nothing_else() -> None:
    def interrupt() -> View:
        signal.raise_signal(signal.SIGINT)
        return VIEWS[0]

    views = iter([VIEWS[0]])
    follow(Console(file=StringIO()), lambda: next(views, None) or interrupt(), once=False)
