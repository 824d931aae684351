"""Processes that start others, are killed, and must leave nobody behind."""

import os
import secrets
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from server._deploy_processes import Process, ProcessError, carriers, carry, check_port, free_ports, stop_all, tail

WAIT = "import signal; signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
PARENT = (
    f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {WAIT!r}]); print('ready', flush=True); {WAIT}"
)


@pytest.fixture
def token() -> Iterator[str]:
    """A token of this test alone, whose carriers do not outlive it."""
    one = secrets.token_hex(8)
    yield one
    stop_all(one, grace=0.0)
    assert list(carriers(one)) == []


def started(code: str, folder: Path, token: str, role: str = "one") -> Process:
    """A process that has run its first lines."""
    log = folder / f"{role}.txt"
    process = Process.start([sys.executable, "-c", code], folder=folder, environment=carry(token, role), log=log)
    while "print" in code and "ready" not in tail(log):
        assert process.alive()
        os.sched_yield()
    return process


def test_a_started_process_is_known_by_pid_and_start_time(tmp_path: Path, token: str) -> None:
    process = started(WAIT, tmp_path, token)
    assert process.alive()
    assert Process(**process.to_json()).alive()
    assert not Process(pid=process.pid, began=process.began + 1).alive()
    assert list(carriers(token)) == [process.pid]
    assert list(carriers(token[:-1])) == []
    assert stop_all(token) == 1
    assert not process.alive()


def test_children_of_a_killed_process_are_stopped_too(tmp_path: Path, token: str) -> None:
    parent = started(PARENT, tmp_path, token)
    os.kill(parent.pid, signal.SIGKILL)
    while parent.alive():
        os.sched_yield()
    (orphan,) = carriers(token)
    assert orphan != parent.pid
    assert stop_all(token) == 1
    assert list(carriers(token)) == []


def test_a_process_that_will_not_end_is_killed(tmp_path: Path, token: str) -> None:
    process = started(STUBBORN, tmp_path, token)
    assert stop_all(token, grace=0.0) == 1
    assert not process.alive()


def test_one_role_is_stopped_without_the_others(tmp_path: Path, token: str) -> None:
    first, second = started(WAIT, tmp_path, token, "1"), started(WAIT, tmp_path, token, "11")
    assert stop_all(token, "1") == 1
    assert not first.alive()
    assert second.alive()


def test_a_command_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ProcessError, match="no-such-command"):
        Process.start(["no-such-command"], folder=tmp_path, environment={}, log=tmp_path / "log.txt")


def test_a_taken_port_is_told_by_number_and_purpose() -> None:
    (port,) = free_ports(1)
    check_port(port, "the SuperLink")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(ProcessError, match=rf"Port {port} of 127\.0\.0\.1, for the SuperLink,.*in use.*--port"):
            check_port(port, "the SuperLink")
