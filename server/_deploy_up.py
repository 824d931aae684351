"""Starting, looking at and stopping the processes of a deployment.

`up` starts whatever does not run, so it also brings back what was killed; it returns when the SuperLink knows every
silo's key and every SuperNode has come online, or stops what it started and says why not.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from accounting import SilodpError
from server._deploy_certificates import CA, CERTIFICATE, check_certificate
from server._deploy_control import SuperLink, SuperLinkUnreachable, load_node_key
from server._deploy_folder import LOG, START, Deployment
from server._deploy_processes import Process, ProcessError, carriers, carry, check_port, free_ports, stop_all, tail

PROCESSES = "processes.json"
"""The processes that were started, in the deployment's folder."""

SUPERLINK = "superlink"
"""The SuperLink's role; a silo's is its position."""

PATIENCE = 90.0
"""Seconds that a SuperLink and SuperNodes are given to be ready."""

_POLL = 0.25


@dataclass(frozen=True, kw_only=True)
class Status:
    """What runs of a deployment.

    Attributes:
        superlink: whether its process runs.
        supernodes: whether each silo's process runs.
        online: which silos the SuperLink hears of; empty where it does not answer.
        processes: how many processes there are in all.
    """

    superlink: bool
    supernodes: Mapping[str, bool]
    online: frozenset[str]
    processes: int


def up(deployment: Deployment, *, port: int | None = None) -> Deployment:
    """Start what does not run, and wait until all of it is ready.

    Args:
        deployment: of an existing folder.
        port: the SuperLink's, followed by those of the SuperNodes; None keeps them, or takes free ones.

    Returns:
        The deployment, on the ports that it has now.

    Raises:
        CertificateUnfit: for a certificate that expired; nothing was started.
        ProcessError: for a port that is taken, or a process that ended; what was started here is stopped.
    """
    for name in (CA, CERTIFICATE):
        check_certificate(deployment.server / name)
    for silo in deployment.silos:
        check_certificate(deployment.silo(silo) / CA)
    running = _running(deployment)
    deployment = _on_ports(deployment, port, idle=not running)
    started: dict[str, Process] = {}
    logged = {silo: _size(deployment.silo(silo) / LOG) for silo in deployment.silos}
    try:
        if SUPERLINK not in running:
            started[SUPERLINK] = _start(deployment, SUPERLINK, deployment.server, deployment.ports[0])
        with SuperLink(deployment.address, deployment.server / CA) as link:
            _wait(lambda: _answers(link), running | started, deployment)
            for silo in deployment.silos:
                link.register(deployment.public_key(silo), silo)
            for position, silo in enumerate(deployment.silos):
                if (role := str(position)) not in running:
                    own = deployment.ports[position + 1]
                    started[role] = _start(deployment, role, deployment.silo(silo), own)
            _wait(lambda: _all_online(link, deployment, started, logged), running | started, deployment)
    except BaseException:
        for role in started:
            stop_all(deployment.token, role)
        raise
    _record(deployment, running | started)
    return deployment


def down(deployment: Deployment) -> int:
    """Stop every process of the deployment, and theirs; ledgers and runs stay.

    Returns:
        How many there were.
    """
    stopped = stop_all(deployment.token)
    (deployment.folder / PROCESSES).unlink(missing_ok=True)
    return stopped


def all_run(deployment: Deployment) -> bool:
    """Whether the SuperLink's and every SuperNode's process runs."""
    return len(_running(deployment)) == len(deployment.silos) + 1


def status(deployment: Deployment) -> Status:
    """What runs, as the machine and the SuperLink see it."""
    running = _running(deployment)
    online: frozenset[str] = frozenset()
    if SUPERLINK in running:
        try:
            with SuperLink(deployment.address, deployment.server / CA) as link:
                online = frozenset(node.name for node in link.nodes() if node.online)
        except SuperLinkUnreachable:
            pass
    return Status(
        superlink=SUPERLINK in running,
        supernodes={silo: str(position) in running for position, silo in enumerate(deployment.silos)},
        online=online,
        processes=sum(1 for _ in carriers(deployment.token)),
    )


def _running(deployment: Deployment) -> dict[str, Process]:
    """The recorded processes that still run, by role."""
    try:
        held = json.loads((deployment.folder / PROCESSES).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    processes = {role: Process(**values) for role, values in held.items()}
    return {role: process for role, process in processes.items() if process.alive()}


def _record(deployment: Deployment, processes: Mapping[str, Process]) -> None:
    content = {role: process.to_json() for role, process in processes.items()}
    (deployment.folder / PROCESSES).write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def _on_ports(deployment: Deployment, port: int | None, *, idle: bool) -> Deployment:
    if not idle and port not in (None, deployment.ports[0]):
        raise ProcessError(f"The deployment runs on port {deployment.ports[0]}; take it down before it can move.")
    count = len(deployment.silos) + 1
    if idle and port is not None:
        deployment = deployment.on(range(port, port + count), chosen=True)
    elif idle and not deployment.chosen:
        deployment = deployment.on(free_ports(count), chosen=False)
    deployment.write()
    return deployment


def _start(deployment: Deployment, role: str, folder: Path, port: int) -> Process:
    """Start one process, after whatever a killed one left behind."""
    stop_all(deployment.token, role)
    check_port(port, "the SuperLink" if role == SUPERLINK else f"the SuperNode of {folder.name}")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment = {"PATH": path, **carry(deployment.token, role)}
    return Process.start(["sh", START], folder=folder, environment=environment, log=folder / LOG)


def _answers(link: SuperLink) -> bool:
    try:
        link.nodes()
    except SuperLinkUnreachable:
        return False
    return True


def _all_online(
    link: SuperLink, deployment: Deployment, started: Mapping[str, Process], logged: Mapping[str, int]
) -> bool:
    """Whether every silo is online, and those that were started say so too: the SuperLink may mean their forerunners.

    Args:
        link, deployment: whose.
        started: processes that were started now, by role.
        logged: length of each silo's log before that.
    """
    for position, silo in enumerate(deployment.silos):
        log = deployment.silo(silo) / LOG
        if str(position) in started and b"SuperNode ID" not in log.read_bytes()[logged[silo] :]:
            return False
    online = {node.key for node in link.nodes() if node.online}
    return all(load_node_key(deployment.public_key(silo)) in online for silo in deployment.silos)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _wait(ready: Callable[[], bool], processes: Mapping[str, Process], deployment: Deployment) -> None:
    deadline = time.monotonic() + PATIENCE
    while not ready():
        for role, process in processes.items():
            if not process.alive():
                raise _ended(deployment, role)
        if time.monotonic() > deadline:
            raise SilodpError(f"{deployment.folder}: was not ready after {PATIENCE:.0f} s; see the logs in it.")
        time.sleep(_POLL)


def _ended(deployment: Deployment, role: str) -> ProcessError:
    folder = deployment.server if role == SUPERLINK else deployment.silo(deployment.silos[int(role)])
    who = "The SuperLink" if role == SUPERLINK else f"The SuperNode of silo {deployment.silos[int(role)]!r}"
    return ProcessError(f"{who} ended. The end of {folder / LOG}:\n{tail(folder / LOG)}")
