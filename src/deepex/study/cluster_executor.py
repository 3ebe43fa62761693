"""A study's runs on hosts that live on this machine: one rank a host while there are hosts, then equally many each."""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deepex.cluster.cluster import Cluster, Ranks
from deepex.config import override
from deepex.errors import ConfigError
from deepex.study.executor import deepex_command, let_launcher_count

SECONDS_TO_SAVE = 60.0


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """A cluster as it is written: `hosts=4,mbit=100,rtt_ms=1`."""

    hosts: int = 4
    mbit: float = 100.0
    rtt_ms: float = 1.0

    def __post_init__(self) -> None:
        if self.hosts < 1:
            raise ConfigError(f"--cluster hosts={self.hosts}. Allowed: whole numbers from 1.")

    @classmethod
    def parse(cls, text: str) -> "ClusterSpec":
        """
        >>> ClusterSpec.parse("hosts=2,rtt_ms=4")
        ClusterSpec(hosts=2, mbit=100.0, rtt_ms=4.0)
        """
        return override(cls(), [word for word in text.split(",") if word])

    def make(self) -> Cluster:
        return Cluster(hosts=self.hosts, megabits_per_second=self.mbit, round_trip_ms=self.rtt_ms)

    def check(self, ranks: Sequence[int]) -> None:
        """Refuse numbers of ranks that can't be shared out evenly among the hosts."""
        wrong = [number for number in ranks if number > self.hosts and number % self.hosts]
        if wrong:
            raise ConfigError(
                f"{wrong[0]} ranks can't be shared out evenly among {self.hosts} hosts. Allowed: up to {self.hosts}, "
                f"one a host, or multiples of {self.hosts}. Change --ranks, or hosts= in --cluster."
            )


class ClusterExecutor:
    """Starts runs on the first hosts of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def fits(self, ranks: int) -> bool:
        return ranks <= len(os.sched_getaffinity(0))

    def start(self, words: Sequence[str], ranks: int, log: Path, lock: int) -> "ClusterRun":
        """All ranks write to one file; the cluster's end is theirs, so that they need not hold the study's."""
        log.write_text("")
        hosts = min(ranks, self.cluster.num_hosts)
        started = self.cluster.launch(
            [*deepex_command(), *words, *let_launcher_count(words)],
            hosts=hosts,
            ranks_per_host=ranks // hosts,
            output=log,
        )
        return ClusterRun(started)


class ClusterRun:
    """The ranks of a run on a cluster, as a study waits for them."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def wait(self, timeout_seconds: float | None = None) -> int:
        return self._ranks.wait(timeout_seconds, seconds_to_end=SECONDS_TO_SAVE)

    def send_signal(self, number: signal.Signals) -> None:
        self._ranks.send_signal(number)
