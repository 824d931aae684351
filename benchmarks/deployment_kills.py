"""Kill processes of a deployment with SIGKILL at random instants and see what their silos' ledgers hold.

    python -m benchmarks.deployment_kills [--kills 30] [--seed 0] [--spread 20]

A SuperLink, or the SuperNode of a silo, or the process that serves a silo's message is killed, or all processes of a
silo stand still for up to 70 s, as if its network were gone. What died is started again, and a run that went with it is
resumed. After each kill every ledger must verify against the heads seen last, and hold each reply that the server has
used as released. A run that came to its end must have cost each silo its declared rounds and nothing on top: a round
asked again is the same release.
"""

import argparse
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from accounting import Ledger
from scenarios import load
from scenarios._checkpoint import load_checkpoint
from scenarios.deployment._deployed import CHECKPOINT
from scenarios.deployment._deployments import make_deployment, new_run, submit
from scenarios.spec._scenario import Scenario
from server._deploy_certificates import CA
from server._deploy_control import SuperLink
from server._deploy_folder import Deployment
from server._deploy_processes import carriers
from server._deploy_up import SUPERLINK, all_run, down, up
from silos._folder import LEDGER

POLL = 0.2
PAUSE = 70.0
"""Most seconds that a silo stands still: longer than Flower takes to believe it gone."""
PATIENCE = 600.0
"""Seconds after which a run that does not end is a failure."""


@dataclass
class Soak:
    """What was killed, and what came of it."""

    killed: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    resumed: int = 0
    restarted: int = 0
    heads: dict[str, dict[str, str]] = field(default_factory=dict)


def soak(scenario: Scenario, folder: Path, victims: Sequence[str], *, spread: float, seed: int) -> Soak:
    """Run the scenario over and over until all victims were killed and the last run has come to its end.

    Args:
        scenario: small; its silos get a budget without a limit.
        folder: for the deployment, new or empty.
        victims: what to kill, in this order: ``superlink``, ``supernode``, ``app`` (the process that serves a message),
            or ``pause``, which lets a silo stand still.
        spread: most seconds from one kill to the next.
        seed: of the instants and of the silos.

    Raises:
        SystemExit: naming what is wrong.
    """
    choice, done, due = random.Random(seed), Soak(), list(reversed(victims))
    deployment, _ = make_deployment(scenario, folder, budget=float("inf"))
    try:
        deployment = up(deployment)
        while due:
            _one_run(deployment, scenario, done, choice, due, spread)
    finally:
        down(deployment)
    return done


def _one_run(
    deployment: Deployment, scenario: Scenario, done: Soak, choice: random.Random, due: list[str], spread: float
) -> None:
    """One run from its beginning to its end, through as many kills as fall into it.

    Args:
        due: what is to be killed, the last first; what was killed is taken off.
    """
    run = new_run(deployment, scenario)
    with SuperLink(deployment.address, deployment.server / CA) as link:
        number, when = submit(deployment, link, run), time.monotonic() + choice.uniform(0, spread)
        deadline = time.monotonic() + PATIENCE
        while (state := link.run(number)).outcome != "completed":
            if time.monotonic() > deadline:
                raise SystemExit(f"{run.name} did not end; it is {state}")
            if not all_run(deployment):
                done.restarted += 1  # as a service manager would: Flower's processes also end by themselves
                up(deployment)
            if state.finished:
                done.resumed += 1
                number = submit(deployment, link, run)
            elif due and time.monotonic() > when and _kill(deployment, due[-1], choice):
                victim = due.pop()
                print(f"{run.name}: {victim} while {state.status}", flush=True)
                done.killed[victim] += 1
                up(deployment)
                _inspect(deployment, run, done)
                if victim == "superlink":
                    link.stop(number)  # its server process died with it, which Flower would see after a minute
                when, deadline = time.monotonic() + choice.uniform(0, spread), time.monotonic() + PATIENCE
            time.sleep(POLL)
    done.runs += 1
    _inspect(deployment, run, done, rounds=scenario.training.rounds)


def _kill(deployment: Deployment, victim: str, choice: random.Random) -> bool:
    """Kill one process; False where there is none of the kind now."""
    role = SUPERLINK if victim == "superlink" else str(choice.randrange(len(deployment.silos)))
    if victim == "pause":
        held = list(carriers(deployment.token, role))
        _signal(held, signal.SIGSTOP)
        time.sleep(choice.uniform(0, PAUSE))
        _signal(held, signal.SIGCONT)
        return True
    wanted = {"superlink": "flower-superlink", "supernode": "silos._supernode", "app": "flwr-clientapp"}[victim]
    found = [pid for pid in carriers(deployment.token, role) if wanted in _command(pid)]
    _signal(found, signal.SIGKILL)
    while set(found) & set(carriers(deployment.token, role)):
        time.sleep(POLL)
    return bool(found)


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8").replace("\0", " ")
    except OSError:
        return ""


def _inspect(deployment: Deployment, run: Path, done: Soak, *, rounds: int | None = None) -> None:
    """Check every silo's ledger against the models that the server has.

    Args:
        deployment, run: whose.
        done: keeps the heads.
        rounds: of a run that came to its end.
    """
    state = load_checkpoint(run / CHECKPOINT) if (run / CHECKPOINT).exists() else None
    for silo in deployment.silos:
        path = deployment.silo(silo) / LEDGER
        if not path.exists():
            if state is not None and state.round > 0:
                raise SystemExit(f"{silo}: the server has models of a silo without a ledger")
            continue
        with Ledger.open(path, read_only=True) as ledger:
            done.heads[silo] = ledger.verify(done.heads.get(silo))
            charges = ledger.charges(silo, run.name)
        released = {one.key.round for one in charges if one.output is not None}
        missing = {each.round for each in state.failures if each.silo == silo} if state is not None else set()
        used = set(range(1, state.round + 1)) - missing if state is not None else set()
        if not used <= released:
            raise SystemExit(f"{silo}: models of rounds {sorted(used - released)} were used and are not in the ledger")
        if rounds is not None and [one.key.round for one in charges] != list(range(1, rounds + 1)):
            raise SystemExit(f"{silo}: was charged for rounds {[one.key.round for one in charges]} of {rounds}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill processes of a deployment at random instants.")
    parser.add_argument("--scenario", default="cps-regions")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--spread", type=float, default=20.0, help="most seconds from one kill to the next")
    options = parser.parse_args()
    scenario = load(options.scenario, [f"training.rounds={options.rounds}"])
    with tempfile.TemporaryDirectory() as folder:
        began, kinds = time.monotonic(), ("superlink", "supernode", "supernode", "app", "pause")
        victims = random.Random(options.seed).choices(kinds, k=options.kills)
        done = soak(scenario, Path(folder) / "deployment", victims, spread=options.spread, seed=options.seed)
    print(
        f"{done.killed.total()} kills in {time.monotonic() - began:.0f} s ({dict(done.killed)}); {done.runs} runs of "
        f"{options.rounds} rounds came to their end, resumed {done.resumed} times; processes that ended by themselves "
        f"were started again {done.restarted} times. Every ledger verified after each kill and holds every model that "
        "the server used; every silo was charged its declared rounds and no more."
    )


if __name__ == "__main__":
    main()
