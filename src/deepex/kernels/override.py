"""Putting a kernel of our own in the place of one of torch's, on the processor, in this process. It knows no model."""

import warnings
from collections.abc import Callable
from typing import Any

import torch

Kernel = Callable[..., Any]

_library: list[torch.library.Library] = []  # as long as it lives, so do the kernels
_overridden: set[tuple[str, str]] = set()


def override(operator: str, owner: str, make: Callable[[Kernel], Kernel]) -> None:
    """Let `make`, given the kernel that is there, take the place of it; once for each owner."""
    if (operator, owner) in _overridden:
        return
    if not _library:
        _library.append(torch.library.Library("aten", "IMPL"))  # type: ignore[no-untyped-call]  # torch
    there = torch.library.get_kernel(f"aten::{operator}", "CPU")
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

    def before(*operands: Any, **settings: Any) -> Any:
        return there.call_boxed(keys, *operands, **settings)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning only once for all operators")  # that is the point
        _library[0].impl(operator, make(before), "CPU", allow_override=True)  # type: ignore[no-untyped-call]  # torch
    _overridden.add((operator, owner))
