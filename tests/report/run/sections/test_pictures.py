"""The pictures' data, where a browser would not show what went wrong."""

import json

import numpy as np

from deepex.record.illustration import Matrix, PointCloud, ScatterPanel
from deepex.report.run.sections.pictures import confusion, point_cloud, prediction


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
