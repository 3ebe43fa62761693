"""`deepex cluster`: run a command on several hosts that live on this machine."""

from typing import Annotated

import typer

from deepex.cluster.cluster import Cluster
from deepex.errors import UsageError
from deepex.launch.signals import hand_over_signals


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
        with hand_over_signals(ranks.send_signal):
            code = ranks.wait()
    raise typer.Exit(code)
