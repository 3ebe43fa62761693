"""TFRecord files of tf.train.Example messages, plain or gzipped, as CosmoFlow ships them; checksums are checked.

Neither TensorFlow nor protobuf is needed: the framing and the few messages are parsed here. Plain files may hold many
records each. Gzip files are taken to hold one each, as CosmoFlow's do, unless the first of them holds more: then all
are run through once to find their records, and reading one unpacks all that stands before it.
"""

import gzip
import math
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal, TypeAlias

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from deepex.data.source import Indices, Source, as_array
from deepex.data.sources import READERS
from deepex.data.sources.reading.dtypes import HELD, WIDENED, held_dtype
from deepex.data.sources.reading.files import damaged, first_readable, list_files
from deepex.data.sources.reading.parts import Part, Parts
from deepex.errors import ConfigError, DataError, SampleError, unknown
from deepex.sample import Batch, Field, SampleSpec

GZIP_MAGIC = b"\x1f\x8b"
HEADER = struct.Struct("<QI")  # a record's length, and that number's checksum; the record's own checksum follows it
CHECKSUM = struct.Struct("<I")
DAMAGED = (ValueError, EOFError, OSError, zlib.error)  # what broken framing, messages and gzip raise

Stream: TypeAlias = gzip.GzipFile | BufferedReader
Example: TypeAlias = dict[str, NDArray[Any]]
"""Flat values by feature: bytes as uint8, float lists as float32, integer lists as int64."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to take from each record.

    Attributes:
        fields: each `name:dtype:shape`, as `x:int16:128x128x128x4`; the default is CosmoFlow's. A `?` in a shape is
            found out from the first record, several are equal. Without a shape, a list is as long as in the first
            record and a single number has no shape; without a dtype, bytes are uint8, lists float32 or int64.
        channels: where the first field has them; `last` ones are moved to the front, others stay as they are.
    """

    fields: tuple[str, ...] = ("x:int16:?x?x?x4", "y:float32:4")
    channels: Literal["none", "first", "last"] = "last"

    def __post_init__(self) -> None:
        names = [feature.name for feature in self.features()]
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"fields = '{','.join(self.fields)}'. Name at least one feature, and each just once.")

    def features(self) -> "list[Feature]":
        """What `fields` says, as values."""
        features = [_parse_field(text) for text in self.fields]
        return [replace(feature, channels_last=self.channels == "last") for feature in features[:1]] + features[1:]


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A feature as a field wants it; what is None is found out from an example."""

    name: str
    dtype: str | None
    shape: tuple[int | None, ...] | None
    channels_last: bool = False

    def fitted(self, example: Example) -> "Feature":
        """This feature with its dtype and shape as the example has them."""
        values = self._find(example)
        dtype = self.dtype or values.dtype.name
        count = values.nbytes // np.dtype(dtype).itemsize if values.dtype == np.uint8 else len(values)
        shape = self.shape
        if shape is None:
            shape = () if count == 1 else (count,)
        free, known = shape.count(None), math.prod(size for size in shape if size is not None)
        side = round((count / known) ** (1 / free)) if free and known else None
        fitted = replace(self, dtype=dtype, shape=tuple(side if size is None else size for size in shape))
        fitted.take(example)
        return fitted

    def field(self) -> Field:
        """What it is as a field of samples, once it is fitted."""
        values = self._shaped(np.empty(math.prod(self._sizes), dtype=np.uint8))
        return Field(shape=values.shape, dtype=str(held_dtype(np.dtype(self.dtype))))

    def take(self, example: Example) -> NDArray[Any]:
        """Its values in an example, once it is fitted."""
        values, count = self._find(example), math.prod(self._sizes)
        dtype = np.dtype(self.dtype).newbyteorder("<")
        is_bytes = values.dtype == np.uint8
        given, expected = (values.nbytes, count * dtype.itemsize) if is_bytes else (len(values), count)
        if given != expected:
            what = "bytes" if is_bytes else "values"
            shape = "x".join("?" if size is None else str(size) for size in self.shape or ()) or "one number"
            raise ValueError(f"feature '{self.name}' has {given} {what}; {self.dtype}:{shape} takes {expected}")
        # A byte other than 0 and 1 would be no valid yes or no.
        values = values.view(dtype) if is_bytes and dtype != np.bool_ else values.astype(dtype)
        return self._shaped(values)

    @property
    def _sizes(self) -> list[int]:
        return [size or 0 for size in self.shape or ()]

    def _shaped(self, values: NDArray[Any]) -> NDArray[Any]:
        shaped = values.reshape(self._sizes)
        return np.moveaxis(shaped, -1, 0) if self.channels_last and shaped.ndim > 1 else shaped

    def _find(self, example: Example) -> NDArray[Any]:
        if self.name not in example:
            kinds = {"uint8": "bytes", "float32": "floats", "int64": "integers"}
            held = ", ".join(f"{name} ({v.size} {kinds[v.dtype.name]})" for name, v in sorted(example.items()))
            raise ValueError(f"there is no feature '{self.name}'; there are: {held or 'none'}")
        return example[self.name]


def open_source(path: Path, options: Options) -> Source:
    """The records of a TFRecord file, or of all in a folder.

    Example: `open_source(Path("cosmoUniverse/train"), Options())`
    """
    suffixes = READERS["tfrecord"].suffixes
    files = list_files(path, (*suffixes, *(f"{suffix}.gz" for suffix in suffixes)))
    return RecordSource(path, files, options)


class RecordSource:
    """Records as samples."""

    def __init__(self, path: Path, files: Sequence[Path], options: Options) -> None:
        self._offsets: dict[Path, NDArray[np.int64]] = {}  # of files with several records, in the unpacked stream
        self._one_per_gzip: bool | None = None
        self._parts = Parts(files, path, self._inspect)
        first, example = first_readable(range(len(self)), self._numbered_example)
        try:
            self._features = [feature.fitted(example) for feature in options.features()]
        except ValueError as error:
            raise DataError(
                f"in record {self.name(first)} of {path}, {error}. Say what to read with fields=name:dtype:shape,..."
            ) from error
        self.spec = SampleSpec(fields={feature.name: feature.field() for feature in self._features})

    def __len__(self) -> int:
        return len(self._parts)

    def name(self, index: int) -> str:
        return self._parts.name(index)

    def read(self, indices: Indices, out: Batch) -> None:
        wanted = [(feature, as_array(out[feature.name])) for feature in self._features if feature.name in out]
        for part, rows, places in self._parts.split(indices):
            with _opened(part.file) as stream:
                for row in np.unique(rows).tolist():
                    example = self._example(stream, part, row)
                    for feature, array in wanted:
                        try:
                            array[places[rows == row]] = feature.take(example)
                        except ValueError as error:
                            raise SampleError(
                                f"in record {part.sample_name(row)} of {part.file}, {error}. "
                                "Leave it out with --skip-bad N."
                            ) from error

    def _example(self, stream: Stream, part: Part, row: int) -> Example:
        offsets = self._offsets.get(part.file)
        try:
            message = _read_record(stream, 0 if offsets is None else int(offsets[row]))
            if offsets is None and stream.read(1):
                raise ValueError("more follows, where the first gzip file holds one record; unpack all with gunzip")
            return parse_example(message)
        except DAMAGED as error:
            raise damaged(f"record {part.sample_name(row)} of {part.file}", error) from error

    def _inspect(self, file: Path) -> Sequence[object]:
        """The labels of a file's records: their numbers, or none where there is one."""
        with _opened(file) as stream:
            is_gzip = isinstance(stream, gzip.GzipFile)
            if is_gzip and self._one_per_gzip:
                return ("",)
            offsets = _find_records(stream)
        if not offsets:
            raise damaged(file, "it holds no record")
        if is_gzip and self._one_per_gzip is None:
            self._one_per_gzip = len(offsets) == 1
        if len(offsets) == 1:
            return ("",)
        self._offsets[file] = np.array(offsets)
        return range(len(offsets))

    def _numbered_example(self, index: int) -> tuple[int, Example]:
        ((part, rows, _),) = self._parts.split([index])
        with _opened(part.file) as stream:
            return index, self._example(stream, part, int(rows[0]))


def masked_checksum(data: bytes) -> int:
    """The CRC-32C of bytes, rotated and moved by a constant, as TFRecord stores it.

    >>> hex(masked_checksum(b"\\x18" + bytes(7)))  # all event files of TensorBoard begin with a record of 24 bytes
    '0x224b7fa3'
    """
    checksum = int(google_crc32c.value(data))
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def parse_example(message: bytes) -> Example:
    """The features of a tf.train.Example.

    Example{1: Features{1: entry{1: name, 2: Feature{1: BytesList | 2: FloatList | 3: Int64List}}}}, a list {1: values};
    https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/feature.proto
    """
    example: Example = {}
    for features in _nested(memoryview(message), 1):
        for entry in _nested(features, 1):
            name = b"".join(_nested(entry, 1)[-1:]).decode()
            for feature in _nested(entry, 2):
                for kind, content in _numbered(feature):
                    if kind not in (1, 2, 3):  # what a later version might add
                        continue
                    values = [value for number, value in _numbered(_message(content)) if number == 1]
                    example[name] = _array(kind, values)
    return example


def _array(kind: int, values: "list[int | memoryview]") -> NDArray[Any]:
    """The values of a list, packed or not, as one array."""
    if kind == 3:
        integers = [n for v in values for n in ([v] if isinstance(v, int) else _varints(v))]
        return np.array(integers, dtype=np.uint64).astype(np.int64)  # negative ones stand as their complement
    pieces = [_message(value) for value in values]
    content = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return np.frombuffer(content, dtype=np.uint8 if kind == 1 else np.dtype("<f4"))


def _numbered(message: memoryview) -> "Iterator[tuple[int, int | memoryview]]":
    """The fields of a protobuf message: number, and value as an integer (wire type 0) or bytes (the others)."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        wire_type = key & 7
        if wire_type == 0:
            value, position = _varint(message, position)
            yield key >> 3, value
            continue
        if wire_type == 2:
            length, position = _varint(message, position)
        elif wire_type in (1, 5):
            length = 8 if wire_type == 1 else 4
        else:
            raise ValueError(f"it is no tf.train.Example (wire type {wire_type})")
        if position + length > len(message):
            raise ValueError("it is no tf.train.Example (a field is longer than its message)")
        yield key >> 3, message[position : position + length]
        position += length


def _nested(message: memoryview, number: int) -> list[memoryview]:
    return [_message(value) for key, value in _numbered(message) if key == number]


def _message(value: "int | memoryview") -> memoryview:
    if isinstance(value, int):
        raise ValueError("it is no tf.train.Example (an integer stands where a message should)")
    return value


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """The integer at a position, seven bits a byte, the lowest first, and where the next thing stands."""
    value = shift = 0
    while position < len(message) and shift < 70:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        shift, position = shift + 7, position + 1
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
    raise ValueError("it is no tf.train.Example (an integer does not end)")


def _varints(message: memoryview) -> Iterator[int]:
    position = 0
    while position < len(message):
        value, position = _varint(message, position)
        yield value


def _find_records(stream: Stream) -> list[int]:
    """The offsets of all records. The last may be damaged, which shows when it is read."""
    offsets: list[int] = []
    position = 0
    try:
        while stream.seek(position) == position and (header := stream.read(HEADER.size)):
            offsets.append(position)
            position += HEADER.size + _length(header) + CHECKSUM.size
    except DAMAGED:
        pass
    return offsets


def _read_record(stream: Stream, offset: int) -> bytes:
    stream.seek(offset)
    length = _length(stream.read(HEADER.size))
    message, checksum = stream.read(length), stream.read(CHECKSUM.size)
    if len(checksum) < CHECKSUM.size:
        raise ValueError(f"it is cut short, {len(message)} bytes of {length}")
    if CHECKSUM.unpack(checksum)[0] != masked_checksum(message):
        raise ValueError("its checksum is wrong")
    return message


def _length(header: bytes) -> int:
    if len(header) < HEADER.size:
        raise ValueError("it is cut short")
    length, checksum = HEADER.unpack(header)
    if checksum != masked_checksum(header[:8]):
        raise ValueError("its length's checksum is wrong")
    return int(length)


def _opened(file: Path) -> Stream:
    try:
        with open(file, "rb") as start:
            is_gzip = start.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        return gzip.GzipFile(file) if is_gzip else open(file, "rb")
    except OSError as error:
        raise damaged(file, error) from error


def _parse_field(text: str) -> Feature:
    """A feature from `name`, `name:dtype` or `name:dtype:shape`."""
    name, _, rest = text.partition(":")
    dtype, _, shape = rest.partition(":")
    if not name or not re.fullmatch(r"((\d+|\?)x)*(\d+|\?)|", shape):
        raise ConfigError(f"field '{text}' is not of the form name:dtype:shape, as in x:int16:128x128x128x4.")
    if dtype and dtype not in (*HELD, *WIDENED):
        raise ConfigError(f"field '{text}': " + unknown("dtype", dtype, (*HELD, *WIDENED)))
    sizes = tuple(None if size == "?" else int(size) for size in shape.split("x")) if shape else None
    return Feature(name=name, dtype=dtype or None, shape=sizes)
