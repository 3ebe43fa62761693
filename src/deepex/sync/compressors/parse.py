"""The table of compressions, and how what is written behind a `+` becomes one of them."""

from collections.abc import Callable
from dataclasses import dataclass

from deepex.errors import ConfigError, unknown
from deepex.sync.compressors.compressor import Compressor, Uncompressed
from deepex.sync.compressors.half import BFloat16, Float16
from deepex.sync.compressors.powersgd import PowerSGD
from deepex.sync.compressors.topk import TopK


@dataclass(frozen=True, kw_only=True)
class Compression:
    """A line of the table.

    Attributes:
        form: how people write it, for help and errors.
        example: one that can be parsed as it stands; tests of all compressions take it.
        parse: makes a compressor of what stands behind the colon; a ValueError says what is allowed.
    """

    form: str
    example: str
    parse: Callable[[str], Compressor]


COMPRESSIONS: dict[str, Compression] = {
    "bf16": Compression(form="bf16", example="bf16", parse=BFloat16.parse),
    "fp16": Compression(form="fp16", example="fp16", parse=Float16.parse),
    "topk": Compression(form="topk:F", example="topk:0.05", parse=TopK.parse),
    "powersgd": Compression(form="powersgd:R", example="powersgd:2", parse=PowerSGD.parse),
}


def parse_compressor(text: str, whole: str) -> Compressor:
    """The compressor that `text` names; without one numbers travel as they are. An error quotes `whole`, the strategy.

    >>> parse_compressor("topk:0.01", "allreduce+topk:0.01").name
    'topk:0.01'
    """
    if not text:
        return Uncompressed()
    name, _, argument = text.partition(":")
    if name not in COMPRESSIONS:
        forms = [compression.form for compression in COMPRESSIONS.values()]
        raise ConfigError(f"sync '{whole}': {unknown('compression', text, forms)}")
    try:
        return COMPRESSIONS[name].parse(argument)
    except ValueError as problem:
        raise ConfigError(f"sync '{whole}': {problem}") from None
