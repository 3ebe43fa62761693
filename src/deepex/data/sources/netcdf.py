"""NetCDF 3 and 4: variables become channels, a dimension samples; the files of a folder follow each other by name.

xarray and the netCDF library read and decode them, without dask. What they don't notice is checked here: of a
NetCDF 3 file that is cut short, they would read zeros.
"""

import math
import struct
from pathlib import Path
from typing import BinaryIO

import netCDF4  # noqa: F401  # xarray loads it by name; that it is missing should show here
import xarray as xr

from deepex.data.source import Source
from deepex.data.sources import READERS
from deepex.data.sources.reading.files import list_files
from deepex.data.sources.reading.grids import GridSource, Options

__all__ = ["Options", "open_source"]

WIDTHS = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}  # bytes of a number, by NetCDF's code


def open_source(path: Path, options: Options) -> Source:
    """The samples of a NetCDF file, or of all in a folder.

    Example: `open_source(Path("era5"), Options(variables=("t2m", "u10"), targets=("event",)))`
    """
    return GridSource(path, list_files(path, READERS["netcdf"].suffixes), options, open_dataset)


def open_dataset(file: Path) -> xr.Dataset:
    """One file, its values decoded when they are read, its times left as numbers."""
    promised, found = _promised_bytes(file), file.stat().st_size
    if found < promised:
        raise OSError(f"it is cut short: {found} bytes of {promised}")
    return xr.open_dataset(file, engine="netcdf4", decode_times=False, cache=False)


def _promised_bytes(file: Path) -> int:
    """How long a NetCDF 3 file is by its own header; 0 for other formats, which their libraries check.

    The header: https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html
    """
    with open(file, "rb") as stream:
        magic = stream.read(4)
        if magic[:3] != b"CDF":
            return 0
        try:
            return _Header(stream, magic[3]).promised_bytes()
        except (struct.error, IndexError, OverflowError) as error:
            raise OSError("its header is cut short or damaged") from error


class _Header:
    """The header of a NetCDF 3 file, read item by item. All numbers are big-endian, all items padded to 4 bytes."""

    def __init__(self, stream: BinaryIO, version: int) -> None:
        self.stream = stream
        self.count_format = ">Q" if version == 5 else ">I"  # of lengths and counts
        self.offset_format = ">I" if version == 1 else ">Q"

    def promised_bytes(self) -> int:
        """Where the last value ends."""
        num_records = self.number(self.count_format)
        lengths = [self.dimension() for _ in range(self.list_length())]
        self.skip_attributes()
        fixed, records = [0], []
        for _ in range(self.list_length()):
            shape, num_bytes, offset = self.variable(lengths)
            if shape and shape[0] == 0:
                records.append((offset, num_bytes))
            else:
                fixed.append(offset + num_bytes)
        # The records of all variables are interleaved, each padded unless it is alone.
        stride = records[0][1] if len(records) == 1 else sum(_padded(num_bytes) for _, num_bytes in records)
        ends = [offset + (num_records - 1) * stride + num_bytes for offset, num_bytes in records if num_records]
        return max(fixed + ends)

    def number(self, layout: str) -> int:
        return int(struct.unpack(layout, self.stream.read(struct.calcsize(layout)))[0])

    def list_length(self) -> int:
        self.number(">I")  # what it is a list of; zero where it is empty
        return self.number(self.count_format)

    def skip_name(self) -> None:
        self.stream.seek(_padded(self.number(self.count_format)), 1)

    def dimension(self) -> int:
        self.skip_name()
        return self.number(self.count_format)

    def skip_attributes(self) -> None:
        for _ in range(self.list_length()):
            self.skip_name()
            width = WIDTHS.get(self.number(">I"), 1)
            self.stream.seek(_padded(width * self.number(self.count_format)), 1)

    def variable(self, lengths: list[int]) -> tuple[list[int], int, int]:
        """A variable's shape, bytes (of one record, if it has records) and offset in the file."""
        self.skip_name()
        shape = [lengths[self.number(self.count_format)] for _ in range(self.number(self.count_format))]
        self.skip_attributes()
        width = WIDTHS.get(self.number(">I"), 1)
        self.number(self.count_format)  # its size, which overflows for large variables
        is_record = bool(shape) and shape[0] == 0
        return shape, width * math.prod(shape[1:] if is_record else shape), self.number(self.offset_format)


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // 4) * 4
