"""The figures' data, where a browser would not show what went wrong."""

import json

import numpy as np

from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.report.run.run_data import RankTime
from deepex.report.run.sections.pictures import MAX_BARS, choose_ranks, confusion, phase_bars, point_cloud, prediction
from deepex.train.task import Matrix, PointCloud, ScatterPanel


def make_rank(rank: int, wall_seconds: float) -> RankTime:
    phases = dict.fromkeys(STEP_PHASES, wall_seconds / 5) | dict.fromkeys(BESIDE_PHASES, 0.1)
    return RankTime(rank=rank, host="n1", wall_seconds=wall_seconds, phase_seconds=phases)


def test_of_very_many_ranks_the_quickest_and_the_slowest_are_shown() -> None:
    ranks = [make_rank(number, 10.0 + (number * 37 % 1000) / 1000) for number in range(1000)]
    shown = choose_ranks(ranks)
    walls = [rank.wall_seconds for rank in ranks]
    assert len(shown) == MAX_BARS
    assert {min(walls), max(walls)} <= {rank.wall_seconds for rank in shown}
    assert [rank.rank for rank in shown] == sorted(rank.rank for rank in shown)


def test_a_second_is_equally_long_in_steps_and_beside_them() -> None:
    layout = phase_bars([make_rank(0, 100.0), make_rank(1, 101.0)])["layout"]
    lengths = [
        axis["range"][1] / (axis["domain"][1] - axis["domain"][0]) for axis in (layout["xaxis"], layout["xaxis2"])
    ]
    assert np.isclose(lengths[0], lengths[1])


def test_points_without_a_value_leave_valid_json() -> None:
    colour = np.asarray([0.5, np.nan, 2.0], dtype=np.float32)
    cloud = PointCloud(
        title="t",
        caption="c",
        axes=("x", "y", "z"),
        points=np.zeros((3, 3), dtype=np.float32),
        colours={"heat (K)": colour},
    )
    _, colourings = point_cloud(cloud)
    assert colourings[0]["traces"]["marker.colorbar.title.text"] == "heat (K): 0.5 to 2"
    assert "NaN" not in json.dumps(colourings)


def test_a_confusion_matrix_shows_shares_of_each_true_class_and_tells_counts() -> None:
    counts = np.asarray([[3, 1], [0, 0]], dtype=np.int64)
    trace = confusion(Matrix(title="t", caption="c", names=("Al", "Cu"), counts=counts))["data"][0]
    assert trace["z"] == [[0.75, 0.25], [0.0, 0.0]]  # a class without samples has no shares, and no NaN
    assert trace["text"][0][1] == "Al taken for Cu: 1 of 4"


def test_both_axes_of_a_prediction_are_the_same() -> None:
    true, predicted = np.asarray([0.0, 1.0], np.float32), np.asarray([-0.5, 2.0], np.float32)
    figure = prediction(ScatterPanel(name="h", true=true, predicted=predicted))
    assert figure["layout"]["xaxis"]["range"] == figure["layout"]["yaxis"]["range"]
    assert figure["layout"]["xaxis"]["range"][0] < -0.5 < 2.0 < figure["layout"]["xaxis"]["range"][1]
