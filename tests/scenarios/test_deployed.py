"""The server's side of a deployed run, with the silos' own folders, in one process."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from flwr.app import Context
from safetensors.numpy import load_file

from accounting import Ledger
from scenarios import ScenarioError, load, run
from scenarios._asked import check_deployable
from scenarios._errors import RunError
from scenarios._run_key import run_key, run_name
from scenarios._strategy import PERSONAL
from scenarios.deployment._deployed import METRICS, MODEL, DeployedProgress, PublicFacts, run_deployed
from scenarios.deployment._deployments import make_deployment
from scenarios.deployment._silo_data import read_silo_data
from scenarios.spec._scenario import Scenario
from server import InProcessGrid
from server._deploy_folder import PUBLIC, Deployment
from silos import Silo, client_app
from silos._deployed import open_silo
from silos._folder import SiloFolder

METERED = ["evaluation.silo_metrics=true", "evaluation.metric_epsilon=1.0", "evaluation.oracle=false"]


class Killed(Exception):
    """The server's process ends here."""


def deployed(deployment: Deployment, scenario: Scenario, name: str, *, rounds: int | None = None) -> Path:
    """Run until so many rounds are done, as one submission of the run; the silos are opened anew for each."""
    silos: dict[str, Silo] = {}

    def find(context: Context) -> Silo:
        silo = str(context.node_config["silo"])
        if silo not in silos:
            folder = deployment.silo(silo)
            law = SiloFolder(folder).law()
            silos[silo] = open_silo(folder, law, *read_silo_data(folder, law), run=name, asked_by={})
        return silos[silo]

    def log(text: str) -> None:
        if rounds is not None and text.startswith(f"Round {rounds} of"):
            raise Killed

    folder = deployment.folder / "runs" / name
    grid = InProcessGrid(client_app(find), deployment.silos)
    facts = PublicFacts.read(deployment.server / PUBLIC)
    try:
        run_deployed(grid, scenario, facts, run=name, folder=folder, log=log)
    finally:
        for silo in silos.values():
            silo.ledger.close()
    return folder


def heads(deployment: Deployment) -> dict[str, str]:
    """The head of each silo's own chain, verified."""
    found: dict[str, str] = {}
    for silo in deployment.silos:
        with Ledger.open(SiloFolder(deployment.silo(silo)).ledger, read_only=True) as ledger:
            found[silo] = ledger.verify()[silo]
    return found


@pytest.mark.parametrize("strategy", [[], ["training.strategy.name=ditto", "training.fine_tune_rounds=1"]])
def test_a_run_that_was_killed_and_resumed_is_the_simulation(
    tmp_path: Path, scenario_file: Path, strategy: list[str]
) -> None:
    scenario = load(scenario_file, strategy)
    simulated = run(scenario, out=tmp_path / "simulated")
    deployment, _ = make_deployment(scenario, tmp_path / "deployment", insecure_test_seed=True)
    name = SiloFolder(deployment.silo("north")).law().insecure_test_seed
    assert name is not None
    for rounds in (1, 3):
        with pytest.raises(Killed):
            deployed(deployment, scenario, name.run, rounds=rounds)
        progress = DeployedProgress.read(deployment.folder / "runs" / name.run)
        assert progress is not None
        assert progress.round == rounds
    folder = deployed(deployment, scenario, name.run)
    for file in (MODEL, PERSONAL):
        assert (folder / file).exists() == (simulated.folder / file).exists() == (file == MODEL or bool(strategy))
        expected = load_file(simulated.folder / file) if (folder / file).exists() else {}
        for weight, values in expected.items():
            np.testing.assert_array_equal(load_file(folder / file)[weight], values)
    assert heads(deployment) == {silo: simulated.guarantee.heads[silo] for silo in deployment.silos}


def test_a_round_asked_again_is_answered_by_the_same_bytes_at_no_charge(tmp_path: Path, scenario_file: Path) -> None:
    scenario = load(scenario_file)
    deployment, _ = make_deployment(scenario, tmp_path / "deployment")
    with pytest.raises(Killed):
        deployed(deployment, scenario, "lost", rounds=2)
    checkpoint = deployment.folder / "runs" / "lost" / "checkpoint.safetensors"
    first, before = load_file(checkpoint), heads(deployment)
    checkpoint.unlink()
    with pytest.raises(Killed):
        deployed(deployment, scenario, "lost", rounds=2)
    for weight, values in load_file(checkpoint).items():
        np.testing.assert_array_equal(values, first[weight])
    assert heads(deployment) == before


def test_two_deployments_of_one_scenario_draw_other_noise(tmp_path: Path, scenario_file: Path) -> None:
    scenario = load(scenario_file, ["training.rounds=1"])
    models = []
    for place in ("first", "second"):
        deployment, _ = make_deployment(scenario, tmp_path / place)
        models.append(load_file(deployed(deployment, scenario, "run") / MODEL))
    assert any(not np.array_equal(models[0][name], models[1][name]) for name in models[0])


def test_silos_score_the_last_model_with_noise(tmp_path: Path, scenario_file: Path) -> None:
    scenario = load(scenario_file, [*METERED, "training.rounds=1"])
    deployment, _ = make_deployment(scenario, tmp_path / "deployment")
    table = pd.read_csv(deployed(deployment, scenario, "scored") / METRICS)
    assert {"all", *deployment.silos} >= set(table["silo"]) > {"all"}
    assert table["value"].notna().all()
    with Ledger.open(SiloFolder(deployment.silo("north")).ledger, read_only=True) as ledger:
        assert {charge.key.item for silo in ledger.silos() for charge in ledger.charges(silo)} == {
            *("update", "outcomes", "loss")
        }


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, scenario_file: Path) -> None:
    scenario = load(scenario_file, ["training.rounds=2"])
    deployment, _ = make_deployment(scenario, tmp_path / "deployment")
    with pytest.raises(Killed):
        deployed(deployment, scenario, "one", rounds=1)
    (deployment.folder / "runs" / "one").rename(deployment.folder / "runs" / "two")
    with pytest.raises(RunError, match="is of run 'one', not of 'two'"):
        deployed(deployment, scenario, "two")


def test_the_run_of_a_test_seed_has_the_simulations_name(tmp_path: Path, scenario_file: Path) -> None:
    from scenarios import prepare

    scenario = load(scenario_file)
    deployment, _ = make_deployment(scenario, tmp_path / "deployment", insecure_test_seed=True)
    seed = SiloFolder(deployment.silo("west")).law().insecure_test_seed
    assert seed is not None
    assert seed.run == run_name(scenario, run_key(scenario, prepare(scenario)))


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("training.stop_at=0.7", "training.stop_at"),
        ("silos.pooled=true", "silos.pooled"),
        ("data.standardise_epsilon=0.1", "data.standardise"),
    ],
)
def test_what_only_a_simulation_can_do_is_refused_by_its_key(override: str, key: str, scenario_file: Path) -> None:
    more = ['data.standardise="dp"'] if "standardise" in override else []
    with pytest.raises(ScenarioError, match=key):
        check_deployable(load(scenario_file, [override, *more]))
