"""Processes that start others, are killed, and must leave nobody behind."""

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from server._deploy_processes import Process, ProcessError, carriers, carry, check_port, free_ports, stop_all, tail

WAIT = "import signal; signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
PARENT = (
    f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {WAIT!r}]); print('ready', flush=True); {WAIT}"
)


def started(code: str, folder: Path, token: str, role: str = "one") -> Process:
    """A process that has run its first lines."""
    log = folder / f"{role}.txt"
    process = Process.start([sys.executable, "-c", code], folder=folder, environment=carry(token, role), log=log)
    while "print" in code and "ready" not in tail(log):
        assert process.alive()
    return process


def test_a_started_process_is_known_by_pid_and_start_time(tmp_path: Path) -> None:
    process = started(WAIT, tmp_path, "known")
    try:
        assert process.alive()
        assert Process(**process.to_json()).alive()
        assert not Process(pid=process.pid, began=process.began + 1).alive()
        assert list(carriers("known")) == [process.pid]
        assert list(carriers("know")) == []
    finally:
        assert stop_all("known") == 1
    assert not process.alive()


def test_children_of_a_killed_process_are_stopped_too(tmp_path: Path) -> None:
    parent = started(PARENT, tmp_path, "family")
    os.kill(parent.pid, signal.SIGKILL)
    while parent.alive():
        pass
    (orphan,) = carriers("family")
    assert orphan != parent.pid
    stop_all("family")
    assert list(carriers("family")) == []


def test_a_process_that_will_not_end_is_killed(tmp_path: Path) -> None:
    process = started(STUBBORN, tmp_path, "stubborn")
    assert stop_all("stubborn", grace=0.0) == 1
    assert not process.alive()


def test_one_role_is_stopped_without_the_others(tmp_path: Path) -> None:
    first, second = started(WAIT, tmp_path, "roles", "1"), started(WAIT, tmp_path, "roles", "11")
    try:
        assert stop_all("roles", "1") == 1
        assert not first.alive()
        assert second.alive()
    finally:
        stop_all("roles")


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
