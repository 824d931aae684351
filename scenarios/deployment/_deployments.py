"""Deployments on one machine: made from a scenario, and runs on them.

Whoever makes one has all records, as in a simulation; the folders it writes are then what each party has of its own.
"""

import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scenarios._account import Json, account_ledgers
from scenarios._errors import RunError
from scenarios._plan import make_plan
from scenarios._plan_parts import Plan
from scenarios._runner import SCENARIO
from scenarios.data._dataset import prepare
from scenarios.deployment._deployed import MODEL, DeployedProgress, PublicFacts
from scenarios.deployment._silo_folders import laws_of, write_silo_folder
from scenarios.spec._load import load
from scenarios.spec._scenario import Scenario
from server._deploy_app import build_app
from server._deploy_certificates import CA, NODE_KEY, check_certificate, write_certificates, write_node_key
from server._deploy_control import RunState, SuperLink, SuperLinkUnreachable
from server._deploy_folder import APP, PUBLIC, Deployment
from server._deploy_processes import free_ports
from silos._folder import SiloFolder
from silos._supernode import approve

GUARANTEE, SUBMITTED = "guarantee.json", "submitted.json"
"""A run's folder has the price of all that its silos ever released, and Flower's number of the run."""

_POLL = 0.5
_SILENCE = 60.0
"""Seconds without an answer of the SuperLink after which a run is given up; it can be resumed."""


@dataclass(frozen=True, kw_only=True)
class DeployedResult:
    """What a deployed run came to.

    Attributes:
        run: its name, in the silos' ledgers too.
        folder: where its model is.
        price: what the silos' ledgers say of everything they released, this run included; see `account_ledgers`.
        failures: silo-rounds that are in no model.
    """

    run: str
    folder: Path
    price: Json
    failures: int


def make_deployment(
    scenario: Scenario, out: Path, *, budget: float | None = None, insecure_test_seed: bool = False
) -> tuple[Deployment, Plan]:
    """Write the folders of a deployment; nothing is started.

    Args:
        scenario: what it is for; its silos' laws allow just that.
        out: the folder, new or empty.
        budget: epsilon of each silo over its lifetime; None is what one run takes.
        insecure_test_seed: draw noise from the scenario's seed, for the bytes of a simulation; no guarantee is left.

    Raises:
        ScenarioError: for a scenario that a deployment does not offer; nothing was written.
        RunError: for a folder that cannot be used.
    """
    _check_free(out)  # before the time that the data and the plan take
    dataset = prepare(scenario)
    plan = make_plan(scenario, (facts := PublicFacts.of(scenario, dataset)).sizes)
    laws = laws_of(
        scenario, dataset, plan, server="silodp deploy", budget=budget, insecure_test_seed=insecure_test_seed
    )
    if not insecure_test_seed:
        # Which rounds a silo is in depends on the server, which sees what was released.
        laws = {silo: law.model_copy(update={"participation": "reacts"}) for silo, law in laws.items()}
    deployment, app = Deployment.new(out, list(laws), free_ports(len(laws) + 1)), build_app()
    _check_free(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{out}: cannot be written: {error.strerror}.") from error
    _write_server(deployment, scenario, facts, app)
    for silo, law in laws.items():
        folder = deployment.silo(silo)
        write_silo_folder(folder, law, dataset)
        write_node_key(folder)
        approve(folder, app)
        deployment.public_key(silo).write_bytes((folder / f"{NODE_KEY}.pub").read_bytes())
    renew_certificates(deployment)
    deployment.write()
    return deployment, plan


def _check_free(out: Path) -> None:
    try:
        if out.exists() and any(out.iterdir()):
            raise RunError(f"{out}: is not empty. Choose another --out.")
    except OSError as error:
        raise RunError(f"{out}: cannot be used: {error.strerror}.") from error


def renew_certificates(deployment: Deployment) -> None:
    """Write new certificates, and give every silo what it checks the server by."""
    write_certificates(deployment.server)
    for silo in deployment.silos:
        (deployment.silo(silo) / CA).write_bytes((deployment.server / CA).read_bytes())


def run_on(
    deployment: Deployment,
    overrides: Sequence[str] = (),
    *,
    resume: bool = False,
    progress: Callable[[DeployedProgress], None] = lambda _: None,
) -> DeployedResult:
    """Run the deployment's scenario on its SuperNodes, which must be up.

    Args:
        deployment: whose.
        overrides: changes to the scenario, as for `load`; not of its data and silos, which were prepared.
        resume: go on with the last run that did not come to its end.
        progress: called as the run goes on.

    Raises:
        ScenarioError: for overrides of what was prepared.
        SuperLinkUnreachable: where nothing is up.
        RunError: for a run that stopped, saying why; and where there is none to resume.
    """
    check_certificate(deployment.server / CA)
    scenario = load(_unfinished(deployment) / SCENARIO) if resume else _changed(deployment, overrides)
    with SuperLink(deployment.address, deployment.server / CA) as link:
        link.nodes()  # a run that cannot be submitted is not begun
        folder = _unfinished(deployment) if resume else new_run(deployment, scenario)
        number = submit(deployment, link, folder)
        try:
            state = follow(link, number, folder, progress)
        except KeyboardInterrupt:
            link.stop(number)
            raise
    if state.outcome != "completed":
        raise _stopped(deployment, folder, state.details or state.outcome)
    price = account_ledgers(
        [deployment.silo(silo) for silo in deployment.silos],
        delta=scenario.privacy.delta,
        epsilon=None,
        relation=None,
        membership=None,
        method="auto",
    )
    (folder / GUARANTEE).write_text(json.dumps(price, indent=2) + "\n", "utf-8")
    done = DeployedProgress.read(folder)
    return DeployedResult(run=folder.name, folder=folder, price=price, failures=done.failures if done else 0)


def _write_server(deployment: Deployment, scenario: Scenario, facts: PublicFacts, app: bytes) -> None:
    (deployment.server / "keys").mkdir(parents=True)
    (deployment.server / SCENARIO).write_text(scenario.to_toml(), "utf-8")
    facts.write(deployment.server / PUBLIC)
    (deployment.server / APP).write_bytes(app)


def _changed(deployment: Deployment, overrides: Sequence[str]) -> Scenario:
    """The scenario with the overrides, which must leave alone what was prepared."""
    path = deployment.server / SCENARIO
    prepared, changed = load(path), load(path, overrides)
    for section in ("data", "silos", "seed"):
        if getattr(prepared, section) != getattr(changed, section):
            raise changed.error(section, "was used to prepare the silos' folders; make a new deployment to change it")
    return changed


def new_run(deployment: Deployment, scenario: Scenario) -> Path:
    """A new run's folder, with its scenario; the folder's name is the run's.

    Raises:
        RunError: for a second run where a test seed draws the noise: it would draw the same again.
    """
    seed = SiloFolder(deployment.silo(deployment.silos[0])).law().insecure_test_seed
    name = f"{scenario.name}-{secrets.token_hex(8)}" if seed is None else seed.run
    folder = deployment.folder / "runs" / name
    if folder.exists():
        raise RunError(f"{folder}: a deployment with a test seed has one run, and this is it. Use --resume.")
    folder.mkdir(parents=True)
    (folder / SCENARIO).write_text(scenario.to_toml(), "utf-8")
    return folder


def _unfinished(deployment: Deployment) -> Path:
    """The folder of the last run that did not come to its end."""
    begun = [path.parent for path in (deployment.folder / "runs").glob(f"*/{SCENARIO}")]
    if open_ended := [folder for folder in begun if not (folder / MODEL).exists()]:
        return max(open_ended, key=lambda folder: (folder / SCENARIO).stat().st_mtime_ns)
    raise RunError(f"{deployment.folder / 'runs'}: holds no run to resume; leave out --resume to start one.")


def submit(deployment: Deployment, link: SuperLink, folder: Path) -> int:
    """Submit a run to the SuperLink, in place of an earlier submission of it; returns Flower's number of it."""
    submitted = folder / SUBMITTED
    if submitted.exists():
        before = int(json.loads(submitted.read_text("utf-8"))["run"])
        if not link.run(before).finished:
            link.stop(before)
    number = link.start(
        (deployment.server / APP).read_bytes(),
        {
            "scenario": str(folder / SCENARIO),
            "public": str(deployment.server / PUBLIC),
            "run": folder.name,
            "out": str(folder),
        },
    )
    submitted.write_text(json.dumps({"run": str(number)}) + "\n", "utf-8")
    return number


def follow(link: SuperLink, number: int, folder: Path, progress: Callable[[DeployedProgress], None]) -> RunState:
    """Wait for the end of a run, which `flwr run` would not tell from a failure."""
    told, heard = None, time.monotonic()
    while True:
        try:
            state, heard = link.run(number), time.monotonic()
        except SuperLinkUnreachable as error:
            if time.monotonic() - heard > _SILENCE:
                raise RunError(f"{error} Start it by `silodp deploy up`, then `run --resume`.") from error
            state = None
        found = DeployedProgress.read(folder)
        if found is not None and found != told:
            progress(told := found)
        if state is not None and state.finished:
            return state
        time.sleep(_POLL)


def _stopped(deployment: Deployment, folder: Path, reason: str) -> RunError:
    return RunError(
        f"Run {folder.name!r} stopped: {reason.strip().rstrip('.')}. Look at {deployment.server / 'log.txt'}; "
        f"once it is put right, `silodp deploy run {deployment.folder} --resume` goes on with it."
    )
