"""The card of a run: what a reader of a notebook would notice, from real files and changed ones."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from deepex import api
from deepex.launch.start import start
from deepex.record.folder import RunFolder
from deepex.report.notebook.elements import MOST_POINTS, show_curve
from deepex.report.notebook.run_card import describe, draw_run
from deepex.report.terminal.run_state import RunReader
from deepex.tasks.own import OwnTask
from deepex.text import say_figure, say_share, say_value
from deepex.train.recipe import Recipe, StopConfig


class Elements(HTMLParser):
    """Checks that elements are closed in order, and keeps their text and links."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names, self.links, self.text = set[str](), list[str](), ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.open.append(tag)
        self.links += [value or "" for key, value in attrs if key == "href"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def folder(line: OwnTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A real run of three epochs that is complete, in the folder of the notebook."""
    monkeypatch.chdir(tmp_path)
    recipe = Recipe(task=replace(line, name="<line>"), stop=StopConfig(epochs=3, target=0.0))
    return start(recipe, Path("a run"), "quiet")


def drawn(folder: RunFolder) -> Elements:
    return Elements(draw_run(RunReader(folder).read()))


def unfinish(folder: RunFolder, **progress: Any) -> None:
    (folder.path / "summary.json").unlink()
    folder.write_json("progress.json", {**folder.read_json("progress.json"), **progress})


def test_a_complete_run_shows_its_outcome_its_phases_and_what_bounds_it(folder: RunFolder) -> None:
    api.report(folder.path)
    card, summary = drawn(folder), folder.read_json("summary.json")
    assert card.text.startswith("<line>1 rank on ")
    assert "● complete" in card.text
    assert f"{say_value(summary['value'])}{summary['metric']}, target <\u00a00 not reached" in card.text
    assert f"{say_figure(summary['samples_per_second'])}samples/s" in card.text
    seconds = summary["phase_seconds"]
    for phase in ("forward", "backward", "evaluate"):
        assert f"{phase} {say_share(seconds[phase] / sum(seconds.values()))}".replace(" %", "\u00a0%") in card.text
    assert summary["diagnosis"]["verdict"].replace(" %", "\u00a0%") in card.text
    assert card.links == ["a%20run/report.html"]
    assert "the model: run.model()" in card.text
    assert {"svg", "polyline", "details"} <= card.names
    assert not {"script", "style", "line>"} & card.names


def test_a_run_within_an_epoch_shows_its_step_and_the_time_left(folder: RunFolder) -> None:
    unfinish(folder, epoch=4, step=5, steps=10, seconds=7.0, ended=False)
    folder.write_text("recipe.toml", folder.recipe.read_text().replace("epochs = 3", "epochs = 7"))
    card = drawn(folder)
    assert "● running" in card.text
    assert "4 of 7epoch, step 5 of 10" in card.text
    assert "at most 0:07 left" in card.text
    assert card.links == []
    assert describe(RunReader(folder).read()).partition(": ")[2].startswith("running, epoch   3/7  loss ")


def test_a_stopped_run_says_where_and_how_to_go_on(folder: RunFolder) -> None:
    unfinish(folder, epoch=4, step=2, steps=10, ended=True)
    assert 'Ended early in epoch 4, after step 2 of 10; its own output says why. Go on with dx.resume_run("a run")' in (
        drawn(folder).text
    )
    loop = folder.recipe.read_text().splitlines()
    folder.write_text("recipe.toml", "\n".join(["code = 'loop.py'", *(row for row in loop if "code =" not in row)]))
    assert 'Go on with dx.start(resume="a run")' in drawn(folder).text


def test_a_run_before_its_first_epoch_has_a_card_too(folder: RunFolder) -> None:
    unfinish(folder, epoch=0, step=0, steps=0, seconds=0.0, ended=False)
    (folder.path / "metrics.jsonl").unlink()
    card = drawn(folder)
    assert "● starting" in card.text
    assert "0 of 3epoch" in card.text


def test_a_run_of_a_task_whose_values_are_no_numbers_is_shown(folder: RunFolder) -> None:
    rows = folder.read_lines("metrics.jsonl")
    changed = [{**rows[0], "value": float("nan")}, {**rows[1], "value": float("inf")}, rows[2]]
    folder.write_text("metrics.jsonl", "".join(json.dumps(row) + "\n" for row in changed))
    assert "svg" not in drawn(folder).names  # one point is no curve


def test_the_notebook_of_a_run_shows_the_same_card(folder: RunFolder) -> None:
    assert api.Run(folder.path)._repr_html_() == draw_run(RunReader(folder).read())


def test_a_curve_stays_small_and_spans_decades_on_a_logarithmic_axis() -> None:
    values = [10.0 ** (-number / 200) for number in range(1000)]
    curve = show_curve(values, 1e-6, "rmse")
    points = curve.partition('points="')[2].partition('"')[0].split()
    assert len(points) <= MOST_POINTS + 1
    assert points[-1].startswith("594.0,")  # the last value is always there
    assert "logarithmic" in curve
    assert show_curve([1.0], 0.5, "rmse") == ""
    assert "logarithmic" not in show_curve([1.0, 1.0], None, "rmse")
