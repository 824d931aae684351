"""What a sweep runs: every combination once, and baselines that differ from the scenario in what they say alone."""

import math
from pathlib import Path

import numpy as np
import pytest

from scenarios import ScenarioError, load, make_plan, prepare, public_sizes
from scenarios._price import membership_of, unit_of
from scenarios.spec._load import changed
from scenarios.sweeps._runs import expand, parse_over

ALL = ["no-privacy", "alone", "pooled", "majority"]


def runs(file: Path | str, *overrides: str, sweep: dict):
    return {run.name: run for run in expand(changed(load(file, overrides), sweep=sweep))}


def test_every_combination_of_values_and_seeds_is_run_once(scenario_file: Path) -> None:
    over = {"epsilon": [0.5, math.inf], "strategy": ["fedavg", "fedadam:learning_rate=0.05:tau=0.01"], "rounds": [1, 2]}
    found = runs(scenario_file, sweep={"over": over, "seeds": 3, "baselines": ALL})
    assert len(found) == 2 * 2 * 2 * 3 + 3 * (2 + 4 + 4 + 2)
    one = found["fedadam-learning_rate=0.05-tau=0.01-epsilon=inf-rounds=2-seed=4"]
    training = one.scenario.training
    assert (one.method, one.epsilon, dict(one.values)) == (
        "fedadam:learning_rate=0.05:tau=0.01",
        math.inf,
        {"training.rounds": 2},
    )
    assert training.strategy.model_dump()["learning_rate"] == 0.05
    assert (training.rounds, one.scenario.seed, one.scenario.privacy.epsilon) == (2, 4, math.inf)


def test_a_strategy_that_is_a_baseline_too_is_run_once(scenario_file: Path) -> None:
    sweep = {"over": {"strategy": ["fedavg", "alone"]}, "baselines": ["alone"]}
    assert list(runs(scenario_file, sweep=sweep)) == ["fedavg-seed=3", "alone-seed=3"]


def test_no_privacy_leaves_noise_to_no_silo_and_clips_as_before(scenario_file: Path) -> None:
    own = ("privacy.silos.west.epsilon=9", "privacy.budget=1", "privacy.groups={most={share=0.5, epsilon=1}}")
    run = runs(scenario_file, *own, sweep={"baselines": ["no-privacy"]})["no-privacy-seed=3"]
    plan = make_plan(run.scenario, public_sizes(run.scenario, prepare(run.scenario)))
    assert {part.schedule.noise_multiplier for part in plan.silos} == {0.0}
    assert {part.schedule.clip_norm for part in plan.silos} == {1.0}
    assert plan.warnings == ()
    assert run.epsilon == math.inf


@pytest.mark.parametrize("batch", ["sampling_rate=0.3", "expected_batch=12"])
def test_pooled_is_one_silo_of_everybody_at_the_same_price_rate_and_steps(scenario_file: Path, batch: str) -> None:
    run = runs(scenario_file, f"training.{batch}", sweep={"baselines": ["pooled"]})["pooled-seed=3"]
    apart, pooled = prepare(load(scenario_file)), prepare(run.scenario)
    (part,) = make_plan(run.scenario, public_sizes(run.scenario, pooled)).silos
    records = sum(len(shard) for shard in apart.shards.values())
    assert part.size == len(pooled.shards["pooled"]) == records
    assert part.steps == 4 * 3
    assert part.schedule.sampling_rate == pytest.approx(0.3 if "rate" in batch else 3 * 12 / records)
    assert 0.998 * 2 < part.price.epsilon <= 2
    assert pooled.records == apart.records
    np.testing.assert_array_equal(pooled.test_silos, apart.test_silos)
    np.testing.assert_array_equal(pooled.test_features, apart.test_features)
    assert set(pooled.shards["pooled"].individuals) == {
        name for shard in apart.shards.values() for name in shard.individuals
    }


def test_pooled_sizes_are_the_declared_ones_together() -> None:
    run = runs("cps-regions", sweep={"baselines": ["pooled"]})["pooled-seed=1"]
    assert public_sizes(run.scenario, prepare(run.scenario)) == {"pooled": 12000 + 9600 + 15200 + 12000}


def test_pooled_individuals_of_several_silos_are_there_once_and_priced_for_all_they_may_have(
    scenario_file: Path,
) -> None:
    overrides = ["silos.pooled=true", "silos.membership=at-most", "silos.max_silos=2", "data.records_per_individual=3"]
    scenario = load(scenario_file, overrides)
    assert unit_of(scenario).records == 6
    assert membership_of(scenario).cap(3) == 1
    partition = "silos={partition='iid', count=4, overlap={fraction=0.5, silos=2}, membership='at-most', max_silos=2}"
    apart = prepare(load(scenario_file, [partition]))
    pooled = prepare(load(scenario_file, [partition, "silos.pooled=true"])).shards["pooled"]
    held = np.concatenate([shard.individuals for shard in apart.shards.values()])
    assert sorted(pooled.individuals) == sorted(set(held))
    assert len(held) > 1.3 * len(pooled)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["silos.membership=unknown"], "declare a membership"),
        (["silos.membership=at-most", "silos.max_silos=2", "privacy.unit=record"], "data.individual"),
        (["privacy.silos.west.epsilon=1"], "one target"),
        (["privacy.groups={low={share=0.5, epsilon=1}}"], "one target"),
    ],
)
def test_pooling_without_a_price_is_refused(scenario_file: Path, overrides: list[str], told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        runs(scenario_file, *overrides, sweep={"baselines": ["pooled"]})


@pytest.mark.parametrize(
    ("sweep", "told"),
    [
        ({"over": {"epsilom": [1]}}, "is no key"),
        ({"over": {"seed": [1, 2]}}, "sweep.seeds"),
        ({"over": {"delta": [1e-3], "privacy.delta": [1e-4]}}, "one key twice"),
        ({"over": {"training.rouds": [1]}}, "did you mean 'rounds'"),
        ({"over": {"epsilon": [-1]}}, "privacy.epsilon = -1"),
        ({"over": {"epsilon": []}}, "over"),
        ({"over": {"epsilon": [1, 1.0]}}, "must not repeat"),
        ({"over": {"strategy": ["fedfoo"]}}, "fedavg"),
        ({"over": {"strategy": ["fedadam:rate=1"]}}, "learning_rate"),
        ({"seeds": 0}, "seeds"),
        ({"baselines": ["nobody"]}, "no-privacy"),
        ({"baselines": ["alone", "alone"]}, "must not repeat"),
    ],
)
def test_a_sweep_that_makes_no_sense_is_refused(scenario_file: Path, sweep: dict, told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        runs(scenario_file, sweep=sweep)


def test_a_sweep_changes_nothing_of_a_run(scenario_file: Path) -> None:
    plain = load(scenario_file)
    swept = changed(plain, sweep={"over": {"epsilon": [1]}, "seeds": 2})
    assert swept.canonical() == plain.canonical()
    assert swept != plain
    assert changed(swept) == swept
    assert {run.scenario.sweep for run in expand(swept)} == {None}


def test_swept_values_are_read_as_toml_says() -> None:
    assert parse_over(["epsilon=0.5,1, inf", "strategy=fedavg,fedadam:tau=0.1", "oracle=true,false"]) == {
        "epsilon": (0.5, 1, math.inf),
        "strategy": ("fedavg", "fedadam:tau=0.1"),
        "oracle": (True, False),
    }
    for bad in ("epsilon", "=1", "epsilon=1,,2"):
        with pytest.raises(ScenarioError, match="key=value"):
            parse_over([bad])
    with pytest.raises(ScenarioError, match="twice"):
        parse_over(["epsilon=1", "epsilon=2"])
