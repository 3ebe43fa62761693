import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from deepex.data import ArraySource, Source
from deepex.data.source import Indices
from deepex.sample import Batch, SampleSpec
from deepex.testing.source import check_source


class Good(ArraySource):
    """Twelve samples with two fields, which the sources below break."""

    def __init__(self) -> None:
        super().__init__({"x": torch.arange(36.0).reshape(12, 3), "label": torch.arange(12)})


class WrongOrder(Good):
    def read(self, indices: Indices, out: Batch) -> None:
        super().read(np.sort(np.asarray(indices)), out)


class NoRepeats(Good):
    def read(self, indices: Indices, out: Batch) -> None:
        unique = np.unique(np.asarray(indices)) if len(set(map(int, indices))) < len(indices) else np.asarray(indices)
        super().read(np.resize(unique, len(indices)), out)


class BatchOnly(Good):
    def read(self, indices: Indices, out: Batch) -> None:
        super().read(indices, out)
        if len(indices) == 1:
            out["x"][0] += 1


class FillsAll(Good):
    def read(self, indices: Indices, out: Batch) -> None:
        super().read(indices, out)
        for buffer in out.values():
            buffer[len(indices) :] = 0


class LeavesPlaces(Good):
    def read(self, indices: Indices, out: Batch) -> None:
        for name, buffer in out.items():
            buffer[: len(indices) - 1] = self.tensors[name][np.asarray(indices)][:-1]


class NewBuffers(Good):
    def read(self, indices: Indices, out: Batch) -> None:
        for name in out:
            out[name] = torch.cat([self.tensors[name][np.asarray(indices)], out[name][len(indices) :]])


class MoreBuffers(Good):
    def read(self, indices: Indices, out: Batch) -> None:
        super().read(indices, out)
        out["extra"] = torch.zeros(len(indices))


class AllFieldsOnly(Good):
    def read(self, indices: Indices, out: Batch) -> None:
        super().read(indices, out)
        if len(out) < 2:
            for buffer in out.values():
                buffer[: len(indices)] += 1


class Changing(Good):
    def read(self, indices: Indices, out: Batch) -> None:
        super().read(indices, out)
        self.tensors["label"] += 1


class SameNames(Good):
    def name(self, index: int) -> str:
        return str(index // 2)


class NumberNames(Good):
    def name(self, index: int) -> str:
        return index  # type: ignore[return-value]  # what is tested


class EmptyNames(Good):
    def name(self, index: int) -> str:
        return ""


class NewNames(Good):
    def name(self, index: int) -> str:
        return f"{id(self)}:{index}"


class NoSamples(Good):
    def __len__(self) -> int:
        return 0


class NoFields(Good):
    def __init__(self) -> None:
        super().__init__()
        self.spec = SampleSpec()


class HoldsLock(Good):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class OtherAfterPickle(Good):
    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__()  # type: ignore[misc]  # what is tested
        self.tensors["x"] += 1


class ThisThreadOnly(Good):
    def read(self, indices: Indices, out: Batch) -> None:
        super().read(indices, out)
        if threading.current_thread() is not threading.main_thread():
            out["label"][: len(indices)] += 1


class ThisProcessOnly(Good):
    def __init__(self) -> None:
        super().__init__()
        self.process = os.getpid()

    def read(self, indices: Indices, out: Batch) -> None:
        super().read(indices, out)
        if os.getpid() != self.process:
            out["label"][: len(indices)] += 1


BROKEN = [
    (WrongOrder, "backwards gives samples in another order"),
    (NoRepeats, "with repeats gives samples in another order"),
    (BatchOnly, "one by one differ"),
    (FillsAll, "changed places of x beyond its own"),
    (LeavesPlaces, "what was in the buffer before shows"),
    (NewBuffers, "another tensor in the place of the buffer for x"),
    (MoreBuffers, "was given .* to fill and left"),
    (AllFieldsOnly, "read without the other fields, x is another"),
    (Changing, "shows|again gives other"),
    (SameNames, "2 samples are called '0'"),
    (NumberNames, "the name of sample 0 is 0, not text"),
    (EmptyNames, "sample 0 has an empty name"),
    (NewNames, "by a second source"),
    (NoSamples, "no samples"),
    (NoFields, "no fields"),
    (HoldsLock, "can't be pickled"),
    (OtherAfterPickle, "after a pickle"),
    (ThisThreadOnly, "a thread reads other samples"),
]


@pytest.mark.parametrize(("broken", "problem"), BROKEN)
def test_a_source_that_breaks_a_promise_is_told(broken: Callable[[], Source], problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        check_source(broken)


def test_a_source_that_differs_from_its_second_is_told() -> None:
    numbers = iter([2, 2, 3])
    with pytest.raises(AssertionError, match="a second source reads other samples"):
        check_source(lambda: ArraySource({"x": torch.full((2,), next(numbers))}))
    sizes = iter([2, 3])
    with pytest.raises(AssertionError, match="a second source has 3 samples, the first 2"):
        check_source(lambda: ArraySource({"x": torch.zeros(next(sizes))}))
    dtypes = iter([torch.int32, torch.int64])
    with pytest.raises(AssertionError, match=r"a second source holds .*int64"):
        check_source(lambda: ArraySource({"x": torch.zeros(2, dtype=next(dtypes))}))


def test_a_source_that_reads_otherwise_in_another_process_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))  # so that the other process finds this module
    with pytest.raises(AssertionError, match="another process reads other samples"):
        check_source(ThisProcessOnly)


def test_a_source_that_keeps_its_promises_passes() -> None:
    check_source(lambda: ArraySource({"x": torch.arange(36.0).reshape(12, 3), "yes": torch.arange(12) > 3}))
