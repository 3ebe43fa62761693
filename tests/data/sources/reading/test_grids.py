import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

from deepex.data.source import read_all
from deepex.data.sources import netcdf
from deepex.data.sources import open_source as open_any
from deepex.data.sources.reading.grids import Options
from deepex.errors import ConfigError, DataError, SampleError

Write = Callable[[xr.Dataset, str], Path]
UNITS = {"t": "K", "u": "m s-1", "v": "m s-1"}


def grid(num_samples: int = 6, first: int = 0) -> xr.Dataset:
    """Six-hourly fields on a small grid, with times, labels and the bounds of times."""
    hours = 6.0 * np.arange(first, first + num_samples)
    values = np.arange(num_samples * 6, dtype=np.float32).reshape(num_samples, 2, 3) + 100 * first
    data = {
        name: (("time", "lat", "lon"), values + shift, {"units": UNITS[name], "long_name": f"field {name}"})
        for shift, name in enumerate("tuv")
    }
    return xr.Dataset(
        data
        | {
            "label": ("time", np.arange(num_samples, dtype=np.int32), {"units": "1", "long_name": "class"}),
            "time_bounds": (("time", "two"), np.stack([hours, hours + 6], 1)),
            "height": (("lat", "lon"), np.zeros((2, 3))),
        },
        coords={
            "time": ("time", hours, {"units": "hours since 2000-01-01", "bounds": "time_bounds"}),
            "lat": [10.0, 20.0],
        },
    )


@pytest.fixture(params=["NETCDF3_64BIT", "NETCDF4", 2, 3], ids=["netcdf3", "netcdf4", "zarr2", "zarr3"])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Write:
    """Writes a data set in one of the formats."""

    def to_file(dataset: xr.Dataset, name: str) -> Path:
        form: Any = request.param
        path = tmp_path / f"{name}.{'zarr' if isinstance(form, int) else 'nc'}"
        if isinstance(form, int):
            dataset.to_zarr(path, zarr_format=form, consolidated=False)
        else:
            dataset.to_netcdf(path, format=form, unlimited_dims={"time"} & set(dataset.dims))
        return path

    return to_file


def read(path: Path, *options: str) -> dict[str, torch.Tensor]:
    return read_all(open_any(path, options=options))


def test_variables_become_channels_and_times_names(write: Write) -> None:
    data = grid()
    source = open_any(write(data, "a"), options=["variables=v,t", "targets=label"])
    assert list(source.spec.fields) == ["x", "label"]
    field = source.spec.fields["x"]
    assert (field.shape, field.dtype, field.channels) == ((2, 2, 3), "float32", ("v", "t"))
    assert (field.unit, field.description) == ("", "v in m s-1, t in K")
    label = source.spec.fields["label"]
    assert (label.shape, label.dtype, label.unit, label.description) == ((), "int32", "1", "class")
    suffix = "zarr" if "zarr" in source.name(0) else "nc"
    assert source.name(1) == f"a.{suffix}:2000-01-01T06:00:00"
    batch = read_all(source)
    assert np.array_equal(batch["x"][:, 0].numpy(), data["v"].values)
    assert np.array_equal(batch["x"][:, 1].numpy(), data["t"].values)
    assert batch["label"].tolist() == list(range(6))


def test_by_default_all_that_fits_is_stacked_and_bounds_are_no_data(write: Write) -> None:
    source = open_any(write(grid()[["u", "v", "time_bounds", "height"]], "a"))
    assert source.spec.fields["x"].channels == ("u", "v")
    assert (source.spec.fields["x"].unit, source.spec.fields["x"].description) == ("m s-1", "")


def test_unstacked_each_variable_is_a_field_with_its_own_dtype(write: Write) -> None:
    data = grid().assign(wide=("time", np.arange(6.0)))
    source = open_any(write(data, "a"), options=["stack=false", "targets=label"])
    assert list(source.spec.fields) == ["t", "u", "v", "wide", "label"]
    assert source.spec.fields["wide"].dtype == "float64"
    assert source.spec.fields["t"].unit == "K"
    assert source.spec.fields["t"].channels == ()
    batch = read_all(source)
    assert np.array_equal(batch["t"].numpy(), data["t"].values)
    assert batch["wide"].tolist() == list(range(6))


def test_packed_numbers_are_scaled_and_missing_ones_are_not_numbers(write: Write) -> None:
    stored = np.array([[0, 10], [-999, 30]], dtype=np.int16)
    attributes = {"_FillValue": np.int16(-999), "scale_factor": 0.5, "add_offset": 100.0}
    data = xr.Dataset({"t": (("time", "lat"), stored, attributes)})
    batch = read(write(data, "a"))
    assert np.array_equal(batch["x"][:, 0].numpy(), np.array([[100, 105], [np.nan, 115]]), equal_nan=True)
    out = {"t": torch.zeros(2, 2, dtype=torch.float64)}
    open_any(write(data, "a2"), options=["stack=false"]).read([1], out)
    assert out["t"][0].isnan().tolist() == [True, False]


def test_the_sample_dimension_may_stand_anywhere(write: Write) -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    path = write(xr.Dataset({"t": (("lat", "member", "lon"), values)}), "a")
    source = open_any(path, options=["sample=member"])
    assert source.spec.fields["x"].shape == (1, 2, 3)
    assert source.name(3) == f"{path.name}:3"
    assert np.array_equal(read_all(source)["x"][:, 0].numpy(), values.transpose(1, 0, 2))


def test_the_files_of_a_folder_follow_each_other_by_name(write: Write) -> None:
    folder = write(grid(2, first=3), "b").parent
    suffix = write(grid(3), "a").suffix
    source = open_any(folder, options=["variables=t", "targets=label"])
    assert len(source) == 5
    names = [source.name(index) for index in range(5)]
    assert names[0] == f"a{suffix}:2000-01-01T00:00:00"
    assert names[3] == f"b{suffix}:2000-01-01T18:00:00"
    assert len(set(names)) == 5
    out = {"label": torch.full((6,), -1, dtype=torch.int32)}
    source.read(np.array([4, 0, 3, 0]), out)
    assert out["label"].tolist() == [1, 0, 0, 0, -1, -1]
    assert len(pickle.dumps(source)) < 5000


def test_rows_are_read_in_any_order_across_chunks(tmp_path: Path) -> None:
    data = xr.Dataset({"t": (("time", "lat"), np.arange(200.0).reshape(100, 2))})
    data.to_netcdf(tmp_path / "a.nc", encoding={"t": {"chunksizes": (7, 2), "zlib": True}})
    source = open_any(tmp_path / "a.nc")
    chosen = np.random.default_rng(0).integers(0, 100, 60)
    out = {"x": torch.zeros(60, 1, 2)}
    source.read(chosen, out)
    assert np.array_equal(out["x"][:, 0, 0].numpy(), 2.0 * chosen)


@pytest.mark.parametrize(
    ("coordinate", "attributes", "expected"),
    [
        ([0, 1, 3], {"units": "months since 2000-01-01"}, ["0", "1", "3"]),
        ([0, 59, 60], {"units": "days since 2000-01-01", "calendar": "360_day"}, "2000-03-01T00:00:00"),
        ([0.0, 0.25, 0.5], {"units": "seconds since 2000-01-01"}, "2000-01-01T00:00:00.500000"),
        ([0.5, 1.5, 2.5], {}, ["0.5", "1.5", "2.5"]),
        ([7, 7, 8], {}, ["0", "1", "2"]),
    ],
)
def test_names_come_from_the_coordinate_where_it_tells_samples_apart(
    tmp_path: Path, coordinate: list[float], attributes: dict[str, str], expected: list[str] | str
) -> None:
    data = xr.Dataset({"t": ("time", np.zeros(3))}, coords={"time": ("time", coordinate, attributes)})
    data.to_netcdf(tmp_path / "a.nc")
    source = open_any(tmp_path / "a.nc")
    names = [source.name(index).removeprefix("a.nc:") for index in range(3)]
    assert names == expected or names[-1] == expected


@pytest.mark.parametrize(
    ("stored", "held"), [("u2", "int32"), ("u4", "int64"), ("u1", "uint8"), (">i8", "int64"), (">f8", "float64")]
)
def test_labels_keep_their_numbers_whatever_their_dtype(tmp_path: Path, stored: str, held: str) -> None:
    largest = np.array([0, 200], dtype=stored)
    data = xr.Dataset({"t": ("time", np.zeros(2)), "label": ("time", largest)})
    data.to_netcdf(tmp_path / "a.nc", encoding={"label": {"dtype": stored}})
    source = open_any(tmp_path / "a.nc", options=["targets=label"])
    assert source.spec.fields["label"].dtype == held
    assert read_all(source)["label"].tolist() == [0, 200]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["variables=q"], r"no variable 'q'. It holds: .*label \(time\), t \(time, lat, lon\), .* variables=A,B"),
        (["targets=q"], "no variable 'q'"),
        (["sample=day"], r"no dimension 'day'. Its dimensions: time \(6\), .*sample=NAME"),
        (["variables=height"], r"'height' .* float64 with dimensions \(lat, lon\). It must be .* dimension time"),
        (["variables=word"], "'word' .*must be numbers"),
        ([], r"different shapes .*: .*label \(\), t \(2, 3\), .*variables=A,B.*targets=C.*stack=false"),
        (["sample=two"], "no numeric variable with dimension 'two'. It holds: h"),
        (["variables=t", "targets=huge"], "'huge' .* is uint64.*variables=huge"),
    ],
)
def test_what_the_file_can_t_give_is_told_with_the_cure(tmp_path: Path, options: list[str], told: str) -> None:
    data = grid().assign(
        word=("time", np.array(list("abcdef"), dtype=object)), huge=("time", np.arange(6, dtype=np.uint64))
    )
    data.to_netcdf(tmp_path / "a.nc")
    with pytest.raises(DataError, match=told):
        open_any(tmp_path / "a.nc", options=options)


def test_a_file_without_any_sample_variable_is_refused(tmp_path: Path) -> None:
    xr.Dataset({"height": ("lat", np.zeros(2))}, coords={"time": [1, 2]}).to_netcdf(tmp_path / "a.nc")
    with pytest.raises(DataError, match=r"no numeric variable with dimension 'time'. It holds: height \(lat\)"):
        open_any(tmp_path / "a.nc")


def test_a_file_unlike_the_first_is_told_when_it_is_read(tmp_path: Path) -> None:
    files: dict[str, xr.Dataset] = {
        "a": grid(2)[["t", "label"]],
        "b": grid(2)[["t", "label"]].isel(lon=slice(2)),
        "c": grid(2)[["u", "label"]],
        "d": grid(2)[["t"]].assign(label=("time", [0.5, 1.5])),
        "e": grid(2)[["t", "label"]],
    }
    for name, data in files.items():
        data.to_netcdf(tmp_path / f"{name}.nc")
    source = open_any(tmp_path, options=["targets=label"])
    assert len(source) == 7
    out: dict[str, Any] = {"x": torch.zeros(4, 1, 2, 3)}
    source.read([0, 1, 5, 6], out)
    for index, told in ((2, r"b.nc is float32 of shape \(1, 2, 2\).*\(1, 2, 3\)"), (3, "no variable 't'")):
        with pytest.raises(SampleError, match=told):
            source.read([index], out)
    with pytest.raises(SampleError, match=r"'label' of .*d.nc is float64.* int32"):
        source.read([4], out)


def test_a_file_whose_sample_dimension_is_empty_adds_none(tmp_path: Path) -> None:
    grid(2)[["t"]].to_netcdf(tmp_path / "a.nc")
    grid(0)[["t"]].to_netcdf(tmp_path / "b.nc")
    assert len(open_any(tmp_path)) == 2
    with pytest.raises(DataError, match="holds no sample"):
        open_any(tmp_path / "b.nc")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"variables": ("t", "t")}, "t named twice"),
        ({"variables": ("t",), "targets": ("t",)}, "Name each variable once"),
        ({"sample": ""}, "can't be empty"),
        ({"field": ""}, "can't be empty"),
        ({"targets": ("x",)}, "field=NAME"),
    ],
)
def test_options_that_don_t_hold_together_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Options(**settings)
    assert netcdf.Options is Options
