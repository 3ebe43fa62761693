"""`deepex cluster`: run a command on several hosts that live on this machine."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

from deepex.cluster.cluster import Cluster, Ranks
from deepex.errors import UsageError


def cluster(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="What each rank runs; put -- before it.")],
    hosts: Annotated[int, typer.Option(help="How many hosts to make.")] = 4,
    megabits: Annotated[float, typer.Option(help="Mbit/s of each host's line, in each direction.")] = 100.0,
    round_trip_ms: Annotated[float, typer.Option(help="From host to host and back, in milliseconds.")] = 1.0,
    ranks_per_host: Annotated[int, typer.Option(help="Ranks to start on each host.")] = 1,
) -> None:
    """Make a cluster on this machine, run a command there on all ranks, and remove it. Needs root.

    Ranks find each other as under torchrun. You see rank 0's output, and errors of all.

    Ctrl-C asks all ranks to stop; a second one ends them.
    """
    if ranks_per_host < 1:
        raise UsageError(f"--ranks-per-host {ranks_per_host}. Allowed: 1 or more. Leave it out for one.")
    with Cluster(hosts=hosts, megabits_per_second=megabits, round_trip_ms=round_trip_ms) as made:
        try:
            ranks = made.launch(command, ranks_per_host=ranks_per_host)
        except OSError as error:
            raise UsageError(
                f"'{command[0]}' can't be started: {error.strerror}. Allowed: a program that you could start here. "
                "Give its path."
            ) from error
        with _passing_signals_to(ranks):
            code = ranks.wait()
    raise typer.Exit(code)


@contextmanager
def _passing_signals_to(ranks: Ranks) -> Iterator[None]:
    """Ranks get the first SIGINT or SIGTERM, and time to save what they have; the second ends this process."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        for known, handler in before.items():
            signal.signal(known, handler)
        ranks.send_signal(signal.Signals(number))

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
