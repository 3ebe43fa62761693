from pathlib import Path

import pytest

from deepex.data.packing.block import BlockResult
from deepex.data.packing.journal import Journal
from deepex.errors import DataError


def result(number: int, **bad: str) -> BlockResult:
    reasons = {int(index.removeprefix("sample")): text for index, text in bad.items()}
    return BlockResult(number=number, num_samples=10, sha256={"x": f"{number:064d}"}, bad=reasons)


def test_whoever_starts_again_finds_what_all_ranks_noted(tmp_path: Path) -> None:
    for rank in (0, 1):
        Journal(tmp_path, rank=rank).add(result(rank))
    Journal(tmp_path).add(result(2))
    with open(tmp_path / "journal-00001.jsonl", "a") as file:
        file.write('{"number": 7, "num_sam')  # a line that was cut off
    again = Journal(tmp_path, rank=1)
    again.read()
    assert again.done == {number: result(number) for number in (0, 1, 2)}
    assert again.num_samples == 30
    again.retain([1])
    again.add(result(3))
    assert (list(again.done), again.num_samples) == ([1, 3], 20)


def test_the_last_that_was_noted_of_a_block_counts(tmp_path: Path) -> None:
    journal = Journal(tmp_path, skip_bad=1)
    journal.add(result(0, sample3="three is cut off"))
    journal.add(result(0))
    journal.read()
    assert journal.done == {0: result(0)}
    assert journal.bad == {}


def test_too_many_bad_samples_are_an_error_that_names_the_first(tmp_path: Path) -> None:
    journal = Journal(tmp_path, skip_bad=1)
    journal.add(result(5, sample52="late.dat is cut off"))
    with pytest.raises(DataError, match=r"^three\.dat is cut off\. \(2 such samples so far, 1 allowed\) What is done"):
        journal.add(result(0, sample3="three.dat is cut off."))
    assert list(journal.bad) == [3, 52]
    strict = Journal(tmp_path)
    strict.read()
    with pytest.raises(DataError, match=r"^three\.dat is cut off\. What is done is kept"):
        strict.retain([0])
