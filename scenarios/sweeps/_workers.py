"""The processes of a sweep: they do runs side by side, and a worker that dies costs no more than its last round.

Workers are processes of their own (`scenarios.sweeps._worker`), so that Python's imports and a seed's dataset are paid
for once by many runs. They end with the sweep, however it ends: their standard input does.
"""

import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

MOST_DEATHS = 5
"""Of workers killed at one run, before it counts as failed; something else than chance kills them then."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a run came to so far: `part` of it is done, in [0, 1]; `failed` says why it will not be."""

    run: str
    part: float
    failed: str | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more will be told of it."""
        return self.failed is not None or self.part == 1


def work(folder: Path, names: Sequence[str], *, jobs: int, lock: IO[bytes], tell: Callable[[Told], None]) -> None:
    """Do runs in worker processes.

    Args:
        folder: the sweep's.
        names: of the runs that are left to do.
        jobs: how many processes, at least 1.
        lock: the sweep's lock, which every worker holds too: it is free when the last of them is gone.
        tell: called as runs go on.
    """
    with selectors.DefaultSelector() as selector:
        crew = _Crew(folder, names, lock, tell, selector)
        try:
            for _ in range(min(jobs, len(names))):
                crew.hire()
            while selector.get_map():
                for key, _ in selector.select():
                    crew.hear(key.data)
        finally:
            crew.dismiss()


class _Crew:
    """The workers, and the runs that none of them has begun."""

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        lock: IO[bytes],
        tell: Callable[[Told], None],
        selector: selectors.BaseSelector,
    ) -> None:
        self._folder, self._lock, self._tell, self._selector = folder, lock, tell, selector
        self._waiting = deque(names)
        self._deaths = dict.fromkeys(names, 0)

    def hire(self) -> None:
        """Start a worker with the next run."""
        worker = _Worker(self._folder, self._lock)
        self._selector.register(worker.answers, selectors.EVENT_READ, worker)
        worker.give(self._waiting.popleft())

    def hear(self, worker: "_Worker") -> None:
        """Take what a worker says, or that it says no more."""
        answers = worker.read()
        for answer in answers or ():
            told = _told(worker.run or "", answer)
            self._tell(told)
            if told.over and self._waiting:
                worker.give(self._waiting.popleft())
            elif told.over:
                worker.end()
        if answers is None:
            self._selector.unregister(worker.answers)
            self._lose(worker)

    def dismiss(self) -> None:
        """Kill every worker that is left."""
        for key in list(self._selector.get_map().values()):
            key.data.kill()

    def _lose(self, worker: "_Worker") -> None:
        killed, ending = worker.close()
        if worker.run is None:
            return
        self._deaths[worker.run] += 1
        if killed and self._deaths[worker.run] < MOST_DEATHS:
            self._waiting.appendleft(worker.run)
        else:
            self._tell(Told(run=worker.run, part=0, failed=ending))
        if self._waiting:
            self.hire()


class _Worker:
    """One process, and the run that it does now; None when it has none."""

    def __init__(self, folder: Path, lock: IO[bytes]) -> None:
        self.run: str | None = None
        self._partial = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the process lives
        self._process = subprocess.Popen(
            [sys.executable, "-m", "scenarios.sweeps._worker", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
            pass_fds=[lock.fileno()],
            start_new_session=True,  # an interrupt on the terminal is for the sweep to handle
        )

    @property
    def answers(self) -> IO[bytes]:
        """Its standard output."""
        return cast(IO[bytes], self._process.stdout)

    def give(self, run: str) -> None:
        """Have it do a run next."""
        self.run = run
        with suppress(BrokenPipeError):  # it is gone; its answers have ended too, and that is heard
            self._names.write(f"{run}\n".encode())

    def read(self) -> list[str] | None:
        """The answers that have come; None where no more will."""
        content = os.read(self.answers.fileno(), 1 << 16)
        if not content:
            return None
        *lines, self._partial = (self._partial + content).split(b"\n")
        return [line.decode() for line in lines]

    def end(self) -> None:
        """Let it go: there is nothing left to do."""
        self.run = None
        self._names.close()

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self._process.kill()
        self.close()

    def close(self) -> tuple[bool, str]:
        """Wait for its end: whether a signal was it, and how it ended, with the last line of what it said of that."""
        code = self._process.wait()
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().rpartition("\n")[2]
        for file in (self._names, self.answers, self._errors):
            file.close()
        how = f"was killed again and again, by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return code < 0, f"its process {how}{': ' * bool(last)}{last}"

    @property
    def _names(self) -> IO[bytes]:
        return cast(IO[bytes], self._process.stdin)


def _told(run: str, answer: str) -> Told:
    content = json.loads(answer)
    if "failed" in content:
        return Told(run=run, part=0, failed=content["failed"])
    if "done" in content:
        return Told(run=run, part=1)
    # A run is not over with its last round: its rows come after.
    return Told(run=run, part=0.999 * content["round"] / content["rounds"])
