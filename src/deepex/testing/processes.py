"""Fresh processes for tests that need not import torch each: forked from one that has imported it and nothing else."""

from multiprocessing import get_context
from multiprocessing.context import ForkServerContext


def clean_processes() -> ForkServerContext:
    """A context whose processes begin as new ones do, but for two seconds of importing."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["deepex.testing.fabric", "deepex.testing.source"])
    return context
