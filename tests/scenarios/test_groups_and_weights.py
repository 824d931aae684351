"""Groups of silos have the budgets they were given, drawn from public things; weights leave the least noise."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from accounting import SampledGaussian, epsilon
from scenarios import ScenarioError, load, make_plan, run
from scenarios._groups import grouped
from scenarios._weights import noise_variance
from silos import OpacusEngine, Schedule, Shard, weights_of

SHARES = "privacy.groups={cautious={share=0.7, epsilon=0.5}, usual={share=0.2, epsilon=2}, open={share=0.1, epsilon=8}}"
TEN = {f"silo-{number}": 100 for number in range(10)}


def assigned(file: Path, silos: list[str], *overrides: str, seed: int = 1) -> dict[str, str | None]:
    own = grouped(load(file, [SHARES, *overrides], seed=seed), silos).privacy.silos
    return {silo: own[silo].group if silo in own else None for silo in silos}


@pytest.mark.parametrize("count", [1, 3, 10, 131, 160])
def test_each_group_is_within_one_silo_of_its_share_and_none_is_left_over(scenario_file: Path, count: int) -> None:
    groups = Counter(assigned(scenario_file, [f"silo-{number}" for number in range(count)]).values())
    for name, share in (("cautious", 0.7), ("usual", 0.2), ("open", 0.1)):
        assert abs(groups[name] - share * count) <= 1
    assert groups[None] == 0


def test_who_is_in_which_group_depends_on_the_seed_and_on_names_alone(scenario_file: Path) -> None:
    draws = [assigned(scenario_file, list(TEN), seed=seed) for seed in range(200)]
    assert draws[0] == assigned(scenario_file, list(TEN), "training.learning_rate=9", "silos.column=hospital", seed=0)
    # Each silo is cautious in about 70% of seeds: 140 of 200, and within four standard deviations of it.
    for silo in TEN:
        assert abs(sum(draw[silo] == "cautious" for draw in draws) - 140) < 4 * math.sqrt(200 * 0.7 * 0.3)


def test_every_silo_meets_its_groups_epsilon_and_the_federation_the_largest(scenario_file: Path) -> None:
    scenario = load(scenario_file, [SHARES, "privacy.silos.silo-3.epsilon=1"])
    plan = make_plan(scenario, TEN)
    targets = {"cautious": 0.5, "usual": 2.0, "open": 8.0}
    assert "silo-3" not in plan.groups
    for part in plan.silos:
        law = SampledGaussian(sampling_rate=0.3, noise_multiplier=part.schedule.noise_multiplier, steps=12)
        spent = epsilon([law], delta=1e-3, relation=scenario.privacy.relation).epsilon
        target = targets.get(plan.groups.get(part.silo, ""), 1.0)
        assert 0.998 * target < spent <= target
    assert plan.epsilon == max(part.price.epsilon for part in plan.silos)
    rows = {row.group: row for row in plan.group_rows()}
    assert [(row.silos, row.epsilon <= target) for row, target in zip(rows.values(), (0.5, 2, 8, 1), strict=True)] == [
        *((6, True), (2, True), (1, True), (1, True))
    ]


def test_groups_are_in_the_report_and_in_the_scenario_that_was_run(scenario_file: Path, tmp_path: Path) -> None:
    groups = "privacy.groups={near={silos=['north', 'south'], epsilon=1}, far={share=1.0, epsilon=4}}"
    scenario = load(scenario_file, [groups, "training.rounds=1"])
    result = run(scenario, out=tmp_path / "run")
    spent = result.guarantee.per_silo
    assert 0.998 < spent["north"] == spent["south"] <= 1 < 3.99 < spent["west"] == result.guarantee.epsilon <= 4
    assert "Groups of silos" in (tmp_path / "run/report.html").read_text("utf-8")
    again = load(tmp_path / "run/scenario.toml")
    assert again.privacy.silos["west"].group == "far"
    assert again.canonical() == grouped(scenario, ["north", "south", "west"]).canonical()


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ("a={share=0.7, epsilon=1}, b={share=0.4, epsilon=2}", "add to 1.1"),
        ("a={silos=['west'], epsilon=1}, b={silos=['west'], epsilon=2}", "two targets"),
        ("a={silos=['north'], epsilon=1}", "two targets"),
        ("a={share=0.5, silos=['west'], epsilon=1}", "exactly one of share and silos"),
        ("a={epsilon=1}", "exactly one of share and silos"),
        ("a={share=0.5}", "exactly one of epsilon and noise_multiplier"),
        ("a={silos=['east'], epsilon=1}", "without records"),
    ],
)
def test_groups_that_make_no_sense_are_refused(scenario_file: Path, groups: str, told: str, tmp_path: Path) -> None:
    overrides = ["privacy.silos.north.epsilon=1", f"privacy.groups={{{groups}}}"]
    with pytest.raises(ScenarioError, match=told):
        run(load(scenario_file, overrides), out=tmp_path / "run")


@pytest.mark.parametrize(("steps", "momentum"), [(1, 0.0), (3, 0.0), (4, 0.6)])
def test_the_noise_variance_is_that_of_a_model_trained_on_blank_records(steps: int, momentum: float) -> None:
    model = nn.Linear(2000, 1)
    blank = Shard(
        name="blank",
        features=np.full((20, 2000), np.nan, dtype=np.float32),
        labels=np.zeros(20, dtype=np.float32),
        individuals=np.arange(20).astype(str),
    )
    schedule = Schedule(
        sampling_rate=0.5,
        steps=steps,
        noise_multiplier=1.3,
        clip_norm=0.4,
        expected_batch=10,
        learning_rate=0.7,
        momentum=momentum,
    )
    before = weights_of(model)
    after, _ = OpacusEngine(model, task="binary", input_shape=(2000,), outputs=1).train(
        weights=before,
        shard=blank,
        schedule=schedule,
        sampling=np.random.default_rng(1),
        noise=np.random.default_rng(2),
    )
    moved = np.concatenate([(after[name] - before[name]).ravel() for name in before])
    # A variance estimated from 2001 normal values has a relative deviation of sqrt(2 / 2000) = 3%.
    assert moved.var() == pytest.approx(noise_variance(schedule), rel=0.13)


def test_inverse_variance_weights_leave_less_noise_in_the_average_than_any_others(scenario_file: Path) -> None:
    by_noise = make_plan(load(scenario_file, [SHARES, "training.weights=inverse-variance"]), TEN)
    by_size = make_plan(load(scenario_file, [SHARES]), TEN)
    variances = np.array([noise_variance(part.schedule) for part in by_noise.silos])
    weights = np.array([part.schedule.weight for part in by_noise.silos])
    assert weights.sum() == pytest.approx(1)
    least = np.sum(weights**2 * variances)
    others = [np.array([part.schedule.weight for part in by_size.silos])]
    others += list(np.random.default_rng(0).dirichlet(100 * weights, size=200))
    assert all(np.sum(other**2 * variances) > least * (1 - 1e-9) for other in others)
    noises = [[part.schedule.noise_multiplier for part in plan.silos] for plan in (by_noise, by_size)]
    assert noises[0] == noises[1]


def test_without_noise_weights_are_those_of_equal_noise(scenario_file: Path) -> None:
    sizes = {"north": 50, "south": 100, "west": 200}

    def weights(target: str) -> list[float]:
        scenario = load(scenario_file, ["training.weights=inverse-variance", target])
        return [part.schedule.weight for part in make_plan(scenario, sizes).silos]

    assert weights("privacy.epsilon=inf") == pytest.approx(weights("privacy.noise_multiplier=0.7"))
    assert weights("privacy.epsilon=inf") == pytest.approx([1 / 21, 4 / 21, 16 / 21])
    with pytest.raises(ScenarioError, match="adds no noise and others do"):
        weights("privacy.silos.west.epsilon=inf")


def test_weights_by_size_are_shares_of_the_public_sizes(scenario_file: Path) -> None:
    parts = make_plan(load(scenario_file), {"north": 50, "south": 150, "west": 200}).silos
    assert [part.schedule.weight for part in parts] == [0.125, 0.375, 0.5]
