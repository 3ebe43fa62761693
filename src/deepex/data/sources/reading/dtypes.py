"""Which dtype a sample's numbers have, whatever the files hold: native byte order, and what PyTorch computes with."""

from typing import Any

import numpy as np

HELD = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
WIDENED = {"uint16": "int32", "uint32": "int64"}  # PyTorch has few operations for these


def held_dtype(dtype: np.dtype[Any]) -> str | None:
    """The name of the dtype that holds such numbers exactly, or None where there is none.

    >>> held_dtype(np.dtype(">u2")), held_dtype(np.dtype("complex64"))
    ('int32', None)
    """
    name = dtype.name
    return name if name in HELD else WIDENED.get(name)
