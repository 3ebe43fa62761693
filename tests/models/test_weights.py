from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from deepex.errors import DataError
from deepex.models.resnet import ResNet50
from deepex.models.weights import load_by_position


def rename(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"other.{number}": tensor.clone() for number, tensor in enumerate(state.values())}


def make_network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))


def test_a_resnet_s_weights_under_other_names_give_the_same_output() -> None:
    theirs = ResNet50(shape=(1, 16, 16), classes=3)
    for (
        module
    ) in theirs.modules():  # as after training: no scale is zero, and statistics are not those of a new network
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.0)
            nn.init.uniform_(module.bias, -0.1, 0.1)
            module.running_mean = torch.rand(module.num_features)
            module.running_var = torch.rand(module.num_features) + 0.5
    ours, images = ResNet50(shape=(1, 16, 16), classes=3).eval(), torch.rand(2, 1, 16, 16)
    theirs.eval()
    with torch.no_grad():
        assert not torch.equal(ours(images), theirs(images))
        load_by_position(ours, rename(theirs.state_dict()))
        assert torch.equal(ours(images), theirs(images))


@pytest.mark.parametrize("counted_here", [True, False])
def test_a_count_of_batches_may_be_missing_on_either_side(counted_here: bool) -> None:
    ours, theirs = make_network(), make_network()
    ours[1].register_buffer("num_batches_tracked", torch.tensor(7) if counted_here else None)
    state = theirs.state_dict()
    if counted_here:
        del state["1.num_batches_tracked"]
    load_by_position(ours, rename(state))
    assert torch.equal(ours.state_dict()["3.weight"], theirs.state_dict()["3.weight"])
    if counted_here:
        assert ours[1].num_batches_tracked == 7


def test_parameters_stay_the_same_objects_and_take_gradients() -> None:
    model = make_network()
    before = list(model.parameters())
    load_by_position(model, rename(make_network().state_dict()))
    assert all(left is right for left, right in zip(before, model.parameters(), strict=True))
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in before)


def test_half_precision_is_widened() -> None:
    model, state = make_network(), rename(make_network().half().state_dict())
    load_by_position(model, state)
    first = model.state_dict()["0.weight"]
    assert first.dtype == torch.float32
    assert torch.equal(first, state["other.0"].float())


Change = Callable[[dict[str, Tensor]], object]
MISFITS: list[tuple[Change, str]] = [
    (
        lambda state: state.update({"other.8": torch.zeros(3)}),
        r"tensor 8: the network has '3\.bias' of shape \(2,\) there, the weights 'other\.8' of shape \(3,\)",
    ),
    (
        lambda state: state.update({"other.0": state["other.1"]}),
        r"tensor 1: the network has '0\.weight' of shape \(4, 1, 3, 3\) there, the weights 'other\.0' of shape \(4,\)",
    ),
    (
        lambda state: state.pop("other.8"),
        r"tensor 8: the network has '3\.bias' of shape \(2,\) there, the weights nothing \(of 8 and 7 tensors\)",
    ),
    (
        lambda state: state.update({"extra": torch.zeros(5, 5)}),
        r"tensor 9: the network has nothing there, the weights 'extra' of shape \(5, 5\) \(of 8 and 9 tensors\)",
    ),
    (
        lambda state: state.update({"epoch": 3}),  # type: ignore[dict-item]  # as in a file that holds more than weights
        r"'epoch' is of type int",
    ),
]


@pytest.mark.parametrize(("change", "text"), MISFITS)
def test_weights_that_do_not_fit_are_named_and_change_nothing(change: Change, text: str) -> None:
    model, state = make_network(), rename(make_network().state_dict())
    before = rename(model.state_dict())
    change(state)
    with pytest.raises(DataError, match=text) as error:
        load_by_position(model, state)
    assert "Nothing was loaded" in str(error.value)
    assert all(torch.equal(*pair) for pair in zip(before.values(), model.state_dict().values(), strict=True))
