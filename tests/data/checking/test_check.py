"""What a check finds, and what it leaves alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from deepex.data.checking.check import check
from deepex.data.checking.findings import Finding, Findings
from deepex.data.packing.pack import PackConfig, pack
from deepex.data.packing.packed import PackedSource
from deepex.data.source import ArraySource, Indices, as_array
from deepex.data.sources import open_source
from deepex.data.split import split_by_name
from deepex.errors import ConfigError
from deepex.sample import Batch, Field, SampleSpec

LABEL = Field(shape=(), dtype="int64", classes=("cat", "dog", "eel", "fox"))


def test_a_sound_set_has_no_errors_and_no_warnings(tmp_path: Path) -> None:
    pack(ArraySource(_noise(50)), tmp_path / "a.h5")
    findings = check(PackedSource(tmp_path / "a.h5", verify=False))
    assert findings.items == ()
    assert findings.num_samples == 50
    assert findings.compared == ("heat", "x")


def test_damage_is_told_by_field_and_samples_with_both_checksums_and_spoils_nothing_else(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((300, 4096)).astype(np.float32)
    pack(
        ArraySource({"x": x, "heat": np.zeros(300)}, names=[f"frame{number}" for number in range(300)]),
        tmp_path / "a.h5",
    )
    source = PackedSource(tmp_path / "a.h5", verify=False)
    file = source.files[0]
    assert file.block_samples < 100  # else there would be one block
    with open(file.path, "r+b") as stored:
        stored.seek(file.columns["x"].offset + 150 * file.columns["x"].row_bytes)
        stored.write(np.full(9, np.nan, dtype=np.float32).tobytes())
    damage, constant = check(PackedSource(tmp_path / "a.h5", verify=False)).items
    number = 150 // file.block_samples
    first, last = number * file.block_samples, (number + 1) * file.block_samples - 1
    assert (damage.severity, damage.kind) == ("error", "damage")
    assert f"a.h5 is damaged: 'x' of samples {first} to {last} has sha256 " in damage.sentence
    assert f"the header says {file.columns['x'].block_sha256[number]}" in damage.sentence
    assert (constant.severity, constant.sentence) == ("warning", "'heat' is 0.0 everywhere.")


def test_damage_in_a_shard_names_the_shard_and_many_blocks_are_counted(tmp_path: Path) -> None:
    pack(ArraySource({"x": torch.rand(400, 8192)}), tmp_path / "set", PackConfig(shards=2))
    shard = PackedSource(tmp_path / "set", verify=False).files[1]
    with open(shard.path, "r+b") as stored:
        stored.seek(shard.columns["x"].offset)
        stored.write(bytes(len(shard) * shard.columns["x"].row_bytes))
    errors = check(PackedSource(tmp_path / "set", verify=False)).of("error")
    assert all("00001.h5 is damaged" in error.sentence for error in errors[:5])
    blocks = len(shard.columns["x"].block_sha256)
    assert [error.sentence for error in errors[5:]] == [f"{blocks - 5} more blocks of samples are damaged."]


def test_values_that_are_no_numbers_are_counted_by_field_and_sample() -> None:
    arrays = _noise(40)
    arrays["x"][7, 0, 0] = np.nan
    arrays["x"][9, 1] = np.inf
    arrays["x"][9, 0, 0] = -np.inf
    names = [f"run{number}" for number in range(40)]
    error = _one(check(ArraySource(arrays, names=names)), "not finite")
    assert error.severity == "error"
    assert error.sentence == "11 values of 'x' are NaN or infinite, in 2 of 40 samples."
    assert error.samples == ("run7", "run9")
    assert "--skip-bad 2" in error.cure


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_values_that_are_no_numbers_are_found_in_any_dtype(dtype: torch.dtype) -> None:
    values = torch.full((4, 8), 60_000.0).to(dtype)  # their sum is more than float16 holds, and no error
    values[:, 0] = torch.arange(4)
    assert not check(ArraySource({"x": values})).of("error")
    values[2, 1] = torch.inf
    assert _one(check(ArraySource({"x": values})), "not finite").samples == ("2",)


def test_constant_channels_are_named() -> None:
    arrays = {"x": np.random.default_rng(0).random((30, 3, 5)).astype(np.float32)}
    arrays["x"][:, 1] = 2.5
    fields = {"x": Field(shape=(3, 5), dtype="float32", channels=("wind", "pressure", "rain"))}
    warning = _one(check(ArraySource(arrays, fields)), "constant")
    assert warning.severity == "warning"
    assert warning.sentence == "1 of 3 channels of 'x' never change: pressure is 2.5."


def test_copies_are_told_in_groups_whatever_their_labels_say() -> None:
    x = np.random.default_rng(0).random((20, 6))
    x[[4, 11, 17]] = x[2]
    x[8] = x[1]
    labels = np.arange(20) % 4
    source = ArraySource({"x": x, "label": labels}, {"x": Field(shape=(6,), dtype="float64"), "label": LABEL})
    warning = _one(check(source), "duplicates")
    assert warning.sentence == "4 of 20 samples repeat another: 2 groups with equal x."
    assert warning.samples == ("1 = 8", "2 = 4 = 11 = 1 more")
    assert not any(item.kind == "duplicates" for item in check(source, compare=["x", "label"]).items)


def test_content_on_both_sides_of_a_split_by_name_is_an_error() -> None:
    names = [f"frame{number}" for number in range(100)]
    parts = split_by_name(names, {"train": 0.8, "validation": 0.2})
    x = np.random.default_rng(0).random((100, 6))
    x[parts["train"][3]] = x[parts["train"][5]]
    assert not check(ArraySource({"x": x}, names=names)).of("error")
    x[parts["validation"][0]] = x[parts["train"][7]]
    error = _one(check(ArraySource({"x": x}, names=names)), "leakage")
    assert error.severity == "error"
    held_back = len(parts["validation"])
    assert f"1 of {held_back} validation samples has a duplicate among those for training" in error.sentence
    pair = sorted((int(parts["validation"][0]), int(parts["train"][7])))
    assert error.samples == (f"frame{pair[0]} = frame{pair[1]}",)


def test_content_on_both_sides_of_a_field_is_an_error_and_the_names_do_not_matter_then() -> None:
    x = np.random.default_rng(0).random((100, 6))
    x[10:50] = x[:40]  # surely on both sides by name
    source = ArraySource({"x": x, "split": np.arange(100) // 50})
    assert _one(check(source), "leakage")
    assert not check(source, split="split").of("error")
    x[77] = x[3]
    error = _one(check(source, split="split"), "leakage")
    assert "duplicates with another value of 'split'" in error.sentence
    assert error.samples == ("3 = 13 = 77",)


def test_rare_and_missing_classes_are_named_with_the_cure() -> None:
    labels = np.array([0] * 90 + [1] * 2 + [2] * 50)
    arrays = {"x": np.random.default_rng(0).random((142, 6)), "label": labels}
    findings = check(ArraySource(arrays, {"x": Field(shape=(6,), dtype="float64"), "label": LABEL}))
    assert _one(findings, "no samples").sentence == "1 of 4 classes of 'label' have no samples: fox."
    rare = _one(findings, "imbalance")
    assert rare.sentence == "In 'label', cat has 90 samples, 45 times as many as the rarest. Rare: dog (2)."
    assert rare.cure == "Draw each class equally often: data.balance=label"
    assert not findings.of("error")


def test_a_class_that_does_not_exist_is_an_error() -> None:
    arrays = {"x": torch.rand(6, 2), "label": torch.tensor([0, 1, 2, 3, 4, -1])}
    error = _one(check(ArraySource(arrays, {"x": Field(shape=(2,), dtype="float32"), "label": LABEL})), "class")
    assert error.samples == ("4", "5")


def test_samples_that_cannot_be_read_are_listed_and_the_others_are_checked(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (4, 8, 8, 3), dtype=np.uint8)
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
    Image.fromarray(pixels[2]).save(tmp_path / "copy.png")
    (tmp_path / "1.png").write_bytes(b"no image")
    findings = check(open_source(tmp_path))
    error = _one(findings, "unreadable")
    assert error.sentence.startswith("1 sample can't be read. ")
    assert "1.png" in error.sentence
    assert error.samples == ("1.png",)
    assert _one(findings, "duplicates").samples == ("2.png = copy.png",)


def test_wrong_fields_and_shares_are_refused() -> None:
    source = ArraySource(_noise(5))
    with pytest.raises(ConfigError, match="unknown field 'y'"):
        check(source, compare=["y"])
    with pytest.raises(ConfigError, match="--split heat, which has shape"):
        check(source, split="heat")
    with pytest.raises(ConfigError, match="between 0 and 1"):
        check(source, validation_share=1.0)
    assert _one(check(source, validation_share=1e-9), "split").severity == "note"


def test_memory_does_not_grow_with_the_bytes_of_the_samples() -> None:
    source = Ramps()
    check(source)  # what is loaded once
    Path("/proc/self/clear_refs").write_text("5")  # forgets the most memory that this process has had
    before = _most_memory_mib()
    check(source)
    total = len(source) * source.spec.num_bytes / 2**20
    assert total == 400
    assert _most_memory_mib() - before < 300  # a heap that is kept grows by 256 MiB at a time


class Ramps:
    """Samples of 4 MiB each that stand nowhere."""

    spec = SampleSpec(fields={"x": Field(shape=(1 << 20,), dtype="float32")})

    def __len__(self) -> int:
        return 100

    def read(self, indices: Indices, out: Batch) -> None:
        for place, index in enumerate(np.asarray(indices).tolist()):
            as_array(out["x"])[place] = index

    def name(self, index: int) -> str:
        return str(index)


def _most_memory_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024


def _noise(count: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {"x": generator.random((count, 3, 9)).astype(np.float32), "heat": generator.random(count)}


def _one(findings: Findings, kind: str) -> Finding:
    """The one finding of a kind."""
    (item,) = (item for item in findings.items if item.kind == kind)
    return item
