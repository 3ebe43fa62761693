import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from deepex.data import ArraySource
from deepex.data.packing.pack import PackConfig, pack
from deepex.data.packing.packed import PackedSource
from deepex.data.source import Indices, read_field
from deepex.errors import DataError, SampleError
from deepex.fabric import Fabric
from deepex.sample import Batch, Field
from deepex.testing.ranks import on_ranks

BAD = {3: "three.dat is cut off", 2500: "last.dat is cut off"}


class Flawed(ArraySource):
    """A source with samples that can't be read."""

    def read(self, indices: Indices, out: Batch) -> None:
        for index in np.asarray(indices).tolist():
            if index in BAD:
                raise SampleError(BAD[index])
        super().read(indices, out)


def numbers(count: int = 3000) -> dict[str, torch.Tensor]:
    return {"x": torch.rand(count, 3, 200, generator=torch.Generator().manual_seed(0)), "y": torch.arange(count)}


def test_the_file_does_not_depend_on_the_number_of_ranks(tmp_path: Path) -> None:
    source = ArraySource(numbers())
    told: list[tuple[int, int]] = []
    one = pack(source, tmp_path / "one.h5", tell=lambda done, total: told.append((done, total)))
    two = pack(source, tmp_path / "two.h5", PackConfig(ranks=2))
    assert one.path.read_bytes() == two.path.read_bytes()
    assert told[-1] == (3000, 3000)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.h5", "two.h5"]


def test_ranks_of_a_launcher_write_the_same_file(tmp_path: Path) -> None:
    whole = pack(ArraySource(numbers()), tmp_path / "whole.h5")

    def rank(fabric: Fabric) -> str:
        generator = torch.Generator().manual_seed(0)
        source = ArraySource({"x": torch.rand(3000, 3, 200, generator=generator), "y": torch.arange(3000)})
        return pack(source, tmp_path / "shared.h5", fabric=fabric).content_sha256

    assert on_ranks(2, rank) == [whole.content_sha256] * 2
    assert (tmp_path / "shared.h5").read_bytes() == whole.path.read_bytes()
    with pytest.raises(DataError, match="exists already"):  # on all ranks, though rank 0 alone finds it out
        on_ranks(2, rank)


KILLED = """
import os, signal, sys, torch
from pathlib import Path
from deepex.data import ArraySource
from deepex.data.packing.pack import PackConfig, pack
generator = torch.Generator().manual_seed(0)
source = ArraySource({"x": torch.rand(3000, 3, 200, generator=generator), "y": torch.arange(3000)})
kill_after = int(sys.argv[2])
def tell(done, total):
    if done >= kill_after:
        os.kill(os.getpid(), signal.SIGKILL)
pack(source, Path(sys.argv[1]), PackConfig(ranks=2), tell=tell)
"""


def wait_until_let_go(file: Path) -> None:
    """Until no process has a file open: those that a killed packing had started end with it."""
    while any(_is_open(file, files) for files in Path("/proc").glob("[0-9]*/fd")):
        pass


def _is_open(file: Path, files: Path) -> bool:
    try:
        return any(each.readlink() == file for each in files.iterdir())
    except OSError:  # a process that ends meanwhile
        return False


@pytest.mark.timeout(60)
def test_killed_and_started_again_it_gives_the_same_bytes(tmp_path: Path) -> None:
    whole = pack(ArraySource(numbers()), tmp_path / "whole.h5")
    out = tmp_path / "killed.h5"
    for kill_after in (400, 2000):  # twice, the second time into what the first one left
        done = subprocess.run([sys.executable, "-c", KILLED, str(out), str(kill_after)], timeout=60, check=False)
        assert done.returncode == -9
        assert not out.exists()
        wait_until_let_go(out.with_name("killed.h5.parts") / "lock")
    told: list[int] = []
    pack(ArraySource(numbers()), out, tell=lambda done, total: told.append(done))
    assert told[0] > 2000  # what was done is not done again
    assert out.read_bytes() == whole.path.read_bytes()
    assert not out.with_name("killed.h5.parts").exists()


def test_a_block_that_did_not_reach_the_disk_is_written_again(tmp_path: Path) -> None:
    whole = pack(ArraySource(numbers()), tmp_path / "whole.h5")
    out = tmp_path / "torn.h5"
    subprocess.run([sys.executable, "-c", KILLED, str(out), "2900"], timeout=60, check=False)
    shard = tmp_path / "torn.h5.parts" / "shards" / "00000.h5"
    with open(shard, "r+b") as file:
        file.seek(100_000)
        file.write(b"\0" * 1000)
    with open(tmp_path / "torn.h5.parts" / "journal.jsonl", "a") as file:
        file.write('{"number": 7, "num_sam')  # a line that was cut off
    pack(ArraySource(numbers()), out)
    assert out.read_bytes() == whole.path.read_bytes()


def test_parts_of_another_packing_are_not_used(tmp_path: Path) -> None:
    out = tmp_path / "a.h5"
    subprocess.run([sys.executable, "-c", KILLED, str(out), "400"], timeout=60, check=False)
    with pytest.raises(DataError, match=r"another packing \(other names, edges\)"):
        pack(ArraySource(numbers(2000)), out)
    with pytest.raises(DataError, match=r"other fingerprint"):
        pack(ArraySource(numbers()), out, fingerprint="changed")


def test_a_bad_sample_ends_packing_and_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"three\.dat is cut off"):
        pack(Flawed(numbers()), tmp_path / "a.h5")
    with pytest.raises(DataError, match=r"2 such samples so far, 1 allowed"):
        pack(Flawed(numbers()), tmp_path / "a.h5", PackConfig(skip_bad=1))


@pytest.mark.parametrize("shards", [0, 2])
def test_bad_samples_are_left_out_without_a_gap_and_listed(tmp_path: Path, shards: int) -> None:
    packed = pack(Flawed(numbers()), tmp_path / "a", PackConfig(skip_bad=2, shards=shards), attributes={"k": 1})
    source = PackedSource(packed.path)
    good = [index for index in range(3000) if index not in BAD]
    assert read_field(source, "y").tolist() == good
    assert [source.name(i) for i in (0, 3, 2997)] == ["0", "4", "2999"]
    assert packed.left_out == source.attributes["left_out"] == {str(index): text for index, text in BAD.items()}
    assert source.attributes["k"] == 1
    mean = numbers()["x"][good].double().mean()
    assert source.moments["x"].mean[0] == pytest.approx(float(mean))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_values_that_are_no_numbers_are_found_with_their_sample(tmp_path: Path) -> None:
    values = torch.rand(100, 10)
    values[42, 3:5] = float("nan")
    with pytest.raises(DataError, match=r"sample 42 \(42\) has 2 of 10 values in 'x' that are NaN"):
        pack(ArraySource({"x": values}), tmp_path / "a.h5")
    assert pack(ArraySource({"x": values}), tmp_path / "b.h5", PackConfig(skip_bad=1)).num_samples == 99
    assert pack(ArraySource({"x": values}), tmp_path / "c.h5", PackConfig(keep_nan=True)).num_samples == 100


def test_a_class_that_does_not_exist_is_found(tmp_path: Path) -> None:
    fields = {"y": Field(shape=(), dtype="int64", classes=("a", "b"))}
    with pytest.raises(DataError, match=r"sample 2 \(2\) has the class 7 in 'y'. Allowed: 0 to 1"):
        pack(ArraySource({"y": torch.tensor([0, 1, 7])}, fields), tmp_path / "a.h5")


def test_unfit_samples_of_later_blocks_are_the_ones_left_out(tmp_path: Path) -> None:
    values = numbers()["x"]
    values[2400, 0, 0] = float("inf")
    classes = torch.zeros(3000, dtype=torch.int64)
    classes[2500] = 7
    fields = {
        "x": Field(shape=(3, 200), dtype="float32"),
        "y": Field(shape=(), dtype="int64", classes=("a", "b")),
    }
    packed = pack(ArraySource({"x": values, "y": classes}, fields), tmp_path / "a.h5", PackConfig(skip_bad=2))
    assert list(packed.left_out) == ["2400", "2500"]
    source = PackedSource(packed.path)
    good = [index for index in range(3000) if index not in (2400, 2500)]
    assert [source.name(i) for i in range(len(source))] == [str(index) for index in good]
    assert torch.equal(torch.as_tensor(read_field(source, "x")), values[good])


def test_what_can_not_be_packed_is_refused(tmp_path: Path) -> None:
    source = ArraySource({"x": torch.zeros(2)})
    (tmp_path / "there.h5").touch()
    with pytest.raises(DataError, match="exists already"):
        pack(source, tmp_path / "there.h5")
    with pytest.raises(DataError, match="two samples are called 'a'"):
        pack(ArraySource({"x": torch.zeros(2)}, names=["a", "a"]), tmp_path / "b.h5")
    with pytest.raises(DataError, match="dtype bfloat16 can't be packed"):
        pack(ArraySource({"x": torch.zeros(2, dtype=torch.bfloat16)}), tmp_path / "c.h5")
    assert [path.name for path in tmp_path.iterdir()] == ["there.h5"]
    with pytest.raises(DataError, match="--ranks 0"):
        PackConfig(ranks=0)
    with pytest.raises(DataError, match="can't be written: File exists"):
        pack(source, tmp_path / "there.h5" / "d.h5")
