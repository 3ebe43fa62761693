"""Weights as files: what comes back, and what is told of those that don't fit."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from deepex.errors import RunFolderError
from deepex.record.weights import collect_weights, load_into, read_weights, write_weights


class Tied(nn.Module):
    """Weights of many kinds, two of them one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.conv = nn.Conv2d(2, 2, 3)
        self.conv.weight.data = self.conv.weight.data.contiguous(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(2)
        self.register_buffer("empty", torch.zeros(0, 4))
        self.register_buffer("small", torch.ones(2, dtype=torch.bfloat16))


def test_weights_come_back_bit_for_bit_under_each_of_their_names(tmp_path: Path) -> None:
    model = Tied()
    weights = collect_weights(model)
    with torch.no_grad():
        model.first.weight.zero_()  # they are a copy
    assert weights["first.weight"].any()
    write_weights(tmp_path / "w.safetensors", weights, {"epochs": "3"})
    read = read_weights(tmp_path / "w.safetensors")
    assert read.keys() == model.state_dict().keys()
    assert all(torch.equal(read[name], weights[name]) for name in read)
    assert all(read[name].dtype == value.dtype for name, value in model.state_dict().items())
    again = load_into(Tied(), read, "run")
    assert torch.equal(again.get_parameter("second.weight"), weights["first.weight"])


class Extra(nn.Linear):
    """A module with state of its own that is no tensor."""

    def get_extra_state(self) -> str:
        return "mine"

    def set_extra_state(self, state: str) -> None:
        raise AssertionError("nothing was saved of it")


def test_state_that_is_no_tensor_stays_as_the_module_has_it() -> None:
    weights = collect_weights(Extra(2, 1))
    assert sorted(weights) == ["bias", "weight"]
    load_into(Extra(2, 1), weights, "run")


def test_weights_that_do_not_fit_are_told_by_name_and_change_nothing() -> None:
    many = {f"layer{number}": torch.zeros(1) for number in range(7)}
    model = nn.Linear(2, 1)
    before = model.weight.detach().clone()
    with pytest.raises(RunFolderError) as raised:
        load_into(model, {**many, "weight": torch.zeros(3, 2)}, "runs/a")
    said = str(raised.value)
    assert "the weights of runs/a don't fit the module Linear: the module has bias, which runs/a has not" in said
    assert "runs/a has layer0, layer1, layer2, layer3, layer4 and 2 more, which the module has not" in said
    assert "weight is (3, 2) there and (1, 2) in the module" in said
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize("content", [b"", b"no weights", b"\x08\0\0\0\0\0\0\0{}      "[:9]])
def test_a_file_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "w.safetensors"
    with pytest.raises(RunFolderError, match=f"{file} can't be read: .*Bring it back from a copy"):
        read_weights(file)
    file.write_bytes(content)
    with pytest.raises(RunFolderError, match=f"{file} can't be read: .*Bring it back from a copy"):
        read_weights(file)


def test_a_full_disk_is_an_error_of_the_system(small_disk: Callable[[int], Path]) -> None:
    weights: dict[str, Tensor] = {"x": torch.zeros(10**6)}
    with pytest.raises(OSError, match="No space left on device"):
        write_weights(small_disk(10**6) / "w.safetensors", weights)
