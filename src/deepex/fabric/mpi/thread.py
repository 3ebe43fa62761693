"""The one thread of a process that calls MPI: it starts tasks, sees them to their end, and leaves MPI last.

MPI makes no progress by itself, and not every MPI bears several threads, so one thread owns it from start to end. It
knows requests and their order, and nothing of tensors or of peers that fall silent.
"""

import atexit
import socket
import threading
from collections import deque
from collections.abc import Callable, Generator
from functools import cache
from queue import Empty, SimpleQueue
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from deepex.errors import ConfigError, PeerError
from deepex.world import World

if TYPE_CHECKING:
    from mpi4py import MPI

Steps = Generator["list[MPI.Request]", None, Any]

SPIN_SECONDS = 50e-6  # small messages between free cores are through by then
PAUSES = (20e-6, 500e-6, 2e-3)  # seconds; a look costs 10 to 30 µs of a core that ranks compute on
IDLE_SECONDS = 0.02
SECONDS_FOR_FIRST = 10.0  # rank 0 may still look for who is gone, and tell the user


class TaskQueue:
    """Tasks that happen one after the other, as they were submitted: MPI wants one order on all ranks of a group."""

    def __init__(self) -> None:
        self.tasks: deque[Task] = deque()


class Task:
    """Something for the thread to do.

    Arguments:
        queue: after which other tasks it happens.
        steps: starts requests and yields them, and goes on when they are done; what it returns is the result.
    """

    def __init__(self, queue: TaskQueue, steps: Steps) -> None:
        self.queue, self.steps = queue, steps
        self.requests: list[MPI.Request] = []
        self.result: Any = None
        self.error: Exception | None = None
        self.done = threading.Event()
        self.started = self.ended = perf_counter()

    def end(self, *, result: Any = None, error: Exception | None = None) -> None:
        self.result, self.error, self.ended = result, error, perf_counter()
        self.done.set()


def at_once(function: Callable[[], object]) -> Steps:
    """The steps of a task without requests."""
    yield []
    return function()


class MpiThread:
    """MPI, from its start to its end. Others submit tasks, and wait for them as long as they like.

    Attributes:
        rank: this process's number, as MPI has it, once `started` is done.
        size: how many processes MPI has started.
        library: the MPI in words.
        started: the task of starting MPI.
        timeout_seconds: how long the others are waited for at the end.
        is_over: whether MPI has been left or abandoned.
    """

    def __init__(self) -> None:
        self.rank, self.size, self.library = 0, 1, ""
        self.timeout_seconds = 60.0
        self.is_over = self._is_abandoned = False
        self._submitted: SimpleQueue[Task] = SimpleQueue()
        self._queues: list[TaskQueue] = []  # those that have tasks; the first of each is under way
        self.started = self.submit(at_once(self._start))
        threading.Thread(target=self._run, name="deepex-mpi", daemon=True).start()
        atexit.register(self.finish)

    def submit(self, steps: Steps, queue: TaskQueue | None = None) -> Task:
        """A new task, the last of its queue; without a queue it waits for no other."""
        task = Task(queue or TaskQueue(), steps)
        self._submitted.put(task)
        return task

    def abandon(self) -> None:
        """Never call MPI again: what is under way can't end, and leaving in good order would wait for it for ever."""
        self.is_over = self._is_abandoned = True

    def finish(self) -> None:
        """Leave MPI together with all ranks. A process that ends without takes the others with it, by mpiexec's hand.

        A rank that has abandoned MPI can only end so; it lets rank 0 say why, which it does before it ends.
        """
        if self._is_abandoned and self.rank != 0:
            self._is_abandoned = False  # once is enough, where the interpreter's own end follows
            sleep(SECONDS_FOR_FIRST)
        elif not self.is_over:
            self.submit(self._leave()).done.wait(self.timeout_seconds)
            self.is_over = True

    def _start(self) -> None:
        from mpi4py import MPI

        if not MPI.Is_initialized():
            MPI.Init_thread(MPI.THREAD_FUNNELED)
        elif MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            raise ConfigError(
                "MPI was started before deepex, and not for threads. Let deepex start it, or import mpi4py.MPI as it "
                "is, without a lower mpi4py.rc.thread_level."
            )
        self.rank, self.size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
        self.library = " ".join(MPI.Get_library_version().strip("\0").splitlines()[0].split(",")[0].split())

    def _leave(self) -> Steps:
        from mpi4py import MPI

        # Finalize waits too, but turns round and round on a core that rank 0 may need to write its report.
        yield [MPI.COMM_WORLD.Ibarrier()]
        self.is_over = True
        MPI.Finalize()

    def _run(self) -> None:
        moved_at = perf_counter()
        while not self.is_over:
            has_moved = self._receive(_pause(perf_counter() - moved_at) if self._queues else IDLE_SECONDS)
            for queue in self._queues:
                has_moved |= self._advance(queue)
            if has_moved:
                moved_at = perf_counter()
            self._queues = [queue for queue in self._queues if queue.tasks]

    def _receive(self, pause: float) -> bool:
        """Whether a task was submitted within a pause."""
        try:
            task = self._submitted.get(timeout=pause) if pause else self._submitted.get_nowait()
        except Empty:
            if not self._queues and self.started.error is None:
                self._progress()
            return False
        if not task.queue.tasks:
            self._queues.append(task.queue)
        task.queue.tasks.append(task)
        return True

    def _advance(self, queue: TaskQueue) -> bool:
        """Look at the first task of a queue; whether it got on."""
        task = queue.tasks[0]
        try:
            if task.requests and not task.requests[0].Testall(task.requests):
                return False
            task.requests = next(task.steps)
        except StopIteration as end:
            queue.tasks.popleft().end(result=end.value)
        except Exception as error:  # noqa: BLE001  # the rank that waits for the task raises it
            queue.tasks.popleft().end(error=error)
        return True

    def _progress(self) -> None:
        """Let MPI send what it may still hold back of messages that count as sent: a peer may wait for it."""
        from mpi4py import MPI

        MPI.COMM_WORLD.Iprobe()


def _pause(quiet_seconds: float) -> float:
    """Seconds until the next look, when nothing has moved for some: the longer it takes, the less a pause adds."""
    if quiet_seconds < SPIN_SECONDS:
        return 0.0
    shortest, longest, after_second = PAUSES
    return after_second if quiet_seconds > 1 else min(longest, max(shortest, quiet_seconds / 50))


@cache
def mpi_thread() -> MpiThread:
    """The process's thread for MPI; started when it is first wanted."""
    try:
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False  # both are the thread's to do
        from mpi4py import MPI  # noqa: F401  # finds and loads the machine's MPI
    except (ImportError, RuntimeError) as error:
        raise ConfigError(
            f"fabric 'mpi' needs mpi4py and an MPI, but: {error}. Use: pip install mpi4py mpich, or your site's MPI; "
            "or --fabric torch."
        ) from error
    return MpiThread()


@cache
def share_address(world: World) -> str:
    """`host:port` where rank 0 serves the rendezvous, sent to all ranks by MPI; for launchers that name no such."""
    thread = mpi_thread()
    address = bytearray(512)
    if world.is_first:
        with socket.create_server(("", 0)) as free:
            offer = f"{world.host}:{free.getsockname()[1]}".encode()
        address[: len(offer)] = offer
    task = thread.started
    if task.done.wait(thread.timeout_seconds) and task.error is None:
        check_world(thread, world)
        task = thread.submit(_broadcast(address))
        task.done.wait(thread.timeout_seconds)
    if task.error is not None or not task.done.is_set():
        thread.abandon()
        raise PeerError(
            f"{world}: MPI brought no address for the rendezvous within {thread.timeout_seconds:g} s (it said: "
            f"{task.error or 'nothing'}). Look for the first error of another rank."
        ) from task.error
    return address.rstrip(b"\0").decode()


def _broadcast(message: bytearray) -> Steps:
    from mpi4py import MPI

    yield [MPI.COMM_WORLD.Ibcast((message, MPI.BYTE), root=0)]


def finish() -> None:
    """Leave MPI if this process has joined it; before the process ends, by `os._exit` too."""
    if mpi_thread.cache_info().currsize:
        mpi_thread().finish()


def check_world(thread: MpiThread, world: World) -> None:
    """Refuse to work where MPI started other ranks than the launcher did: each would be alone, and not know it."""
    if (thread.rank, thread.size) != (world.rank, world.size):
        raise ConfigError(
            f"{world}: {world.launcher} says rank {world.rank} of {world.size}, but MPI says rank {thread.rank} of "
            f"{thread.size} ({thread.library}): it does not know who started it. Start ranks with srun --mpi=pmi2 "
            "(MPICH, Intel MPI) or srun --mpi=pmix (Open MPI), or with that MPI's own mpirun; or use --fabric torch."
        )
