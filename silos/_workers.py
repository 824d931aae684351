"""Workers: processes that stay for a whole run and train the silos of each round between them.

Charging and releasing stay where they were; a worker computes and knows nothing else. It is sent the shards of its
silos once, and in each round their jobs. Every job carries its own streams, so that neither the number of workers nor
who trains what changes a byte, and a worker that died is replaced by one that does its jobs again.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count as count_up
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast
from weakref import WeakKeyDictionary

from accounting import InvalidValue
from accounting._validate import check_count
from silos._errors import WorkerLost
from silos._job import FleetTrainer, Job, Outcome
from silos._parcel import Parcel, SharedMemory, pack, unpack
from silos._shard import Shard
from silos._worker import Start, Unfit

if TYPE_CHECKING:
    from silos._silo import Engine

DEATHS = 3
"""A worker that ends so many times in one round is not started again."""

# Ctrl-C reaches every process of a terminal; this one is ended by the process that it works for.
_CODE = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); from silos._worker import serve; "
_CODE += "serve(*map(int, sys.argv[1:]))"


class Workers:
    """Trains many silos at once on several cores, with the bytes of the engine that each worker builds.

    | case                                   | what happens                                                      |
    |----------------------------------------|-------------------------------------------------------------------|
    | a job cannot be trained                | it fails alone                                                    |
    | a worker ends, for whatever reason     | a new one does its jobs of the round again, to the same bytes     |
    | it ends three times in one round       | `WorkerLost`; all workers end                                     |
    | this process ends, however             | so do the workers, at once                                        |

    Args:
        build: makes the engine; picklable, and importable in a process that did not run the main module.
        count: number of worker processes, at least 1. Each is pinned to a core where the system can do that.

    The processes start with the first jobs. Close them, or use this as a context manager.

    Raises:
        InvalidValue: where the system cannot hand descriptors to processes (Windows).
    """

    def __init__(self, build: "Callable[[], Engine | FleetTrainer]", count: int) -> None:
        check_count(low=1, workers=count)
        if os.name != "posix":
            raise InvalidValue(f"Expected workers={count} to be 1: worker processes need a POSIX system.")
        self.count = count
        self._there = SharedMemory()
        cores = usable_cores()
        self._workers = [
            _Worker(Start(core=cores[number % len(cores)] if cores else None, build=build), self._there)
            for number in range(count)
        ]
        self._numbers: WeakKeyDictionary[Shard, int] = WeakKeyDictionary()
        self._homes: WeakKeyDictionary[Shard, int] = WeakKeyDictionary()
        self._counter = count_up()
        self._loads = [0.0] * count

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the processes. Jobs that come later start new ones."""
        for worker in self._workers:
            worker.end()

    @property
    def pids(self) -> list[int]:
        """Ids of the processes that run."""
        return [worker.process.pid for worker in self._workers if worker.process is not None]

    def train_all(self, jobs: Sequence[Job]) -> list[Outcome]:
        """One round of many silos: what came of each job, in their order.

        Raises:
            WorkerLost: where a worker ends again and again, or cannot build its engine.
        """
        try:
            return self._train_all(jobs)
        except BaseException:
            # Who still computes reads memory that the next round writes to.
            self.close()
            raise

    def _train_all(self, jobs: Sequence[Job]) -> list[Outcome]:
        shares = self._shares(jobs)
        self._there.clear()
        # All before any is sent a shard, so that they load their libraries side by side.
        for worker, places in zip(self._workers, shares, strict=True):
            if places and worker.process is None:
                worker.start()
        for worker, places in zip(self._workers, shares, strict=True):
            if places:
                shards = {self._numbers[job.shard]: job.shard for job in (jobs[place] for place in places)}
                worker.ask(pack([jobs[place] for place in places], self._there, self._numbers), shards)
        found: dict[int, Outcome] = {}
        waiting = [place for place, places in enumerate(shares) if places]
        while waiting:
            channels = {self._workers[place].channel: place for place in waiting}
            for channel in wait(list(channels)):
                place = channels[cast(Connection, channel)]
                outcomes = self._workers[place].answer()
                if outcomes is not None:
                    found |= zip(shares[place], outcomes, strict=True)
                    waiting.remove(place)
        return [found[place] for place in range(len(jobs))]

    def _shares(self, jobs: Sequence[Job]) -> list[list[int]]:
        """Places of each worker's jobs. A new silo goes to the worker with the least to do, the largest silos first."""
        new = [job for job in jobs if job.shard not in self._homes]
        for job in sorted(new, key=_work, reverse=True):
            home = self._loads.index(min(self._loads))
            self._loads[home] += _work(job)
            self._homes[job.shard] = home
            self._numbers[job.shard] = next(self._counter)
        shares: list[list[int]] = [[] for _ in self._workers]
        for place, job in enumerate(jobs):
            shares[self._homes[job.shard]].append(place)
        return shares


class _Worker:
    """One worker process, seen from the process that it works for."""

    def __init__(self, start: Start, there: SharedMemory) -> None:
        self._start = start
        self._there = there
        self._back = SharedMemory()
        self._held: set[int] = set()
        self._asked = Parcel(b"", [])
        self._shards: Mapping[int, Shard] = {}
        self._deaths = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: Connection

    def start(self) -> None:
        """Start the process."""
        ours, theirs = socket.socketpair()
        with theirs:
            descriptors = (theirs.fileno(), self._there.descriptor, self._back.descriptor)
            self.process = subprocess.Popen(
                [sys.executable, "-c", _CODE, *map(str, descriptors)],
                stdin=subprocess.PIPE,
                pass_fds=descriptors,
                env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": _import_path()},
            )
        self.channel = Connection(ours.detach())
        self._held = set()
        self._send(self._start)

    def end(self) -> None:
        """End the process, whatever it does: nothing is lost with it."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.channel.close()
        self.process = None

    def ask(self, parcel: Parcel, shards: Mapping[int, Shard]) -> None:
        """Hand over a round's jobs, and those of their shards that the process does not hold."""
        self._asked, self._shards, self._deaths = parcel, shards, 0
        self._hand_over()

    def answer(self) -> list[Outcome] | None:
        """The outcomes; None where the process was gone, and another has been asked.

        Raises:
            WorkerLost: after the last death that is allowed.
        """
        try:
            message = cast("Parcel | Unfit", self.channel.recv())
        except (EOFError, OSError):
            self._replace()
            return None
        if isinstance(message, Unfit):
            raise WorkerLost(f"A worker process has no engine: {message.reason}. Use 1 worker, which needs no process.")
        return cast("list[Outcome]", unpack(message, self._back, {}, in_place=False))

    def _replace(self) -> None:
        process = self.process
        if process is None:
            raise RuntimeError("A worker that was never started cannot have ended.")
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)  # for its own code, if it is about to exit with one
        self.end()
        self._deaths += 1
        if self._deaths == DEATHS:
            raise WorkerLost(
                f"A worker process ended {DEATHS} times in one round, at last {_how(process.returncode)}. Nothing of "
                "the round was kept. If memory is short, go on with fewer workers."
            )
        self.start()
        self._hand_over()

    def _hand_over(self) -> None:
        for number, shard in self._shards.items():
            if number not in self._held:
                self._send({number: shard})
                self._held.add(number)
        self._send(self._asked)

    def _send(self, message: object) -> None:
        # A process that is gone is noticed where its answer is awaited.
        with suppress(OSError):
            self.channel.send(message)


def usable_cores() -> list[int]:
    """Numbers of the cores that this process may use; none where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _work(job: Job) -> float:
    return job.schedule.steps * job.schedule.expected_batch


def _import_path() -> str:
    return os.pathsep.join(folder or os.getcwd() for folder in sys.path)


def _how(code: int) -> str:
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
