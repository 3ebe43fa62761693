"""A benchmark's own process: `python -m deepex.bench.step WORKLOAD VARIANT` trains when told to, and tells the times.

It reads commands from its standard input, a line each, and answers each with a line of JSON on its standard output:
`run N` trains N steps, `flops` counts those of one step, `peak DTYPE` measures a matrix product, `phases` tells where
the time went, `note` what is to be said of the variant. Before an answer, lines may tell of its progress.
"""

import json
import os
import resource
import sys
from collections.abc import Mapping
from time import perf_counter
from typing import Any, TextIO

import torch

from deepex.bench.step.variants import VARIANTS, count_step
from deepex.bench.step.workloads import WORKLOADS, Workload
from deepex.record.flops import measure_gemm_peak
from deepex.record.phases import Clock
from deepex.record.typed_json import to_json


class Turns:
    """A pace that lets the steps of a command pass and then waits for the next command."""

    def __init__(self, workload: Workload, commands: TextIO, answers: TextIO) -> None:
        self.workload, self.commands, self.answers = workload, commands, answers
        self.take_phases, self.note = Clock().take, ""
        self.left = 1  # the first step, before any command, is not measured
        self.asked, self.wall, self.cpu = 0, 0.0, 0.0

    def __call__(self) -> None:
        self.left -= 1
        if self.left:
            return
        wall, cpu = perf_counter() - self.wall, _cpu_seconds() - self.cpu
        if self.asked:
            self.answer({"wall_seconds": wall / self.asked, "cpu_seconds": cpu / self.asked})
        self.wait()

    def wait(self) -> None:
        """Carry out commands until one asks for steps."""
        for line in self.commands:
            verb, _, number = line.strip().partition(" ")
            if verb == "flops":
                self.answer({"flops": count_step(self.workload)})
            elif verb == "peak":
                dtype = torch.bfloat16 if number == "bf16" else torch.float32
                self.answer({"flops_per_second": measure_gemm_peak(torch.device("cpu"), dtype)})
            elif verb == "phases":
                self.answer({**to_json(self.take_phases()), "recording_seconds": recording_seconds()})
            elif verb == "note":
                self.answer({"note": self.note})
            else:
                self.asked = self.left = int(number)
                self.wall, self.cpu = perf_counter(), _cpu_seconds()
                return
        os._exit(0)  # nobody asks any more

    def tell(self, text: str) -> None:
        self.answer({"progress": text})

    def answer(self, values: Mapping[str, Any]) -> None:
        print(json.dumps(values), file=self.answers, flush=True)


def recording_seconds(times: int = 20_000) -> float:
    """What the clock itself costs in a step, by entering and leaving its phases as a step does."""
    clock = Clock()
    start = perf_counter()
    for _ in range(times):
        with clock.step:
            for phase in (clock.input, clock.forward, clock.backward, clock.sync, clock.update, clock.sync):
                with phase:
                    pass
    return (perf_counter() - start) / times


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Keep standard output for answers alone: what a library prints there goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    workload = WORKLOADS[sys.argv[1]]
    variant = VARIANTS[sys.argv[2]]
    variant.train(workload, Turns(workload, sys.stdin, answers), variant.precision)


main()
