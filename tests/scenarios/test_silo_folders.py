"""Silos in folders of their own run a scenario to the bytes of its simulation, and read their own files as it would."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from flwr.app import Context

from accounting import LAW_CHAIN, Budget, Ledger, Relation, SampledGaussian, epsilon
from scenarios import Scenario, load, make_plan, prepare, public_sizes, run
from scenarios._account import account_ledgers
from scenarios._errors import RunError
from scenarios._lifetime import lifetimes
from scenarios.deployment._silo_data import read_silo_data
from scenarios.deployment._silo_folders import laws_of, write_silo_folder
from server import InProcessGrid, RoundResult, build_strategy, find_silos, run_rounds
from silos import Silo, build_model, client_app, hash_weights, weights_of
from silos._errors import DataUnreadable, LawBroken
from silos._folder import SiloFolder
from silos._law import Law
from silos.app import _open


def deploy(scenario: Scenario, folder: Path, **options: object) -> list[str]:
    """Write a folder for each silo."""
    dataset = prepare(scenario)
    laws = laws_of(scenario, dataset, make_plan(scenario, public_sizes(scenario, dataset)), **options)  # type: ignore[arg-type]
    for name, law in laws.items():
        write_silo_folder(folder / name, law, dataset)
    return list(laws)


def ask(scenario: Scenario, folder: Path, names: Sequence[str], run: str) -> list[RoundResult]:
    """Run a scenario's rounds over silos in folders."""

    def find(context: Context) -> Silo:
        place = folder / str(context.node_config["silo"])
        return _open(place, SiloFolder(place).law().to_toml(), run, (("server", "the tests"),))

    grid, dataset = InProcessGrid(client_app(find), names), prepare(scenario)
    plan = make_plan(scenario, public_sizes(scenario, dataset))
    model = build_model(
        scenario.model.kind,
        input_shape=dataset.input_shape,
        outputs=dataset.outputs,
        hidden=scenario.model.hidden,
        activation=scenario.model.activation,
        seed=scenario.seed,
    )
    schedules = {part.silo: part.schedule for part in plan.silos}
    return list(
        run_rounds(
            grid=grid,
            silos=find_silos(grid, names),
            strategy=build_strategy("fedavg", {}),
            plan=lambda _: schedules,
            weights=weights_of(model),
            rounds=scenario.training.rounds,
        )
    )


def same_as_simulated(scenario: Scenario, folder: Path) -> None:
    simulated = run(scenario, out=folder / "simulated")
    names = deploy(scenario, folder, insecure_test_seed=True)
    results = ask(scenario, folder, names, "17")
    assert all(result.replied == tuple(names) for result in results)
    assert hash_weights(results[-1].weights) == hash_weights(simulated.model)
    with Ledger.open(folder / "simulated" / "ledger.db", read_only=True) as ledger:
        heads = ledger.heads()
    for name in names:
        with Ledger.open(folder / name / "ledger.db", read_only=True) as ledger:
            assert ledger.verify()[name] == heads[name]


def test_a_deployment_with_the_test_seed_is_the_simulation(scenario_file: Path, tmp_path: Path) -> None:
    same_as_simulated(load(scenario_file), tmp_path)


@pytest.mark.slow
def test_a_deployment_of_the_demo_with_the_test_seed_is_its_simulation(tmp_path: Path) -> None:
    same_as_simulated(load("cps-regions"), tmp_path)


def test_the_budget_of_one_run_is_that_of_one_run(scenario_file: Path, tmp_path: Path) -> None:
    scenario = load(scenario_file)
    names = deploy(scenario, tmp_path, server="the tests")
    first = ask(scenario, tmp_path, names, "1")
    assert all(result.replied == tuple(names) for result in first)
    second = ask(scenario, tmp_path, names, "2")
    for result in second:
        assert result.replied == ()
        assert {reason.split(":")[0] for reason in result.failures.values()} == {"declined (budget)"}


def test_an_account_tells_what_two_runs_spent_and_who_asked(scenario_file: Path, tmp_path: Path) -> None:
    first, second = load(scenario_file), load(scenario_file, ["training.rounds=2", "training.local_steps=1"])
    names = deploy(first, tmp_path, budget=20.0)
    ask(first, tmp_path, names, "one")
    assert all(result.replied for result in ask(second_of(second, first), tmp_path, names, "two"))
    answer = account_ledgers(
        [tmp_path / "north"], delta=None, epsilon=None, relation=None, membership=None, method="auto"
    )
    assert answer["delta"] == first.privacy.delta
    (lifetime,) = answer["lifetimes"]  # type: ignore[misc]
    assert lifetime["silo"] == "north"
    assert 0 < lifetime["used"] < 1
    assert "(20, 0.001)-differentially private" in lifetime["sentence"]
    assert [(one["run"], one["charged"], one["released"], one["by"]) for one in lifetime["runs"]] == [
        ("one", {"update": 4}, {"update": 4}, {"server": "the tests"}),
        ("two", {"update": 2}, {"update": 2}, {"server": "the tests"}),
    ]
    with Ledger.open(tmp_path / "north" / "ledger.db", read_only=True) as ledger:
        sigma = ledger.charged("north", "one")[0].to_json()["noise_multiplier"]
    law = SampledGaussian(sampling_rate=0.3, noise_multiplier=float(str(sigma)), steps=12)
    alone = epsilon([law], relation=Relation.ZERO_OUT, delta=1e-3).epsilon
    assert lifetime["runs"][0]["epsilon"] == pytest.approx(alone)
    assert answer["epsilon"] > alone > lifetime["runs"][1]["epsilon"]


def second_of(scenario: Scenario, first: Scenario) -> Scenario:
    """The scenario with no less noise than the first was planned with."""
    noise = max(part.schedule.noise_multiplier for part in make_plan(first, public_sizes(first, prepare(first))).silos)
    privacy = scenario.privacy.model_copy(update={"epsilon": None, "noise_multiplier": noise})
    return scenario.model_copy(update={"privacy": privacy})


def test_a_folder_with_a_ledger_keeps_its_law_and_its_data(scenario_file: Path, tmp_path: Path) -> None:
    scenario = load(scenario_file, ["training.rounds=1"])
    names = deploy(scenario, tmp_path)
    deploy(scenario, tmp_path)
    ask(scenario, tmp_path, names, "1")
    with pytest.raises(RunError, match="has a ledger already"):
        deploy(scenario, tmp_path)


LAW = """
name = "north"
relation = "zero-out"
unit = "individual"

[data]
path = "own.csv"
task = "binary"

[data.rules]
individual = "id"
label = { column = "sick", positive = 1 }
features = { age = { low = 20, high = 80 }, dose = { low = -3, high = 3 }, sex = { categories = ["f", "m"] } }

[[models]]
kind = "linear"

[budget]
epsilon = 1.0
delta = 1e-3

[limits]
noise_multiplier = 1.0
clip_norm = 1.0
sampling_rate = 0.1
steps = 1
rounds = 1
"""


def test_a_silo_reads_its_own_file_as_a_simulation_would(scenario_file: Path, tmp_path: Path) -> None:
    expected = prepare(load(scenario_file, ["evaluation.test_fraction=0"])).shards["north"]
    table = pd.read_csv(scenario_file.parent / "people.csv")
    own = table[table["hospital"] == "north"].drop(columns="hospital")
    own.to_csv(tmp_path / "own.csv", index=False)
    own.to_parquet(tmp_path / "own.parquet", index=False)
    for law in (LAW, LAW.replace("own.csv", "own.parquet")):
        shard, held_out = read_silo_data(tmp_path, Law.parse(law))
        assert held_out is None
        for name in ("features", "labels", "individuals"):
            assert np.array_equal(getattr(shard, name), getattr(expected, name))


@pytest.mark.parametrize(
    ("written", "instead", "error", "told"),
    [
        ("own.csv", "own.txt", LawBroken, r"data\.path = 'own\.txt'"),
        ("own.csv", "gone.csv", DataUnreadable, r"gone\.csv: cannot be read"),
        ('individual = "id"', "", LawBroken, r"needs data\.rules\.individual"),
        ('individual = "id"', 'id = "id"', LawBroken, r"data\.rules\.id: is unknown"),
        ('individual = "id"', 'individual = "sex"', LawBroken, r"features\.sex|individual"),
        ('individual = "id"', 'individual = "dose2"', DataUnreadable, r"column 'dose2' names no column"),
        ("low = 20", "low = 90", LawBroken, r"data\.rules\.features\.age"),
        ('["f", "m"]', '["f"]', DataUnreadable, r"column 'sex' holds 'm'"),
    ],
)
def test_a_file_that_is_not_what_the_law_says_is_refused(
    written: str, instead: str, error: type[Exception], told: str, tmp_path: Path
) -> None:
    pd.DataFrame({"id": ["a", "b"], "age": [30, 40], "dose": [0, 1], "sex": ["f", "m"], "sick": [0, 1]}).to_csv(
        tmp_path / "own.csv", index=False
    )
    with pytest.raises(error, match=told):
        read_silo_data(tmp_path, Law.parse(LAW.replace(written, instead)))


def test_an_individual_with_more_records_than_the_law_allows_is_refused(tmp_path: Path) -> None:
    pd.DataFrame({"id": ["a", "a"], "age": [30, 40], "dose": [0, 1], "sex": ["f", "m"], "sick": [0, 1]}).to_csv(
        tmp_path / "own.csv", index=False
    )
    with pytest.raises(DataUnreadable, match="has 2 records, and the law's cap is 1"):
        read_silo_data(tmp_path, Law.parse(LAW))
    read_silo_data(tmp_path, Law.parse(LAW.replace('unit = "individual"', 'unit = "individual"\nrecords = 2')))


def test_an_individual_is_trained_on_or_held_out_and_not_both(tmp_path: Path) -> None:
    table = pd.DataFrame({"id": ["a", "b"], "age": [30, 40], "dose": [0, 1], "sex": ["f", "m"], "sick": [0, 1]})
    table.to_csv(tmp_path / "own.csv", index=False)
    law = LAW.replace('path = "own.csv"', 'path = "own.csv"\nheld_out = "kept.csv"')
    table.assign(id=["b", "c"]).to_csv(tmp_path / "kept.csv", index=False)
    with pytest.raises(DataUnreadable, match=r"holds 1 individuals of own\.csv"):
        read_silo_data(tmp_path, Law.parse(law))
    table.assign(id=["c", "d"]).to_csv(tmp_path / "kept.csv", index=False)
    read_silo_data(tmp_path, Law.parse(law))


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_of_a_budget_without_limit_nothing_is_used(noise: float, tmp_path: Path) -> None:
    limit = Budget(epsilon=math.inf, delta=1e-5, relation=Relation.ZERO_OUT)
    law = SampledGaussian(sampling_rate=0.1, noise_multiplier=noise, steps=3)
    with Ledger.open(tmp_path / "ledger.db", create=True) as ledger:
        ledger.fix("north" + LAW_CHAIN, "budget", json.dumps(limit.to_json()))
        ledger.charge(silo="north", run="r", round=1, attempt=0, item="update", mechanism=law, request="asked")
        (found,) = lifetimes(ledger)
    assert (found["used"], found["epsilon"]) == (0.0, "inf")
