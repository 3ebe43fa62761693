"""The page says why a run is not faster, as the run judged itself."""

from pathlib import Path

import pytest

from deepex.launch.start import start
from deepex.record.folder import RunFolder
from deepex.record.rows import Advice, Diagnosis
from deepex.record.typed_json import to_json
from deepex.report import write_report
from deepex.report.run.sections.diagnosis import describe_diagnosis
from deepex.tasks.own import OwnTask
from deepex.train.recipe import Recipe, StopConfig

FOUND = Diagnosis(
    bound="bandwidth",
    verdict="Bound by communication (bandwidth): 31 % of a step waits for bytes to travel.",
    evidence=("A step takes 17 ms.", "Ranks exchange <b>4 MB</b> a step."),
    advice=(Advice(change="--sync local:8", gain=1.374, sentence="About 1.37 times the samples a second."),),
    shares={"computation": 0.6, "bandwidth": 0.31, "latency": 0.088, "input": 0.002},
    thin=False,
)


@pytest.fixture
def folder(line: OwnTask, tmp_path: Path) -> RunFolder:
    return start(Recipe(task=line, stop=StopConfig(epochs=2, target=0.0)), tmp_path / "run", "quiet")


def test_verdict_causes_numbers_and_advice_are_shown_and_no_text_is_markup() -> None:
    content = describe_diagnosis(FOUND)
    assert FOUND.verdict in content
    assert "computing 60 %" in content
    assert "waiting for samples" not in content  # too little to see
    assert "&lt;b&gt;4 MB" in content
    assert "1.37 ×" in content
    assert "<code>--sync local:8</code>" in content


def test_the_page_shows_what_the_run_found(folder: RunFolder) -> None:
    folder.write_json("summary.json", {**folder.read_json("summary.json"), "diagnosis": to_json(FOUND)})
    page = write_report(folder).read_text().replace("\u00a0", " ")
    assert FOUND.verdict in page
    assert page.index("Why it is not faster") < page.index("Loss and metric") < page.index("Where the time went")
