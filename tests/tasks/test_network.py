"""A network of a user's own in a task of the table."""

from typing import Any

import pytest
import torch
from torch import nn

from deepex.errors import ConfigError
from deepex.tasks.fashion import Fashion
from deepex.tasks.imagenet import Imagenet
from deepex.tasks.network import build_network, check_network, locate_network


class Flat(nn.Sequential):
    def __init__(self, *, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(int(torch.tensor(shape).prod()), classes))


def three(**sizes: Any) -> int:
    return 3


def test_it_is_built_for_the_sizes_of_the_data() -> None:
    made = build_network(f"{__name__}:Flat", shape=(3, 4, 5), classes=7)
    assert made(torch.zeros(2, 3, 4, 5)).shape == (2, 7)
    task = Fashion(network=f"{__name__}:Flat", shape=(1, 28, 28))
    assert task.model()(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    task_with_side = Imagenet(network=f"{__name__}:Flat", side=8, stored_side=8, classes=5)
    assert task_with_side.model()(torch.zeros(2, 3, 8, 8)).shape == (2, 5)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("torch.nn:Linear", "task.network=torch.nn:Linear can't be called with shape=(1,), classes=2: "),
        (f"{__name__}:three", "made a int of shape=(1,), classes=2. Allowed: an nn.Module"),
        ("math:pi", "can't be called with shape=(1,), classes=2"),
        ("math:pie", "unknown name 'pie'. Did you mean 'pi'?"),
    ],
)
def test_what_is_no_network_is_told_with_the_call(name: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        build_network(name, shape=(1,), classes=2)
    assert said in str(raised.value)


def test_a_name_is_one_of_the_table_or_of_code() -> None:
    for known in (None, "vgg16", "nets.py:Small", "package.module:Small"):
        check_network(known, ("vgg16",))
    with pytest.raises(ConfigError, match=r"unknown network 'vgg'\. Did you mean 'vgg16'\?.* file\.py:name"):
        check_network("vgg", ("vgg16",))
    assert [locate_network(name) for name in (None, "vgg16", "a.b:C")] == [None, "vgg16", "a.b:C"]
    located = locate_network("nets.py:Small")
    assert located is not None
    assert located.startswith("/")
