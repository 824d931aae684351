"""What `silodp deploy status` tells."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from accounting import Ledger, SilodpError, round_up
from scenarios._account import HEADS, account_ledgers
from scenarios.deployment._deployed import MODEL, DeployedProgress
from server._deploy_folder import Deployment
from server._deploy_up import status
from silos._folder import SiloFolder


def print_status(deployment: Deployment) -> None:
    """Processes, nodes, what each silo has spent of its budget, and runs."""
    found, console = status(deployment), Console()
    running = f"runs at {deployment.address}" if found.superlink else "is down"
    console.print(f"The SuperLink {running}; {found.processes} processes in all.", highlight=False)
    table = Table("silo", "SuperNode", "SuperLink hears it", "spent", "budget", box=None)
    for silo, alive in found.supernodes.items():
        limit = SiloFolder(deployment.silo(silo)).law().budget
        heard = "yes" if silo in found.online else "no"
        table.add_row(silo, "runs" if alive else "is down", heard, spent(deployment.silo(silo)), f"{limit.epsilon:g}")
    console.print(table)
    for folder in sorted((deployment.folder / "runs").glob("*")):
        console.print(_run(folder), highlight=False)


def spent(folder: Path) -> str:
    """Epsilon of all that a silo released, at the delta of its budget; a word where there is none."""
    place = SiloFolder(folder)
    if not (folder / HEADS).exists() and not _charged(place.ledger):
        return "0"
    try:
        answer = account_ledgers(
            [folder], delta=place.law().budget.delta, epsilon=None, relation=None, membership=None, method="auto"
        )
    except SilodpError as error:
        return f"unknown: {error}"
    return round_up(float(str(answer["epsilon"])), 4)


def _charged(path: Path) -> bool:
    if not path.exists():
        return False
    with Ledger.open(path, read_only=True) as ledger:
        return any(ledger.charges(silo) for silo in ledger.silos())


def _run(folder: Path) -> str:
    progress = DeployedProgress.read(folder)
    done = "no round yet" if progress is None else f"round {progress.round} of {progress.rounds}"
    return f"Run {folder.name}: {done}{', done' if (folder / MODEL).exists() else ''}."
