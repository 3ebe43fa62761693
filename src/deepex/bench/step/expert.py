"""What an expert tries on a network: memory layouts, the compiler, a single thread. The fastest counts.

It times steps that others build. It knows neither networks nor optimisers.
"""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from time import perf_counter
from types import FrameType

import torch

from deepex.text import say_duration, say_time

COMPILE_SECONDS = 300.0  # a way that compiles for longer is left out
AGAIN_SECONDS = 10.0  # until the limit is told again, if the compiler swallowed it
ROUNDS, ENOUGH_SECONDS = 4, 60.0  # ways are timed so often, or for about so long
HOPELESS_SECONDS = 30.0  # the first step alone decides between ways so slow, and compiling would not mend them

Step = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to write a training step by hand.

    >>> str(Way(channels_last=True, compiled=True))
    'channels last, compiled'
    """

    channels_last: bool = False
    compiled: bool = False
    one_thread: bool = False

    def __str__(self) -> str:
        layout = "channels last" if self.channels_last else "contiguous"
        return f"{layout}, {'compiled' if self.compiled else 'eager'}{', one thread' * self.one_thread}"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The fastest way and its step, and in words why others were not timed. Torch's threads are set to the way's."""

    way: Way
    step: Step
    left_out: tuple[str, ...]


def list_ways(*, has_convolutions: bool, is_small: bool) -> list[Way]:
    """What is worth trying, eager ways first: how long they take decides whether compiling is tried.

    >>> [str(way) for way in list_ways(has_convolutions=False, is_small=False)]
    ['contiguous, eager', 'contiguous, compiled']
    """
    return [
        Way(channels_last=channels_last, compiled=compiled, one_thread=one_thread)
        for compiled in (False, True)
        for channels_last in ((False, True) if has_convolutions else (False,))
        for one_thread in ((False, True) if is_small else (False,))
    ]


def find_fastest(
    ways: Sequence[Way],
    build: Callable[[Way], Step],
    steps: int,
    tell: Callable[[str], None],
    limit_seconds: float = COMPILE_SECONDS,
) -> Choice:
    """Time all ways by turns and choose the fastest. A way that does not compile, or not in time, is left out.

    Arguments:
        build: makes the step of a way.
        steps: how many are timed in a turn.
        tell: is told what is going on, since compiling takes long.
    """
    built: dict[Way, Step] = {}
    seconds: dict[Way, float] = {}
    left_out: list[str] = []
    for way in ways:
        is_hopeless = min(seconds.values(), default=0.0) > HOPELESS_SECONDS
        if way.compiled and is_hopeless:
            left_out.append(f"{way}: not tried, since steps are slow")
            continue
        tell(f"trying {way}" + f", which may compile for up to {say_duration(limit_seconds)}" * way.compiled)
        step = build(way)
        set_threads(way)
        failure = _compile(step, limit_seconds) if way.compiled else ""
        if failure:
            left_out.append(f"{way}: {failure}")
        else:
            built[way], seconds[way] = step, _time(step, 1)
    if min(seconds.values()) <= HOPELESS_SECONDS:
        tell(f"timing {', '.join(f'({way})' for way in built)} by turns")
        seconds = _take_turns(built, steps)
    best = min(seconds, key=seconds.__getitem__)
    tell(f"{best} is the fastest: {say_time(seconds[best])} a step")
    set_threads(best)
    return Choice(way=best, step=built[best], left_out=tuple(left_out))


def set_threads(way: Way) -> None:
    torch.set_num_threads(1 if way.one_thread else len(os.sched_getaffinity(0)))


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise a TimeoutError in the main thread after so many seconds."""

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"took longer than {say_duration(seconds)}")

    handler = signal.signal(signal.SIGALRM, end)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def _compile(step: Step, limit_seconds: float) -> str:
    """Take the first step, in which the compiler works; what went wrong, in words."""
    started = perf_counter()
    try:
        with time_limit(limit_seconds):
            step()
    except (RuntimeError, TimeoutError) as error:  # all of the compiler's own errors are RuntimeErrors
        if perf_counter() - started >= limit_seconds:
            return f"compiles for over {say_duration(limit_seconds)}"
        told = next(iter(str(error).splitlines()), "")
        return f"does not compile ({type(error).__name__}: {told[:80]})"
    return ""


def _take_turns(built: Mapping[Way, Step], steps: int) -> dict[Way, float]:
    """Seconds of a step of each way, the best of its turns: whoever else uses the machine only ever slows one."""
    best = dict.fromkeys(built, inf)
    started = perf_counter()
    for _ in range(ROUNDS):
        for way, step in built.items():
            set_threads(way)
            best[way] = min(best[way], _time(step, steps))
        if perf_counter() - started > ENOUGH_SECONDS:
            break
    return best


def _time(step: Step, steps: int) -> float:
    started = perf_counter()
    for _ in range(steps):
        step()
    return (perf_counter() - started) / steps
