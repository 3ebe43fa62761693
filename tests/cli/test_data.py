"""`deepex data` as a user meets it: packing, checking, looking inside, and what wrong input says."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from deepex.cli.app import run_command
from deepex.data.packing.pack import PackConfig, pack
from deepex.data.packing.packed import PackedSource
from deepex.data.source import ArraySource
from tests.conftest import Command


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Images in three class folders, one of them damaged."""
    generator = np.random.default_rng(0)
    for name, count in (("cat", 8), ("dog", 30), ("eel", 2)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(count):
            image = Image.fromarray(generator.integers(0, 255, (24, 32, 3), dtype=np.uint8))
            image.save(tmp_path / "photos" / name / f"{number:02d}.png")
    (tmp_path / "photos" / "dog" / "07.png").write_bytes(b"no image")
    return tmp_path / "photos"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, for commands that run in this process."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_images_are_packed_looked_into_and_checked(deepex: Command, photos: Path, tmp_path: Path) -> None:
    done = deepex("data", "pack", "photos", "photos.h5", "--skip-bad", "1", "--json", "packed.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("photos.h5: 39 samples, ")
    assert "1 sample left out:\n  dog/07.png: " in done.stdout
    told = json.loads((tmp_path / "packed.json").read_text())
    assert told["content_sha256"] == PackedSource(tmp_path / "photos.h5").content_sha256
    assert told["content_sha256"] in done.stdout
    assert told["samples"] == 39
    assert list(told["left_out"]) == ["dog/07.png"]
    assert told["samples_per_second"] > 0

    inside = deepex("data", "info", "photos.h5")
    assert inside.returncode == 0, inside.stderr
    assert f"content sha256 {told['content_sha256']} (verified)" in inside.stdout
    assert "label: 3 classes: cat 8, dog 29 and eel 2" in inside.stdout
    assert "source: path photos, reader images, files 40, names_sha256 " in inside.stdout
    figures = next(line.split() for line in inside.stdout.splitlines() if line.split()[:1] == ["red"])
    values = PackedSource(tmp_path / "photos.h5").column("image")[:, 0]
    expected = (values.min(), values.mean(), values.std(), values.max())
    assert figures[1:] == [f"{value:.4g}" for value in expected]

    looked = deepex("data", "check", "photos.h5", "--sheet", "photos.png")
    assert looked.returncode == 0, looked.stderr
    assert looked.stdout.startswith("photos.h5 can be trained on, with 1 warning (39 samples, ")
    assert "data.balance=label" in looked.stdout
    with Image.open(tmp_path / "photos.png") as sheet:
        assert sheet.size[0] == 1280


def test_the_file_is_the_same_whoever_packs_it_when_and_from_where(here: Path, photos: Path) -> None:
    (photos / "dog" / "07.png").unlink()
    assert run_command(["data", "pack", "photos", "a.h5", "channels=1", "--ranks", "1"]) == 0
    photos.rename(photos.with_name("moved"))
    (here / "other").mkdir()
    for file in sorted(here.glob("moved/*/*.png")):
        file.touch()
    assert run_command(["data", "pack", str(here / "moved"), "other/a.h5", "channels=1", "--ranks", "2"]) == 0
    first, second = PackedSource(here / "a.h5"), PackedSource(here / "other" / "a.h5")
    assert first.attributes["source"].pop("path") == "photos"
    assert second.attributes["source"].pop("path") == "moved"
    assert first.attributes == second.attributes
    assert first.attributes["source"]["options"] == {"channels": "1"}
    assert first.content_sha256 == second.content_sha256
    assert run_command(["data", "pack", "moved", "b.h5", "channels=1", "--ranks", "3"]) == 0
    assert (here / "b.h5").read_bytes() == (here / "other" / "a.h5").read_bytes()


def test_a_check_that_finds_errors_ends_with_1_and_tells_programs_the_same(deepex: Command, tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((60, 3, 16, 16))
    values[40:] = values[:20]
    values[9, 1] = np.nan
    np.savez(tmp_path / "maps.npz", x=values)
    pack(ArraySource({"x": values}), tmp_path / "maps.h5", PackConfig(keep_nan=True))
    column = PackedSource(tmp_path / "maps.h5").files[0].columns["x"]
    with open(tmp_path / "maps.h5", "r+b") as stored:
        stored.seek(column.offset)
        stored.write(b"damage")

    done = deepex("data", "check", "maps.npz", "--json", "-")
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert told["verdict"] in done.stderr
    kinds = {item["kind"]: item["severity"] for item in told["findings"]}
    assert kinds == {"not finite": "error", "leakage": "error", "duplicates": "warning", "checksums": "note"}
    assert told["errors"] == 2

    damaged = deepex("data", "check", "maps.h5")
    assert damaged.returncode == 1
    assert "maps.h5 should not be trained on as it is: 1 error" in damaged.stdout
    assert "has sha256" in damaged.stdout
    assert "Traceback" not in damaged.stderr


def test_packed_shards_and_plain_hdf5_are_told_apart(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.random.default_rng(0).random((40, 128, 128))
    pack(ArraySource({"x": values}), here / "set", PackConfig(shards=2))
    with h5py.File(here / "plain.h5", "w") as file:
        file["density"] = values
    assert run_command(["data", "info", "set"]) == 0
    assert "2 shards" in capsys.readouterr().out
    assert run_command(["data", "check", "set"]) == 0
    assert run_command(["data", "info", "plain.h5"]) == 0
    told = capsys.readouterr().out
    assert "density  128 × 128" in told
    assert "sha256" not in told
    assert run_command(["data", "check", "plain.h5"]) == 0
    assert "no packed data set" in " ".join(capsys.readouterr().out.split())
    assert run_command(["data", "pack", "set", "one.h5", "--ranks", "1"]) == 0
    assert np.array_equal(PackedSource(here / "one.h5").column("x"), values)


def test_staged_copies_are_removed_and_nothing_else(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "scratch").mkdir()
    staged = here / "scratch" / f"{'0123456789abcdef'}-{'f' * 16}.h5"
    staged.write_bytes(bytes(2048))
    (here / "scratch" / "mine.h5").write_bytes(b"keep me")
    assert run_command(["data", "unstage", "scratch"]) == 0
    assert capsys.readouterr().out == "scratch: 1 file removed, 2 KiB freed\n"
    assert [path.name for path in (here / "scratch").iterdir()] == ["mine.h5"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pack", "nothing", "a.h5"], "there is nothing at nothing. Give a file or folder that exists."),
        (["pack", "empty", "a.h5"], "empty holds no file that ends with one of"),
        (["pack", "photos", "a.h5", "--reader", "imges"], "unknown reader 'imges'. Did you mean 'images'?"),
        (["pack", "photos", "a.h5", "chanels=1"], "unknown key 'chanels'. Did you mean 'channels'?"),
        (["pack", "photos", "channels=1"], "OUT is 'channels=1', which looks like an option."),
        (["pack", "photos", "photos/a.h5"], "photos/a.h5 lies inside photos"),
        (["pack", "photos", "photos.png"], "photos.png exists already. Choose another place, or delete it."),
        (["pack", "photos", "a.h5", "--ranks", "0"], "Allowed: at least 1 rank"),
        (["pack", "photos", "a.h5", "--json", "absent/a.json"], "--json absent/a.json can't be written"),
        (["pack", "photos", "/dev/null/a.h5"], "/dev/null/a.h5 can't be written: "),
        (["check", "nothing.h5"], "there is no data file nothing.h5"),
        (["check", "empty"], "empty holds no file that ends with one of"),
        (["check", "photos", "--split", "side"], "unknown field 'side'. Allowed: image, label."),
        (["check", "photos", "--sheet", "absent/a.png"], "--sheet absent/a.png can't be written"),
        (["info", "nothing"], "there is nothing at nothing."),
        (["unstage", "nothing"], "nothing is no folder."),
    ],
)
def test_wrong_usage_says_the_cure_exits_2_and_leaves_nothing(
    words: list[str], said: str, here: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "empty").mkdir()
    (here / "photos.png").write_bytes(b"mine")
    before = sorted(here.rglob("*"))
    assert run_command(["data", *words]) == 2
    told = capsys.readouterr().err
    assert said in " ".join(told.split())
    assert "Traceback" not in told
    assert sorted(here.rglob("*")) == before
    assert (here / "photos.png").read_bytes() == b"mine"


@pytest.fixture
def tiny_disk(here: Path) -> Iterator[Path]:
    """A real file system of 1 MiB; making one needs root, as in the containers that tests run in."""
    disk = here / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True, timeout=20)
    yield disk
    subprocess.run(["umount", str(disk)], check=True, timeout=20)


@pytest.mark.parametrize("rows", [300, 255])  # more than the disk holds; as much as it holds, with nothing beside
def test_a_full_disk_is_told_with_the_cure(
    rows: int, here: Path, tiny_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(here / "a.npy", np.random.default_rng(0).random((rows, 512)))
    assert run_command(["data", "pack", "a.npy", "disk/a.h5", "--ranks", "1"]) == 2
    told = capsys.readouterr().err
    assert "disk/a.h5" in told
    assert "ree some space, or choose another place" in told
    assert not (tiny_disk / "a.h5").exists()


def test_a_place_that_is_read_only_is_told_with_the_cure(
    here: Path, tiny_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(here / "a.npy", np.zeros((3, 512)))
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True, timeout=20)
    assert run_command(["data", "pack", "a.npy", "disk/a.h5", "--ranks", "1"]) == 2
    assert "disk/a.h5 can't be written: Read-only file system." in capsys.readouterr().err
    assert run_command(["data", "check", "a.npy", "--sheet", "disk/a.png"]) == 2
    assert "--sheet disk/a.png can't be written: Read-only file system." in capsys.readouterr().err
