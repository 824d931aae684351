"""Strategies in a run: what they ask for is declared, charged and planned; their models are scored; a run resumes."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from accounting import Ledger, epsilon
from scenarios import Scenario, ScenarioError, load, run
from scenarios._account import LEDGER
from scenarios._checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from scenarios._evaluate import Evaluator
from scenarios._outcome import WHOLE
from scenarios._plan import make_plan
from scenarios._plan_parts import Plan
from scenarios._plan_questions import affordable_rounds
from scenarios._simulation import Simulation
from scenarios._strategy import strategy_in
from scenarios.data._dataset import prepare, public_sizes
from server import STRATEGIES
from server._personal import passes_of
from silos import hash_weights

SHORT = ["training.rounds=3", "training.local_steps=2", "privacy.noise_multiplier=1.5"]
TUNED = "training.fine_tune_rounds=1"


def by(name: str, *more: str) -> list[str]:
    return [*SHORT, f"training.strategy.name={name}", *more]


@contextmanager
def opened(scenario: Scenario, folder: Path) -> Iterator[tuple[Simulation, Plan, Ledger]]:
    folder.mkdir(exist_ok=True)
    dataset = prepare(scenario)
    plan = make_plan(scenario, public_sizes(scenario, dataset))
    simulation = Simulation(scenario, dataset, plan)
    with Ledger.open(folder / LEDGER, create=True) as ledger:
        try:
            yield simulation, plan, ledger
        finally:
            simulation.close()


def last_state(scenario: Scenario, folder: Path) -> tuple[Simulation, Checkpoint]:
    with opened(scenario, folder) as (simulation, _, ledger):
        (*_, state) = simulation.rounds(ledger, simulation.initial(), lambda _: None)
        return simulation, state


@pytest.mark.parametrize(
    ("name", "tuned"), [*((name, []) for name in STRATEGIES), ("fedavg", [TUNED]), ("ditto", [TUNED])]
)
def test_what_was_executed_is_what_was_declared_and_planned(
    module_scenario_file: Path, tmp_path: Path, name: str, tuned: list[str]
) -> None:
    scenario = load(module_scenario_file, by(name, *tuned))
    with opened(scenario, tmp_path / "run") as (simulation, plan, ledger):
        list(simulation.rounds(ledger, simulation.initial(), lambda _: None))
        strategy = strategy_in(scenario, simulation.initial())
        passes = sum(len(passes_of(strategy, number)) for number in (1, 2, 3))
        for part in plan.silos:
            executed, declared = ledger.releases(part.silo), ledger.declared(part.silo)
            assert len(executed) == part.models == passes
            assert sum(one.steps for one in executed) == sum(one.steps for one in declared) == part.steps
            price = epsilon(executed, relation=scenario.privacy.relation, delta=scenario.privacy.delta)
            assert price.epsilon == part.price.epsilon


def test_a_second_pass_is_planned_for(module_scenario_file: Path) -> None:
    """Ditto of R rounds, f of them for fine-tuning, costs what FedAvg of 2 R - f rounds costs."""

    def plan_of(name: str, *more: str) -> tuple[Scenario, Plan]:
        scenario = load(module_scenario_file, [f"training.strategy.name={name}", "privacy.epsilon=2.0", *more])
        return scenario, make_plan(scenario, public_sizes(scenario, prepare(scenario)))

    scenario, ours = plan_of("ditto", "training.rounds=10", "training.fine_tune_rounds=4")
    _, theirs = plan_of("fedavg", "training.rounds=16")
    for one, other in zip(ours.silos, theirs.silos, strict=True):
        assert one.schedule.noise_multiplier == other.schedule.noise_multiplier
    assert ours.epsilon <= 2.0
    assert affordable_rounds(scenario, ours) == 10
    assert len(ours.silos[0].releases(6)) == 12
    assert len(ours.silos[0].releases(10)) == 16


@pytest.mark.parametrize(
    ("name", "stop"), [("mr-mtl", 1), ("ditto", 1), ("ditto", 2), ("scaffold", 1), ("scaffold", 2), ("fedyogi", 2)]
)
def test_a_run_goes_on_from_its_checkpoint_to_the_same_bytes(
    module_scenario_file: Path, tmp_path: Path, name: str, stop: int
) -> None:
    scenario = load(module_scenario_file, by(name, TUNED))
    whole, expected = last_state(scenario, tmp_path / "whole")
    with opened(scenario, tmp_path / "part") as (simulation, _, ledger):
        for state in simulation.rounds(ledger, simulation.initial(), lambda _: None):
            if state.round == stop:
                break
        save_checkpoint(tmp_path / "checkpoint", state)
    with opened(scenario, tmp_path / "part") as (simulation, _, ledger):
        start = load_checkpoint(tmp_path / "checkpoint")
        (*_, state) = simulation.rounds(ledger, start, lambda _: None)
        heads = ledger.heads()
        own = simulation.personal(state)
    with Ledger.open(tmp_path / "whole" / LEDGER, read_only=True) as ledger:
        assert heads == ledger.heads()
    assert hash_weights(state.model) == hash_weights(expected.model)
    assert state.metrics == expected.metrics
    for silo, model in whole.personal(expected).items():
        assert hash_weights(own[silo]) == hash_weights(model)


def test_each_silos_records_are_scored_by_its_own_model(module_scenario_file: Path, tmp_path: Path) -> None:
    result = run(load(module_scenario_file, by("alone")), out=tmp_path / "run")
    dataset, metrics = prepare(result.scenario), result.metrics
    held = load_file(tmp_path / "run" / "personal.safetensors")
    assert set(result.personal) == set(dataset.shards)
    model = Simulation(result.scenario, dataset, result.plan)._trainer.model
    evaluator, correct = Evaluator(model, dataset), 0.0
    for silo in dataset.shards:
        own = {name.removeprefix(f"{silo}/"): array for name, array in held.items() if name.startswith(f"{silo}/")}
        rows = dataset.test_silos == silo
        logits = evaluator.outputs(own, dataset.test_features[rows])[:, 0]
        right = np.mean((logits > 0) == (dataset.test_labels[rows] > 0))
        told = metrics.query("silo == @silo and metric == 'accuracy' and round == 3")["value"].item()
        assert told == pytest.approx(right)
        correct += right * rows.sum()
    told = metrics.query("silo == @WHOLE and metric == 'accuracy' and round == 3")["value"].item()
    assert told == pytest.approx(correct / len(dataset.test_labels))


@pytest.mark.parametrize(("pull", "like"), [("inf", "fedavg"), ("0.0", "alone")])
def test_mean_regularised_models_score_as_those_at_its_two_ends(
    module_scenario_file: Path, tmp_path: Path, pull: str, like: str
) -> None:
    runs = (by("mr-mtl", f"training.strategy.pull={pull}"), by(like))
    # One key for both: another strategy is another scenario, which draws other noise.
    with pytest.MonkeyPatch.context() as patch:
        for module in ("_simulation", "_released"):
            patch.setattr(f"scenarios.{module}.run_key", lambda *_: b"one key for all of the runs here")
        ours, theirs = (
            last_state(load(module_scenario_file, keys), tmp_path / str(place))[1] for place, keys in enumerate(runs)
        )
    assert [row[:3] for row in ours.metrics] == [row[:3] for row in theirs.metrics]
    np.testing.assert_allclose([row.value for row in ours.metrics], [row.value for row in theirs.metrics], rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["training.strategy.name=fedprox", "training.strategy.pull=2.1"], "at most 2, 1 / training.learning_rate"),
        (["training.strategy.name=ditto", "training.strategy.pull=2.1"], "at most 2, 1 / training.learning_rate"),
        (["training.strategy.name=mr-mtl", "training.strategy.pull=-0.1"], "training.strategy"),
        (["training.strategy.name=mr-mtl", "training.strategy.pull=nan"], "training.strategy"),
        (["training.strategy.name=scaffold", "training.momentum=0.5"], "must be 0: scaffold"),
        (["training.fine_tune_rounds=4"], "at most 3"),
        (["training.fine_tune_rounds=1", "training.stop_at=0.7"], "would stop before fine_tune_rounds"),
        (["training.strategy.name=fedtrimmedavg", "training.strategy.trim=0.5"], "trim"),
    ],
)
def test_what_does_not_go_together_is_refused(module_scenario_file: Path, changes: list[str], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        load(module_scenario_file, changes)


def test_krum_needs_more_silos_than_it_may_have_to_leave_out(module_scenario_file: Path) -> None:
    def planned(malicious: int) -> Plan:
        scenario = load(
            module_scenario_file, ["training.strategy.name=krum", f"training.strategy.malicious={malicious}"]
        )
        return make_plan(scenario, {"north": 90, "south": 60, "west": 40})

    assert planned(0).epsilon < math.inf
    with pytest.raises(ScenarioError, match="at least 5 silos; there are 3"):
        planned(1)


def test_silos_score_the_models_that_they_have(module_scenario_file: Path, tmp_path: Path) -> None:
    """With hardly any noise on them, the silos' own metrics are the oracle's, for models of their own too."""
    metrics = ["evaluation.silo_metrics=true", "evaluation.metric_epsilon=1e6", "privacy.epsilon=inf"]
    keys = [one for one in by("alone", *metrics) if "noise_multiplier" not in one]
    scenario = load(module_scenario_file, keys)
    with opened(scenario, tmp_path / "run") as (simulation, _, ledger):
        (*_, state) = simulation.rounds(ledger, simulation.initial(), lambda _: None)
        rows = simulation.finish(ledger, state).metrics
    found = {(row.silo, row.metric): row.value for row in rows if row.round == 3}
    for silo in ("north", "south", "west", WHOLE):
        assert found[silo, "dp-accuracy"] == pytest.approx(found[silo, "accuracy"], abs=1e-3)
