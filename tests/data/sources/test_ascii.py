import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from deepex.config import override
from deepex.data.source import Source, allocate, read_all
from deepex.data.sources import open_source
from deepex.data.sources.ascii import Options
from deepex.errors import ConfigError, DataError, SampleError
from deepex.sample import Batch
from deepex.testing.source import check_source


def _matrices(count: int, rows: int, columns: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((count, rows, columns), dtype=np.float32)


def _text(matrix: NDArray[np.float32], separator: str = " ") -> str:
    return "".join(separator.join(map(str, row)) + "\n" for row in matrix.tolist())


def _read(source: Source, *indices: int) -> Batch:
    out = allocate(source.spec, len(indices))
    source.read(indices, out)
    return out


@pytest.mark.parametrize("separator", [" ", ",", " , ", "\t"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_matrices_with_blank_lines_between(tmp_path: Path, separator: str, ending: str) -> None:
    values = _matrices(4, 3, 5)
    text = " \n\n".join(_text(matrix, separator) for matrix in values)
    (tmp_path / "x.txt").write_bytes(text.replace("\n", ending).encode())
    source = open_source(tmp_path / "x.txt")
    assert source.spec.fields["matrix"].shape == (3, 5)
    assert [source.name(index) for index in range(4)] == ["x.txt:0", "x.txt:1", "x.txt:2", "x.txt:3"]
    assert np.array_equal(_read(source, 3, 0, 3)["matrix"], values[[3, 0, 3]])


def test_matrices_of_a_number_of_rows(tmp_path: Path) -> None:
    values = _matrices(6, 4, 4)
    (tmp_path / "x.array").write_text("# made by hand\n" + "".join(map(_text, values)).rstrip("\n"))
    source = open_source(tmp_path, options=["rows=4", "dtype=float64", "field=contact_map"])
    assert source.spec.fields["contact_map"].dtype == "float64"
    assert np.array_equal(read_all(source)["contact_map"].float(), values)
    spaced = "\n".join(f"{line}\n" for line in _text(values[0]).splitlines())
    (tmp_path / "spaced.txt").write_text(spaced)
    assert np.array_equal(read_all(open_source(tmp_path / "spaced.txt", options=["rows=4"]))["matrix"][0], values[0])


def test_many_files_keep_the_contract_of_a_source(tmp_path: Path) -> None:
    values = _matrices(7, 2, 3)
    (tmp_path / "a.dat").write_text("\n".join(map(_text, values[:4])))
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.csv").write_text("".join(_text(matrix, ",") + "\n\n\n" for matrix in values[4:]))
    source = open_source(tmp_path)
    assert source.name(4) == "deep/b.csv:0"
    assert np.array_equal(read_all(source)["matrix"], values)
    check_source(lambda: open_source(tmp_path))


def test_whole_numbers(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("0 255\n1.0 2e1\n")
    source = open_source(tmp_path, options=["dtype=uint8"])
    assert read_all(source)["matrix"].tolist() == [[[0, 255], [1, 20]]]
    for word in ("256", "-1", "0.5", "nan"):
        (tmp_path / "y.txt").write_text(f"1 2\n{word} 3\n")
        mixed = open_source(tmp_path, options=["dtype=uint8"])
        with pytest.raises(SampleError, match=rf"y.txt, line 1: .* holds {word}, which is no uint8.*from 0 to 255"):
            _read(mixed, 1)


BAD = {
    "1 2\n3 x4\n": r"bad.txt, line 4: 'x4' is not a number.*--skip-bad",
    "1 2\n# why\n3\n": r"bad.txt, line 5 has 1 numbers, the first line of this matrix 2",
    "1 2\n3 4\n5 6\n": r"bad.txt, line 3: here begins a matrix of 3 rows of 2 numbers; expected.* 2 rows of 2 numbers",
    "1 2 3\n3 4 5\n": r"bad.txt, line 3: here begins a matrix of 2 rows of 3 numbers",
    "\x00\xff 2\n3 4\n": r"bad.txt, line 3: '.*' is not a number",
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_matrix_is_told_with_its_line(tmp_path: Path, bad: str) -> None:
    (tmp_path / "a.txt").write_text("1 2\n3 4\n")
    (tmp_path / "bad.txt").write_text(f"\n\n{bad}\n\n5 6\n7 8\n")
    source = open_source(tmp_path)
    assert _read(source, 2)["matrix"].tolist() == [[[5, 6], [7, 8]]]
    with pytest.raises(SampleError, match=BAD[bad]):
        _read(source, 1)


def test_an_incomplete_last_matrix_is_told_on_reading(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("1 2\n3 4\n5 6\n")
    source = open_source(tmp_path, options=["rows=2"])
    assert _read(source, 0)["matrix"].tolist() == [[[1, 2], [3, 4]]]
    with pytest.raises(SampleError, match=r"x.txt, line 3: .* has 1 rows, then the file ends; expected: 2. Complete"):
        _read(source, 1)
    with pytest.raises(DataError, match="has 3 rows, then the file ends; expected: 28"):
        open_source(tmp_path, options=["rows=28"])


def test_a_first_matrix_that_is_bad_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a b\n\n1 2\n3 4\n")
    source = open_source(tmp_path)
    assert _read(source, 1)["matrix"].tolist() == [[[1, 2], [3, 4]]]
    with pytest.raises(SampleError, match=r"line 1: 'a' is not a number"):
        _read(source, 0)


def test_a_file_without_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n# nothing\n")
    with pytest.raises(DataError, match=r"a.txt holds no numbers"):
        open_source(tmp_path)
    (tmp_path / "b.txt").write_text("1 2\n")
    source = open_source(tmp_path)
    assert _read(source, 1)["matrix"].tolist() == [[[1, 2]]]
    with pytest.raises(SampleError, match=r"a.txt holds no numbers"):
        _read(source, 0)


def test_a_file_that_vanished_is_told_on_reading(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 2\n")
    source = open_source(tmp_path)
    (tmp_path / "a.txt").unlink()
    with pytest.raises(SampleError, match=r"a.txt can't be read \(No such file"):
        _read(source, 0)
    (tmp_path / "a.txt").symlink_to(tmp_path / "gone")
    with pytest.raises(DataError, match=r"a.txt can't be read \(No such file"):
        open_source(tmp_path, "ascii")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["rows=0"], "rows = 0. Allowed: whole numbers from 1"),
        (["field="], "field can't be empty"),
        (["dtype=float8"], "unknown value 'float8'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        override(Options(), options)
