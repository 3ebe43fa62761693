import json
import tomllib
from dataclasses import replace

from deepex.config import to_tree
from deepex.doctor.advice import advise
from deepex.doctor.machine import Accelerator, Machine


def _ill(healthy: Machine) -> Machine:
    machine = replace(healthy, others_cores=3.0, accelerators=(Accelerator(name='A "big" GPU', memory_gib=80.0),))
    return replace(machine, warnings=advise(machine))


def test_toml_holds_everything_and_comes_back_equal(healthy: Machine) -> None:
    machine = _ill(healthy)
    tree = tomllib.loads(machine.to_toml())
    assert tree == to_tree(machine)
    assert tree["accelerators"] == [{"name": 'A "big" GPU', "memory_gib": 80.0}]
    assert tree["fabrics"][0]["times"][0] == {"bytes": 4096, "median_seconds": 1e-4, "gb_per_second": 0.041}
    assert tree["warnings"][0]["name"] == "busy"
    assert tree["processor"]["quota_cores"] == "none"


def test_json_holds_the_same_with_null_for_what_is_not_there(healthy: Machine) -> None:
    machine = _ill(healthy)
    told = json.loads(machine.to_json())
    assert told["processor"]["quota_cores"] is None
    assert _with_none_as_text(told) == tomllib.loads(machine.to_toml())


def _with_none_as_text(value: object) -> object:
    if isinstance(value, dict):
        return {key: _with_none_as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_none_as_text(item) for item in value]
    return "none" if value is None else value
