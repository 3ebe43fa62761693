"""The compressions by name, and how what is written behind a `+` becomes one of them."""

from collections.abc import Callable

from deepex.errors import ConfigError, unknown
from deepex.sync.compressors.compressor import Plain, Wire
from deepex.sync.compressors.half import BFloat16, Float16
from deepex.sync.compressors.powersgd import PowerSGD
from deepex.sync.compressors.topk import TopK

COMPRESSION_FORMS = ("bf16", "fp16", "topk:F", "powersgd:R")
"""What people may write, for errors and help."""


def parse_wire(text: str, context: str) -> Wire:
    """The wire that `text` names, the plain one if it is empty; an error quotes `context`, the whole of the strategy.

    >>> parse_wire("topk:0.01", "allreduce+topk:0.01").name
    'topk:0.01'
    """
    if not text:
        return Plain()
    name, _, argument = text.partition(":")
    if name not in COMPRESSIONS:
        raise ConfigError(f"sync '{context}': {unknown('compression', text, COMPRESSION_FORMS)}")
    try:
        return COMPRESSIONS[name](argument)
    except ValueError as problem:
        raise ConfigError(f"sync '{context}': {problem}") from None


def _bare(wire: Wire, argument: str) -> Wire:
    if argument:
        raise ValueError(f"{wire.name} takes no argument. Write +{wire.name}.")
    return wire


def _topk(argument: str) -> Wire:
    try:
        share = float(argument)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise ValueError("F must be the share of numbers that travel, above 0 and below 1. Write +topk:0.01.")
    return TopK(share)


def _powersgd(argument: str) -> Wire:
    if not argument.isdecimal() or int(argument) < 1:
        raise ValueError("R must be the rank of a matrix that travels, a whole number from 1. Write +powersgd:4.")
    return PowerSGD(int(argument))


COMPRESSIONS: dict[str, Callable[[str], Wire]] = {
    "bf16": lambda argument: _bare(BFloat16(), argument),
    "fp16": lambda argument: _bare(Float16(), argument),
    "topk": _topk,
    "powersgd": _powersgd,
}
