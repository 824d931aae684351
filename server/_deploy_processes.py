"""Background processes of a deployment: started, told apart from everybody else's, and stopped for certain.

Flower's processes start others: a SuperLink starts the process of each run, a SuperNode one for each message. Such a
child may outlive a parent that was killed. So every process of a deployment carries the deployment's token and its own
role in its environment, which its children inherit, and to stop a deployment is to stop whoever carries the token. The
pid and start time of those started here are written down as well: a pid alone may have become somebody else's.

Reads `/proc`, so it needs Linux; the start scripts of a deployment do not.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from accounting import SilodpError

TOKEN = "SILODP_DEPLOYMENT"
"""The variable that holds the token, a colon, and the role: who of the deployment it is."""

GRACE = 5.0
"""Seconds that a process is given to end by itself."""

_PROC = Path("/proc")
_STARTED_HERE: dict[int, subprocess.Popen[bytes]] = {}


class ProcessError(SilodpError):
    """A process that did not start, or a port that is taken; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """One started process.

    Attributes:
        pid: its id.
        began: its start time in clock ticks since the machine's own start.
    """

    pid: int
    began: int

    @classmethod
    def start(cls, command: Sequence[str], *, folder: Path, environment: Mapping[str, str], log: Path) -> Self:
        """Start a process in the background, in a session of its own.

        Args:
            command: with its arguments.
            folder: to start it in.
            environment: variables beside those of this process; `carry` makes the one that is needed.
            log: file that its output is added to.

        Raises:
            ProcessError: where it cannot be started.
        """
        if not _PROC.joinpath("self", "stat").exists():
            raise ProcessError("Background processes are followed through /proc, which is not here: use start.sh.")
        with log.open("ab") as output:
            try:
                popen = subprocess.Popen(
                    command,
                    cwd=folder,
                    env={**os.environ, **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise ProcessError(f"{command[0]} cannot be started: {error.strerror}.") from error
        _STARTED_HERE[popen.pid] = popen
        while (began := _began(popen.pid)) is None and popen.poll() is None:
            time.sleep(0.001)  # it has begun, and its words are not in its memory yet
        return cls(pid=popen.pid, began=began or 0)

    def alive(self) -> bool:
        """Whether it runs, and is the same one."""
        if (popen := _STARTED_HERE.get(self.pid)) is not None and popen.poll() is not None:
            del _STARTED_HERE[self.pid]
        return _began(self.pid) == self.began

    def to_json(self) -> dict[str, int]:
        """As plain values; `Process(**values)` is the inverse."""
        return asdict(self)


def carry(token: str, role: str) -> dict[str, str]:
    """The environment that marks a process."""
    return {TOKEN: f"{token}:{role}"}


def stop_all(token: str, role: str | None = None, *, grace: float = GRACE) -> int:
    """Stop every process that carries the token, first by asking.

    Args:
        token: of the deployment.
        role: of it these alone; None is all.
        grace: seconds before those that remain are killed.

    Returns:
        How many there were.
    """
    seen: set[int] = set()
    deadline = time.monotonic() + grace
    sign = signal.SIGTERM
    while found := list(carriers(token, role)):
        late = time.monotonic() > deadline
        for pid in found:
            if late or pid not in seen:
                _signal(pid, signal.SIGKILL if late else sign)
        seen.update(found)
        time.sleep(0.05)
    for popen in list(_STARTED_HERE.values()):
        if popen.poll() is not None:
            del _STARTED_HERE[popen.pid]
    return len(seen)


def carriers(token: str, role: str | None = None) -> Iterator[int]:
    """Pids of the running processes that carry the token, in this role or any; this process is never among them."""
    wanted = f"{TOKEN}={token}:{role or ''}".encode()
    for folder in _PROC.glob("[0-9]*"):
        pid = int(folder.name)
        try:
            held = (folder / "environ").read_bytes()
        except OSError:
            continue
        marks = (each for each in held.split(b"\0") if each.startswith(wanted))
        if any(role is None or each == wanted for each in marks) and pid != os.getpid() and _began(pid) is not None:
            yield pid


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on now."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def check_port(port: int, purpose: str) -> None:
    """Refuse a port of 127.0.0.1 that is taken.

    Raises:
        ProcessError: naming the port and what it is for.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ProcessError(
                f"Port {port} of 127.0.0.1, for {purpose}, cannot be used: {error.strerror}. Free it, or choose others "
                "by --port."
            ) from None


def tail(log: Path, lines: int = 5) -> str:
    """The last lines of a log, for an error message."""
    try:
        return "\n".join(log.read_text("utf-8", errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _began(pid: int) -> int | None:
    """Start time of a process, in clock ticks; None where it has ended or is ending, collected by its parent or not."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text("utf-8", errors="replace")
        ending = not (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return None
    # The second field is the command in brackets and may hold anything.
    state, *fields = stat.rpartition(")")[2].split()
    return None if ending or state in "ZX" else int(fields[18])
