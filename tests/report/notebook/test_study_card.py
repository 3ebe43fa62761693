"""The card of a study while its runs go on."""

from pathlib import Path

from deepex.record.folder import RunFolder
from deepex.record.study_rows import write_states
from deepex.report.notebook.study_card import describe_states, draw_states
from tests.rows import run_state


def test_a_study_that_goes_on_shows_a_row_a_cell_and_why_runs_failed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "plane")
    folder.path.mkdir()
    assert describe_states(folder.path) == "study plane: no run has begun yet"
    assert "study plane" in draw_states(folder.path)
    states = [
        run_state(name="a_seed0", cell="a", ranks=1, seed=0, state="done", seconds=30.0),
        run_state(name="a_seed1", cell="a", ranks=1, seed=1, state="left"),
        run_state(name="b_seed0", cell="b", ranks=2, series="local:8", seed=0, state="failed", error="no <room>"),
        run_state(name="b_seed1", cell="b", ranks=2, series="local:8", seed=1, state="left"),
    ]
    write_states(folder, states)
    card = draw_states(folder.path)
    assert card.count("<tr") == 3
    assert "b_seed0 failed: no &lt;room&gt;" in card
    assert "local:8" in card
    assert "1 of 4 runs done, 2 left, 1 failed" in card
