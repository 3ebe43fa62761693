import contextlib
import gzip
import math
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from deepex.data.source import read_all
from deepex.data.sources import open_source as open_any
from deepex.data.sources.tfrecord import Feature, Options, masked_checksum, open_source, parse_example
from deepex.errors import ConfigError, DataError, SampleError
from deepex.testing.source import check_source

# CS

# What TensorFlow's tutorial on TFRecord shows for four features: False, 4, b"goat", 0.9876.
GOAT = (
    b"\nR\n\x11\n\x08feature0\x12\x05\x1a\x03\n\x01\x00\n\x11\n\x08feature1\x12\x05\x1a\x03\n\x01\x04"
    b"\n\x14\n\x08feature2\x12\x08\n\x06\n\x04goat\n\x14\n\x08feature3\x12\x08\x12\x06\n\x04[\xd3|?"
)


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit, as RFC 3720 defines it."""
    remainder = 0xFFFFFFFF
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0x82F63B78 if remainder & 1 else 0)
    return remainder ^ 0xFFFFFFFF


def frame(message: bytes) -> bytes:
    """A message as a record of a file."""

    def mask(data: bytes) -> bytes:
        checksum = crc32c(data)
        return struct.pack("<I", ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(message))
    return length + mask(length) + message + mask(message)


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(features: Mapping[str, bytes]) -> bytes:
    """An Example message of ready-made Feature messages."""
    entries = [field(1, field(1, name.encode()) + field(2, feature)) for name, feature in features.items()]
    return field(1, b"".join(entries))


def of_bytes(content: bytes) -> bytes:
    return field(1, field(1, content))


def of_floats(*values: float) -> bytes:
    return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))


def of_integers(*values: int) -> bytes:
    return field(3, field(1, b"".join(varint(value) for value in values)))


def cosmo(number: int, side: int = 2) -> tuple[bytes, NDArray[np.int16]]:
    """One of CosmoFlow's examples, and its cube: channels last."""
    cube = np.arange(side**3 * 4, dtype=np.int16).reshape(side, side, side, 4) + number
    return example({"x": of_bytes(cube.tobytes()), "y": of_floats(number, 0.5, -1, 2)}), cube


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three samples as CosmoFlow ships them: gzip, one a file."""
    for number in range(3):
        (tmp_path / f"{number}.tfrecord").write_bytes(gzip.compress(frame(cosmo(number)[0])))
    return tmp_path


def test_the_contract_holds(tmp_path: Path) -> None:
    (tmp_path / "one.tfrecord.gz").write_bytes(gzip.compress(frame(cosmo(0)[0])))
    (tmp_path / "two.tfrecord").write_bytes(b"".join(frame(cosmo(number)[0]) for number in range(1, 4)))
    check_source(lambda: open_source(tmp_path, Options()))


def test_cosmoflow_s_files_are_read_as_they_ship(folder: Path) -> None:
    source = open_any(folder)
    assert [source.name(index) for index in range(len(source))] == ["0.tfrecord", "1.tfrecord", "2.tfrecord"]
    assert source.spec.fields["x"].shape == (4, 2, 2, 2)
    assert source.spec.fields["x"].dtype == "int16"
    batch = read_all(source)
    for number in range(3):
        assert np.array_equal(batch["x"][number].numpy(), np.moveaxis(cosmo(number)[1], -1, 0))
    assert batch["y"].tolist() == [[number, 0.5, -1, 2] for number in range(3)]


def test_the_side_of_the_real_cubes_is_found_out(tmp_path: Path) -> None:
    cube = np.random.default_rng(0).integers(0, 99, (128, 128, 128, 4), dtype=np.int16)
    values = {"x": cube.reshape(-1).view(np.uint8)}
    feature = Options().features()[0].fitted(values)
    assert feature.field().shape == (4, 128, 128, 128)
    assert np.array_equal(feature.take(values), np.moveaxis(cube, -1, 0))


@pytest.mark.parametrize("pack", [gzip.compress, bytes])
def test_files_of_many_records_number_them(tmp_path: Path, pack: type[bytes]) -> None:
    records = [frame(cosmo(number)[0]) for number in range(5)]
    (tmp_path / "a.tfrecord").write_bytes(pack(b"".join(records[:3])))
    (tmp_path / "b.tfrecord").write_bytes(pack(b"".join(records[3:])))
    source = open_source(tmp_path, Options())
    assert len(source) == 5
    assert source.name(4) == "b.tfrecord:1"
    out = {"y": torch.zeros(4, 4)}
    source.read([4, 0, 4, 2], out)
    assert out["y"][:, 0].tolist() == [4, 0, 4, 2]


def test_checksums_are_those_of_the_specification() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of the CRC catalogue
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    for data in (b"", b"\x18" + bytes(7), GOAT):
        assert frame(data)[-4:] == struct.pack("<I", masked_checksum(data))


def test_tensorflow_s_own_bytes_are_understood(tmp_path: Path) -> None:
    parsed = parse_example(GOAT)
    assert {name: values.tolist() for name, values in parsed.items()} == {
        "feature0": [0],
        "feature1": [4],
        "feature2": list(b"goat"),
        "feature3": [pytest.approx(0.9876)],
    }
    (tmp_path / "goat.tfrecord").write_bytes(frame(GOAT))
    source = open_source(tmp_path, Options(fields=("feature2", "feature1", "feature3:float64", "feature0:bool")))
    assert {name: (f.shape, f.dtype) for name, f in source.spec.fields.items()} == {
        "feature2": ((4,), "uint8"),
        "feature1": ((), "int64"),
        "feature3": ((), "float64"),
        "feature0": ((), "bool"),
    }
    batch = read_all(source)
    assert batch["feature1"].item() == 4
    assert bytes(batch["feature2"][0].tolist()) == b"goat"
    assert not batch["feature0"].item()


def test_lists_may_be_packed_or_not_and_negative() -> None:
    unpacked = {
        "f": field(2, b"".join(b"\x0d" + struct.pack("<f", v) for v in (1.5, -2.0))),
        "i": field(3, b"".join(b"\x08" + varint(v) for v in (-1, 300))),
        "b": field(1, field(1, b"ab") + field(1, b"c")),
        "packed": of_integers(-1, 300),
        "empty": b"",
        "newer": field(4, b"?") + of_floats(7),
    }
    # Messages of a later version may hold what is not known here: 64 bits, and an integer.
    parsed = parse_example(example(unpacked) + b"\x79" + bytes(8) + b"\x70\x05")
    assert parsed["f"].tolist() == [1.5, -2.0]
    assert parsed["i"].tolist() == parsed["packed"].tolist() == [-1, 300]
    assert parsed["b"].tobytes() == b"abc"
    assert "empty" not in parsed
    assert parsed["newer"].tolist() == [7]


@given(st.binary(max_size=40))
def test_any_bytes_are_understood_or_refused(content: bytes) -> None:
    for message in (content, field(1, field(1, content)), example({"v": content})):
        with contextlib.suppress(ValueError):
            parse_example(message)


@pytest.mark.parametrize(
    ("channels", "shape"), [("last", (3, 2)), ("first", (2, 3)), ("none", (2, 3))], ids=lambda value: str(value)
)
def test_channels_are_moved_only_from_the_end(tmp_path: Path, channels: str, shape: tuple[int, ...]) -> None:
    values = np.array([[1, 2, 3], [40000, 5, 6]], dtype="<u2")
    (tmp_path / "a.tfrecord").write_bytes(frame(example({"v": of_bytes(values.tobytes())})))
    source = open_any(tmp_path, options=["fields=v:uint16:2x3", f"channels={channels}"])
    assert (source.spec.fields["v"].shape, source.spec.fields["v"].dtype) == (shape, "int32")
    assert torch.equal(
        read_all(source)["v"][0],
        torch.tensor(values.astype(np.int32)).reshape(2, 3).mT
        if channels == "last"
        else torch.tensor(values.astype(np.int32)),
    )


def test_bytes_become_yes_and_no(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(frame(example({"m": of_bytes(b"\x00\x01\x02")})))
    assert read_all(open_source(tmp_path, Options(fields=("m:bool",))))["m"].tolist() == [[False, True, True]]


def test_only_the_buffers_given_are_filled(folder: Path) -> None:
    out = {"y": torch.full((3, 4), -7.0)}
    open_source(folder, Options()).read(np.array([2, 1]), out)
    assert out["y"][:2, 0].tolist() == [2, 1]
    assert (out["y"][2] == -7).all()


def broken(record: bytes, kind: str) -> bytes:
    """A record's file, damaged."""
    flipped = record[:40] + bytes([record[40] ^ 1]) + record[41:]
    packed = gzip.compress(record)
    return {
        "checksum": flipped,
        "length": bytes([record[0] ^ 1]) + record[1:],
        "cut": record[:-7],
        "cut header": record[:5],
        "gzip cut": packed[: len(packed) // 2],
        "gzip cut in its trailer": packed[:-3],
        "gzip flipped": packed[:15] + bytes([packed[15] ^ 0xFF]) + packed[16:],
        "no gzip": b"\x1f\x8b" + bytes(30),
        "empty": b"",
        "no message": frame(b"\xff\xff\xff"),
        "message cut": frame(b"\n\x7fab"),
        "wire type": frame(b"\x0b"),
        "integer for a message": frame(b"\x08\x01"),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("checksum", "1.tfrecord of .*checksum is wrong"),
        ("length", "length's checksum is wrong"),
        ("cut", "cut short, 1.. bytes of 1.."),
        ("cut header", "cut short"),
        ("gzip cut", "end-of-stream"),
        ("gzip cut in its trailer", "end-of-stream"),
        ("gzip flipped", "can't be read"),
        ("no gzip", "can't be read"),
        ("empty", "no record"),
        ("no message", "does not end"),
        ("message cut", "longer than its message"),
        ("wire type", "wire type 3"),
        ("integer for a message", "an integer stands"),
    ],
)
def test_a_bad_record_is_told_when_it_is_read_and_spares_the_others(folder: Path, kind: str, told: str) -> None:
    (folder / "1.tfrecord").write_bytes(broken(frame(cosmo(1)[0]), kind))
    source = open_source(folder, Options())
    assert len(source) == 3
    out = {"y": torch.zeros(2, 4)}
    source.read([0, 2], out)
    assert out["y"][:, 0].tolist() == [0, 2]
    with pytest.raises(SampleError, match=told) as error:
        source.read([1], out)
    assert str(folder / "1.tfrecord") in str(error.value)
    # Alone, and as the first of many, it is no reason to give up the others.
    (folder / "0.tfrecord").write_bytes((folder / "1.tfrecord").read_bytes())
    assert len(open_source(folder, Options())) == 3
    with pytest.raises(DataError, match="can't be read"):
        open_source(folder / "0.tfrecord", Options())


def test_a_record_after_a_bad_length_can_t_be_found_but_those_before_it_can(tmp_path: Path) -> None:
    records = [frame(cosmo(number)[0]) for number in range(4)]
    records[2] = b"\x00" + records[2][1:]
    (tmp_path / "a.tfrecord").write_bytes(b"".join(records))
    source = open_source(tmp_path, Options())
    assert len(source) == 3
    source.read([0, 1], {"y": torch.zeros(2, 4)})
    with pytest.raises(SampleError, match=r"a.tfrecord:2"):
        source.read([2], {"y": torch.zeros(1, 4)})


def test_a_gzip_file_with_more_records_than_the_first_is_told(folder: Path) -> None:
    (folder / "1.tfrecord").write_bytes(gzip.compress(frame(cosmo(1)[0]) * 2))
    source = open_source(folder, Options())
    with pytest.raises(SampleError, match="gunzip"):
        source.read([1], {"y": torch.zeros(1, 4)})


def test_a_record_that_differs_from_the_first_is_told(folder: Path) -> None:
    (folder / "1.tfrecord").write_bytes(frame(cosmo(1, side=3)[0]))
    (folder / "2.tfrecord").write_bytes(frame(example({"x": of_bytes(bytes(64))})))
    source = open_source(folder, Options())
    with pytest.raises(SampleError, match="'x' has 216 bytes; int16:2x2x2x4 takes 64"):
        source.read([1], {"x": torch.zeros(1, 4, 2, 2, 2, dtype=torch.int16)})
    with pytest.raises(SampleError, match="no feature 'y'"):
        source.read([2], {"y": torch.zeros(1, 4)})


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (("z:int16:4",), r"no feature 'z'; there are: x \(64 bytes\), y \(4 floats\)"),
        (("x:int16:?x?x3",), "'x' has 64 bytes; int16:3x3x3 takes 54"),
        (("x:int16:0x?",), "'x' has 64 bytes; int16:0x. takes 0"),
        (("y:float32:2x3",), "'y' has 4 values; float32:2x3 takes 6"),
    ],
)
def test_fields_that_the_records_don_t_have_are_told_on_opening(
    folder: Path, fields: tuple[str, ...], told: str
) -> None:
    with pytest.raises(DataError, match=told) as error:
        open_source(folder, Options(fields=fields))
    assert "fields=name:dtype:shape" in str(error.value)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (("x:int16:4by4",), "form name:dtype:shape"),
        ((":int16",), "form name:dtype:shape"),
        (("x:int17",), "Did you mean 'int16'"),
        ((), "at least one"),
        (("x", "x:int16"), "just once"),
    ],
)
def test_wrong_options_are_refused(fields: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Options(fields=fields)


def test_a_file_that_goes_away_is_told(folder: Path) -> None:
    source = open_source(folder, Options())
    (folder / "1.tfrecord").unlink()
    with pytest.raises(SampleError, match="No such file"):
        source.read([1], {"y": torch.zeros(1, 4)})


def test_a_feature_without_values_has_no_size() -> None:
    feature = Feature(name="v", dtype=None, shape=None).fitted({"v": np.zeros(0, np.int64)})
    assert math.prod(feature.field().shape) == 0
