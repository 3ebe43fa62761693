"""The page's figures on paper: what an editor, a reader of the numbers and a second run would notice."""

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import rc_context, rcParams
from matplotlib.figure import Figure as Sheet
from numpy.typing import NDArray
from PIL import Image

from deepex.config import to_toml
from deepex.errors import RunFolderError
from deepex.record.folder import RunFolder
from deepex.record.illustration import Matrix, PointCloud, ScatterPanel
from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.record.shown_recipe import ShownRecipe
from deepex.report.paper.paper import LOOK, draw_figure, save_figures
from deepex.report.run.run_data import RankTime, RunData
from deepex.report.run.sections.curves import loss_curve, metric_curve
from deepex.report.run.sections.phases import phase_bars
from deepex.report.run.sections.pictures import confusion, point_cloud, prediction
from deepex.report.style import ACCENT, GOAL, PHASE_COLOURS, Figure
from deepex.tasks.protein import recipe
from tests.rows import epoch_row, run_record

RED, BLUE = "#d62728", "#0000ff"


def make_figures() -> dict[str, Figure]:
    """Every kind of figure that a run's page has."""
    rows = [
        epoch_row(epoch=n, seconds=2.5 * n, losses={"loss": 9 / n, "reconstruction": 7 / n}, value=0.3 / n)
        for n in range(1, 4)
    ]
    folder = RunFolder(Path("run"))
    data = RunData(
        folder=folder, recipe=ShownRecipe.parse(to_toml(recipe()), folder), target=recipe().target,
        record=run_record(), summary=None, rows=rows, ranks=[], illustration=None, why_no_pictures="",
    )  # fmt: skip
    seconds = dict.fromkeys(STEP_PHASES, 2.0) | dict.fromkeys(BESIDE_PHASES, 0.5)
    ranks = [RankTime(rank=rank, host="n1", wall_seconds=10.0, phase_seconds=seconds) for rank in range(3)]
    draws = np.random.default_rng(0)
    true = draws.random(40, dtype=np.float32)
    heat = np.linspace(300, 400, 50, dtype=np.float32)
    heat[3] = np.nan
    points = draws.random((50, 3), dtype=np.float32)
    cloud = PointCloud(title="t", caption="c", axes=("a", "b", "c"), points=points, colours={"heat (K)": heat})
    return {
        "loss": loss_curve(rows, "seconds"),
        "metric": metric_curve(data, "epoch"),
        "phases": phase_bars(ranks),
        "points": point_cloud(cloud)[0],
        "matrix": confusion(Matrix(title="t", caption="c", names=("Al", "Cu"), counts=np.array([[3, 1], [0, 4]]))),
        "scatter": prediction(ScatterPanel(name="h", true=true, predicted=1 - true)),
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of all figures, their PDFs uncompressed."""
    folder = tmp_path_factory.mktemp("paper") / "figures"
    with rc_context({"pdf.compression": 0}):
        paths = save_figures(make_figures(), folder)
    assert sorted(paths) == sorted(folder.iterdir())
    return folder


def make_curve(**settings: Any) -> Figure:
    """One red line of three points."""
    trace = {
        "type": "scatter",
        "mode": "lines",
        "name": "a",
        "x": [1, 2, 3],
        "y": [1.0, 4.0, 9.0],
        "line": {"color": RED},
    }
    return {"data": [trace | settings], "layout": {"xaxis": {"title": {"text": "time (s)"}}}}


def count_pixels(path: Path, colour: str) -> int:
    return int(find_pixels(path, colour).sum())


def find_pixels(path: Path, colour: str) -> NDArray[np.bool_]:
    """Which pixels have a colour, or very nearly."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"), np.int16)
    wanted = np.asarray([int(colour[place : place + 2], 16) for place in (1, 3, 5)])
    found: NDArray[np.bool_] = np.abs(pixels - wanted).max(axis=2) <= 12
    return found


def read_rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def read_texts(pdf: bytes) -> list[str]:
    """The texts of an uncompressed PDF, whose strings hold two bytes a letter."""
    texts = []
    for block in re.findall(rb"BT\n(.*?)ET", pdf, re.DOTALL):
        letters = b"".join(re.findall(rb"\(((?:\\.|[^\\)])*)\)", block, re.DOTALL))
        texts.append(re.sub(rb"\\(.)", rb"\1", letters).decode("utf-16-be"))
    return texts


def save(figure: Figure, folder: Path) -> Path:
    """A figure's files without their suffix."""
    save_figures({"one": figure}, folder)
    return folder / "one"


def draw(figure: Figure) -> Any:
    """The axes of a figure, to ask what stands where."""
    sheet = Sheet(layout="constrained")
    draw_figure(figure, sheet)
    return sheet.axes[0]


def test_every_figure_of_a_page_is_written_as_png_pdf_and_csv(written: Path) -> None:
    names = {path.name for path in written.iterdir()}
    assert names == {f"{name}.{kind}" for name in make_figures() for kind in ("png", "pdf", "csv")}
    for path in written.glob("*.pdf"):
        assert path.read_bytes().startswith(b"%PDF")
        assert path.read_bytes().count(b"/Type /Page ") == 1


def test_pictures_have_the_colours_of_their_traces(written: Path) -> None:
    assert count_pixels(written / "loss.png", ACCENT) > 500
    assert count_pixels(written / "metric.png", GOAL) > 100  # the target and its label
    for phase in STEP_PHASES:
        assert count_pixels(written / "phases.png", PHASE_COLOURS[phase]) > 1000
    assert count_pixels(written / "matrix.png", "#102a5c") > 1000
    assert count_pixels(written / "points.png", "#440154") > 100  # the low end of Viridis


def test_curves_fill_a_column_and_wide_figures_a_page(written: Path, tmp_path: Path) -> None:
    asked = save(make_curve() | {"layout": {"meta": {"paper_width_inches": 5}}}, tmp_path)
    for path, inches in ((written / "loss", 3.5), (written / "phases", 7), (written / "matrix", 7), (asked, 5)):
        with Image.open(path.with_suffix(".png")) as image:
            assert image.info["dpi"] == pytest.approx((300, 300), abs=0.1)
            assert image.width == 300 * inches


def test_pdfs_hold_their_text_in_embedded_truetype_fonts(written: Path) -> None:
    loss = (written / "loss.pdf").read_bytes()
    assert set(re.findall(rb"/CIDFontType\d", loss)) == {b"/CIDFontType2"}
    assert b"/FontFile2" in loss
    assert b"/Type3" not in loss
    assert {"time (s)", "loss (training)", "reconstruction"} < set(read_texts(loss))
    assert {"in steps (s)", "beside (s)", "sync"} < set(read_texts((written / "phases.pdf").read_bytes()))
    assert {"taken for", "Al", "Cu", "share"} < set(read_texts((written / "matrix.pdf").read_bytes()))


def test_same_figures_give_the_same_bytes(written: Path, tmp_path: Path) -> None:
    with rc_context({"pdf.compression": 0}):
        again = save_figures(make_figures(), tmp_path)
    assert [path.name for path in again if path.read_bytes() != (written / path.name).read_bytes()] == []
    assert b"CreationDate" not in (tmp_path / "loss.pdf").read_bytes()


def test_settings_of_matplotlib_stay_as_they_were(tmp_path: Path) -> None:
    before = {name: rcParams[name] for name in LOOK}
    save(make_curve(), tmp_path)
    assert {name: rcParams[name] for name in LOOK} == before


def test_numbers_of_curves_are_those_of_the_figure(written: Path) -> None:
    figure, rows = make_figures()["loss"], read_rows(written / "loss.csv")
    assert list(rows[0]) == ["series", "time (s)", "loss (training)"]
    for trace in figure["data"]:
        own = [row for row in rows if row["series"] == trace["name"]]
        assert [float(row["time (s)"]) for row in own] == trace["x"]
        assert [float(row["loss (training)"]) for row in own] == trace["y"]


def test_numbers_have_full_precision_and_gaps_are_empty(tmp_path: Path) -> None:
    figure = make_curve(x=np.asarray([1, 2, 3]), y=[0.1 + 0.2, None, np.nan])
    lines = save(figure, tmp_path).with_suffix(".csv").read_text().splitlines()
    assert lines == ["series,time (s),y", "a,1,0.30000000000000004", "a,2,", "a,3,"]


def test_numbers_of_hidden_traces_are_kept_though_not_drawn(tmp_path: Path) -> None:
    figure = make_curve()
    figure["data"].append(figure["data"][0] | {"name": "hidden", "visible": "legendonly", "line": {"color": BLUE}})
    files = save(figure, tmp_path)
    assert [row["series"] for row in read_rows(files.with_suffix(".csv"))] == ["a"] * 3 + ["hidden"] * 3
    assert count_pixels(files.with_suffix(".png"), BLUE) == 0


def test_numbers_of_flat_bars_have_names_as_x_in_both_panels(written: Path) -> None:
    rows = read_rows(written / "phases.csv")
    assert list(rows[0]) == ["series", "x", "y", "panel"]
    assert rows[0] == {"series": STEP_PHASES[0], "x": "rank 0", "y": "2.0", "panel": "in steps (s)"}
    beside = [row for row in rows if row["series"] in BESIDE_PHASES]
    assert {(row["y"], row["panel"]) for row in beside} == {("0.5", "beside (s)")}


def test_numbers_of_matrices_and_clouds_have_a_row_a_cell_and_a_row_a_point(written: Path) -> None:
    cells = read_rows(written / "matrix.csv")
    assert list(cells[0]) == ["taken for", "true class", "z"]
    assert [tuple(cell.values()) for cell in cells[:2]] == [("Al", "Al", "0.75"), ("Cu", "Al", "0.25")]
    points = read_rows(written / "points.csv")
    assert list(points[0]) == ["a", "b", "c", "colour"]
    assert [float(point["a"]) for point in points] == make_figures()["points"]["data"][0]["x"].tolist()
    assert [point["colour"] for point in points[:4]] == ["300.0", "302.0", "304.1", ""]


def test_error_bars_are_drawn_and_written_as_the_ends_of_intervals(tmp_path: Path) -> None:
    plain, error = make_curve(mode="markers"), {"array": [0.5, 1, 2], "arrayminus": [1, 2, 3], "symmetric": False}
    barred = make_curve(mode="markers", error_y=error | {"color": BLUE})
    files = save(barred, tmp_path)
    rows = read_rows(files.with_suffix(".csv"))
    assert [(float(row["low"]), float(row["high"])) for row in rows] == [(0, 1.5), (2, 5), (6, 11)]
    assert count_pixels(files.with_suffix(".png"), BLUE) > 100
    assert count_pixels(save(plain, tmp_path / "plain").with_suffix(".png"), BLUE) == 0


def test_ranges_of_log_axes_are_exponents_and_so_are_places_of_notes() -> None:
    figure = make_curve()
    figure["layout"] |= {
        "yaxis": {"type": "log", "range": [-1, 2]},
        "annotations": [{"text": "here", "x": 2, "y": 1, "showarrow": False}],
        "shapes": [{"type": "line", "x0": 1, "x1": 3, "y0": 10, "y1": 10}],
    }
    axes = draw(figure)
    assert axes.get_yscale() == "log"
    assert axes.get_ylim() == pytest.approx((0.1, 100))
    assert [text.xy for text in axes.texts] == [(2, 10)]
    assert axes.lines[-1].get_ydata() == [10, 10]


def test_ticks_ranges_and_directions_are_as_on_the_page() -> None:
    figure = make_curve(x=["b", "a", "c"])
    figure["layout"] = {
        "xaxis": {"categoryorder": "array", "categoryarray": ["a", "b", "c"], "tickangle": -60},
        "yaxis": {"range": [0, 8], "tickvals": [2, 4, 16], "ticktext": ["two", "four", "far"], "autorange": "reversed"},
    }
    axes = draw(figure)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", "c"]
    assert axes.lines[0].get_xdata().tolist() == [1, 0, 2]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["two", "four", "far"]
    assert axes.get_ylim() == (8, 0)


def test_axes_reach_to_zero_and_to_shapes_where_asked() -> None:
    figure = make_curve()
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 40, "y1": 40, "line": {"dash": "dash"}}
    figure["layout"] |= {"yaxis": {"rangemode": "tozero", "tickformat": ".0%"}, "shapes": [line]}
    axes = draw(figure)
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylim()[1] > 40
    assert axes.yaxis.get_major_formatter()(0.5) == "50%"


def test_bars_stack_or_stand_side_by_side() -> None:
    bars = [{"type": "bar", "name": name, "x": ["p", "q"], "y": [1, 2]} for name in "ab"]
    stacked = draw({"data": bars, "layout": {"barmode": "stack"}})
    grouped = draw({"data": bars, "layout": {"barmode": "group"}})
    first, second = ([path.get_extents() for path in axes.collections[1].get_paths()] for axes in (stacked, grouped))
    assert [(box.y0, box.y1) for box in first] == [(1, 2), (2, 4)]
    assert [(box.y0, box.y1) for box in second] == [(0, 1), (0, 2)]
    assert [box.x0 for box in second] == pytest.approx([0, 1])


def test_bars_carry_texts_where_they_fit_and_hatches(tmp_path: Path) -> None:
    marker = {"color": BLUE, "pattern": {"shape": "/", "fillmode": "overlay", "fgcolor": "#ffffff"}}
    bar = {"type": "bar", "orientation": "h", "x": [9, 0.01], "y": ["p", "q"], "text": ["long", "short"]}
    figure = {"data": [bar | {"textposition": "inside", "marker": marker}], "layout": {}}
    assert [text.get_text() for text in draw(figure).texts] == ["long"]
    plain = {"data": [bar | {"marker": {"color": BLUE}}], "layout": {}}
    hatched = count_pixels(save(figure, tmp_path).with_suffix(".png"), BLUE)
    assert 0 < hatched < 0.9 * count_pixels(save(plain, tmp_path).with_suffix(".png"), BLUE)


def test_a_second_is_equally_long_in_both_panels_of_phases(tmp_path: Path) -> None:
    sheet = Sheet(figsize=(7, 2), layout="constrained")
    draw_figure(make_figures()["phases"], sheet)
    sheet.draw_without_rendering()
    lengths = [axes.get_position().width / np.diff(axes.get_xlim()).item() for axes in sheet.axes]
    assert lengths[0] == pytest.approx(lengths[1], rel=0.02)


def test_intervals_are_filled_and_gaps_are_not(tmp_path: Path) -> None:
    band = {"x": [1, 2, 3, 3, 2, 1], "y": [1, 1, 1, 2, 2, 2], "fill": "toself", "fillcolor": BLUE, "line": {"width": 0}}
    whole = count_pixels(save(make_curve(**band), tmp_path).with_suffix(".png"), BLUE)
    lower = make_curve(y=[1, 1, 1])
    upper = make_curve(y=[2, 2, 2], fill="tonexty", fillcolor=BLUE)
    lower["data"] += upper["data"]
    assert 0.8 < count_pixels(save(lower, tmp_path).with_suffix(".png"), BLUE) / whole < 1.1
    broken = make_curve(**band | {"x": [1, 2, 2, 1, None, 2.5, 3, 3], "y": [1, 1, 2, 2, None, 1, 1, 2]})
    assert 0.3 < count_pixels(save(broken, tmp_path).with_suffix(".png"), BLUE) / whole < 0.9


def test_several_names_have_a_legend_though_the_page_has_its_own(tmp_path: Path) -> None:
    figure = make_curve()
    figure["layout"]["showlegend"] = False
    sheet = Sheet(layout="constrained")
    draw_figure(figure, sheet)
    assert sheet.legends == []
    figure["data"] += [figure["data"][0] | {"name": name, "legendgroup": name} for name in "bb"]
    figure["data"].append(figure["data"][0] | {"name": "quiet", "showlegend": False})
    sheet = Sheet(layout="constrained")
    draw_figure(figure, sheet)
    assert [text.get_text() for text in sheet.legends[0].get_texts()] == ["a", "b"]


def test_tags_become_lines_and_raised_letters() -> None:
    figure = make_curve()
    figure["layout"]["xaxis"]["title"] = "<b>R</b><sup>2</sup> &lt; 1<br>of <i>x</i><sub>0</sub>, 5 $"
    label = draw(figure).get_xlabel()
    assert label == r"R$^{\mathrm{2}}$ < 1" + "\n" + r"of x$_{\mathrm{0}}$, 5 \$"


def test_several_figures_fit_onto_one_sheet(tmp_path: Path) -> None:
    with rc_context(LOOK):
        sheet = Sheet(figsize=(6, 6), layout="constrained")
        parts: Any = sheet.subfigures(3, 2)
        for figure, part in zip(make_figures().values(), parts.flat, strict=True):
            draw_figure(figure, part)
        sheet.savefig(tmp_path / "page.png", dpi=100)
    loss, phases = (find_pixels(tmp_path / "page.png", colour) for colour in (ACCENT, PHASE_COLOURS["sync"]))
    assert loss[:200, :300].sum() > 50
    assert phases[200:400, :300].sum() > 50
    assert phases.sum() == phases[200:400, :300].sum()


@pytest.mark.parametrize(
    ("figure", "named"),
    [
        (make_curve(type="violin"), "violin"),
        (make_curve(mode="lines+text"), "text"),
        (make_curve(line={"dash": "longdash"}), "longdash"),
        (make_curve(mode="markers", marker={"symbol": "hourglass"}), "hourglass"),
        (make_curve(fill="tozeroy"), "tozeroy"),
        (make_curve(stackgroup="one"), "stackgroup"),
        (make_curve(error_x={"array": [1, 1, 1]}), "error bars"),
        (make_curve() | {"layout": {"xaxis": {"type": "date"}}}, "date"),
        (make_curve() | {"layout": {"yaxis": {"overlaying": "y2"}}}, "overlaying"),
        (make_curve() | {"layout": {"shapes": [{"type": "circle"}]}}, "circle"),
        (make_curve(type="bar") | {"layout": {"barmode": "relative"}}, "relative"),
    ],
)
def test_what_has_no_drawing_is_refused_by_name_and_nothing_is_written(
    figure: Figure, named: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=named):
        save_figures({"good": make_curve(), "bad": figure}, tmp_path / "figures")
    assert not (tmp_path / "figures").exists()


def test_a_folder_that_cant_be_made_is_a_clean_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="can't be written"):
        save_figures({"one": make_curve()}, tmp_path / "file" / "figures")
