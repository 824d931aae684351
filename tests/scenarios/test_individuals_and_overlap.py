"""Individuals with several records, and individuals in several silos: caps enforced, sets priced, weights shared."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import scenarios._runner
from accounting import Ledger, MultiRecordSampledGaussian, Relation, SampledGaussian, epsilon
from scenarios import Scenario, ScenarioError, load, make_plan, prepare, public_sizes, run
from scenarios._plan_parts import Plan
from scenarios._plan_questions import sampling_compared
from scenarios.data._dataset import Dataset

PARTITION = ["silos={ partition = 'iid', count = 4, membership = 'at-most', max_silos = 2 }"]
OVERLAP = [*PARTITION, "silos.overlap={ fraction = 0.3, silos = 2 }"]
VISITS = ["data.records_per_individual=3", "data.beyond_cap=drop"]


@pytest.fixture(autouse=True)
def _no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing the report takes longer than these runs."""
    monkeypatch.setattr(scenarios._runner, "render_report", lambda *_: "")


@pytest.fixture
def visits_file(scenario_file: Path) -> Path:
    """The scenario, over a table in which individuals have one to five records, all in one hospital."""
    table = pd.read_csv(scenario_file.parent / "people.csv")
    generator = np.random.default_rng(7)
    times = generator.integers(1, 6, len(table))
    rows = generator.permutation(np.repeat(np.arange(len(table)), times))
    table.iloc[rows].to_csv(scenario_file.parent / "people.csv", index=False)
    return scenario_file


def planned(path: Path, overrides: Sequence[str]) -> tuple[Scenario, Dataset, Plan]:
    scenario = load(path, ["training.rounds=2", *overrides])
    dataset = prepare(scenario)
    return scenario, dataset, make_plan(scenario, public_sizes(scenario, dataset))


def silos_of(dataset: Dataset) -> dict[str, set[str]]:
    """The silos that each individual is in."""
    found: dict[str, set[str]] = {}
    for name, shard in dataset.shards.items():
        for one in shard.individuals.tolist():
            found.setdefault(one, set()).add(name)
    return found


def test_nobody_keeps_more_records_than_the_cap_and_who_is_within_it_keeps_all(visits_file: Path) -> None:
    whole = prepare(load(visits_file, ["data.records_per_individual=5"]))
    capped = prepare(load(visits_file, VISITS))
    for name, shard in capped.shards.items():
        before, after = (Counter(each.individuals.tolist()) for each in (whole.shards[name], shard))
        assert after == {one: min(count, 3) for one, count in before.items()}
    with pytest.raises(ScenarioError, match=r"records_per_individual = 3, but individual 'p\d+' has [45] records"):
        prepare(load(visits_file, ["data.records_per_individual=3"]))


def test_the_cap_looks_at_no_value_and_treats_each_individual_alone(visits_file: Path) -> None:
    before = prepare(load(visits_file, VISITS))
    table = pd.read_csv(visits_file.parent / "people.csv")
    removed = before.shards["north"].individuals[0]
    changed = table.assign(dose=table["dose"].to_numpy()[::-1].clip(-3, 3), sick=1 - table["sick"])
    changed[changed["id"] != removed].to_csv(visits_file.parent / "people.csv", index=False)
    after = prepare(load(visits_file, VISITS))
    for name, shard in before.shards.items():
        left = [one for one in shard.individuals.tolist() if one != removed]
        assert after.shards[name].individuals.tolist() == left


@pytest.mark.parametrize("sampling", ["records", "individuals"])
def test_a_run_meets_its_target_for_individuals_by_the_law_of_what_is_sampled(
    visits_file: Path, tmp_path: Path, sampling: str
) -> None:
    scenario = load(visits_file, ["training.rounds=2", *VISITS, f"training.sampling={sampling}"])
    result = run(scenario, out=tmp_path / "run")
    assert 0.99 * 2.0 <= result.guarantee.epsilon <= 2.0
    assert "individual with at most 3 records" in result.guarantee.sentence()
    part = result.plan.silos[0]
    sigma = part.schedule.noise_multiplier
    law = (
        MultiRecordSampledGaussian(sampling_rate=0.3, noise_multiplier=sigma, records=3, steps=6)
        if sampling == "records"
        else SampledGaussian(sampling_rate=0.3, noise_multiplier=sigma, by_individual=True, steps=6)
    )
    expected = epsilon([law], relation=Relation.ZERO_OUT, delta=1e-3).epsilon
    assert result.guarantee.per_silo["north"] == pytest.approx(expected, rel=1e-3)


def test_public_sizes_count_what_is_sampled(visits_file: Path) -> None:
    _, dataset, plan = planned(visits_file, [*VISITS, "training.sampling=individuals"])
    for part in plan.silos:
        assert part.size == len(set(dataset.shards[part.silo].individuals.tolist()))
        assert part.schedule.expected_batch == pytest.approx(0.3 * part.size)
    records, individuals = (
        planned(visits_file, [*VISITS, f"training.sampling={each}"])[2].silos[0].schedule
        for each in ("records", "individuals")
    )
    assert records.noise_multiplier > 1.5 * individuals.noise_multiplier


def test_the_plan_tells_which_sampling_is_cheaper(visits_file: Path, scenario_file: Path) -> None:
    told = sampling_compared(planned(visits_file, VISITS)[2])
    assert told is not None
    assert "at most 3 records" in told
    assert "Sampling individuals is cheaper" in told
    assert (
        sampling_compared(planned(scenario_file, ["data.records_per_individual=5", "privacy.unit=record"])[2]) is None
    )


def test_a_record_may_be_the_unit_though_individuals_are_named(visits_file: Path, tmp_path: Path) -> None:
    scenario = load(visits_file, ["training.rounds=1", "privacy.unit=record"])
    guarantee = run(scenario, out=tmp_path / "run").guarantee
    assert not guarantee.unit.individual
    assert "any one record" in guarantee.sentence()


def test_overlap_puts_the_share_in_so_many_silos_with_all_their_records(visits_file: Path) -> None:
    overrides = [*OVERLAP, *VISITS, "evaluation.test_fraction=0.0"]
    dataset = prepare(load(visits_file, overrides))
    found = silos_of(dataset)
    sizes = Counter(map(len, found.values()))
    assert set(sizes) == {1, 2}
    # 240 individuals by coins of 0.3: a standard deviation of 7.
    assert abs(sizes[2] - 72) < 28
    for one, names in found.items():
        held = [
            sorted(map(tuple, dataset.shards[name].features[dataset.shards[name].individuals == one])) for name in names
        ]
        assert all(each == held[0] for each in held)
    alone = silos_of(prepare(load(visits_file, [*PARTITION, *VISITS, "evaluation.test_fraction=0.0"])))
    assert all(names <= found[one] for one, names in alone.items())


@pytest.mark.parametrize("caps", [VISITS, [*OVERLAP, *VISITS], ["silos.column=region", *VISITS]])
def test_what_is_held_out_is_within_the_caps_that_its_scores_are_priced_for(caps: list[str], visits_file: Path) -> None:
    if caps[0] == "silos.column=region":  # individuals whose records lie in several silos, of which one may hold them
        table = pd.read_csv(visits_file.parent / "people.csv")
        table["region"] = np.random.default_rng(3).choice(["a", "b", "c"], len(table))
        table.to_csv(visits_file.parent / "people.csv", index=False)
    whole, split = (
        prepare(load(visits_file, [*caps, f"evaluation.test_fraction={fraction}"])) for fraction in (0.0, 0.3)
    )
    assert len(split.test_labels)
    for name, shard in whole.shards.items():
        all_kept = Counter(map(bytes, shard.features))
        tested = Counter(map(bytes, split.test_features[split.test_silos == name]))
        assert tested <= all_kept - Counter(map(bytes, split.shards[name].features))


def test_the_cap_on_silos_is_enforced(scenario_file: Path) -> None:
    three = ["silos.overlap={ fraction = 0.3, silos = 3 }", "evaluation.test_fraction=0.0"]
    with pytest.raises(ScenarioError, match=r"at most 2 silo\(s\)"):
        prepare(load(scenario_file, [*PARTITION, *three]))
    dropped = prepare(load(scenario_file, [*PARTITION, *three, "data.beyond_cap=drop"]))
    assert set(Counter(map(len, silos_of(dropped).values()))) == {1, 2}


def test_the_plan_prices_the_worst_set_and_the_run_meets_its_target(scenario_file: Path, tmp_path: Path) -> None:
    uneven = [
        *OVERLAP,
        "silos.partition=quantity",
        "silos.alpha=1.0",
        "training={ rounds = 2, expected_batch = 8, learning_rate = 0.5 }",
    ]
    scenario, _, plan = planned(scenario_file, uneven)
    assert len({part.schedule.sampling_rate for part in plan.silos}) > 1
    assert plan.worst.price.epsilon < 0.8 * plan.epsilon
    assert 0.97 * 2.0 <= plan.epsilon <= 2.0
    result = run(scenario, out=tmp_path / "run")
    assert result.guarantee.epsilon == pytest.approx(plan.epsilon, rel=1e-6)
    assert len(result.guarantee.worst) == 2
    # By another route: every pair of silos, each with the steps of both.
    laws = {part.silo: part.schedule.mechanism().repeated(part.steps) for part in plan.silos}
    pairs = [(a, b) for a in laws for b in laws if a < b]
    worst = max(epsilon([laws[a], laws[b]], relation=scenario.privacy.relation, delta=1e-3).epsilon for a, b in pairs)
    assert plan.epsilon == pytest.approx(worst, rel=1e-3)


def test_shared_contributions_add_to_one_and_keep_the_whole_noise(scenario_file: Path, tmp_path: Path) -> None:
    noise = ["privacy.noise_multiplier=2.0", "training.sampling=individuals", "training.clip_norm=0.8"]
    whole, shared = (
        planned(scenario_file, [*OVERLAP, *noise, f"training.contribution={each}"])[2] for each in ("whole", "shared")
    )
    for before, after in zip(whole.silos, shared.silos, strict=True):
        assert after.schedule.clip_norm == 0.8 / 2
        assert after.schedule.clip_norm * after.schedule.noise_multiplier == pytest.approx(2.0 * 0.8)
        assert before.schedule.clip_norm * before.schedule.noise_multiplier == pytest.approx(2.0 * 0.8)
    assert shared.epsilon < whole.epsilon
    # Without sampling, two silos of half the sensitivity each cost together less than one of the whole.
    every = [*OVERLAP, *noise, "training.sampling_rate=1.0", "training.local_steps=1", "training.contribution=shared"]
    _, _, plan = planned(scenario_file, every)
    one = epsilon(
        [SampledGaussian(sampling_rate=1.0, noise_multiplier=2.0 * math.sqrt(2), steps=2)],
        relation=Relation.ZERO_OUT,
        delta=1e-3,
    )
    assert plan.epsilon == pytest.approx(one.epsilon, rel=1e-3)
    result = run(load(scenario_file, ["training.rounds=2", *every]), out=tmp_path / "run")
    with Ledger.open(result.folder / "ledger.db", read_only=True) as ledger:
        assert {release.to_json()["noise_multiplier"] for release in ledger.releases("silo-1")} == {4.0}


def test_unknown_membership_is_calibrated_for_everybody_everywhere(scenario_file: Path) -> None:
    _, _, plan = planned(scenario_file, ["silos.membership=unknown"])
    assert 0.98 * 2.0 <= plan.epsilon <= 2.0
    assert plan.worst.price.epsilon < 0.7 * plan.epsilon


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["silos={ partition = 'iid', count = 4 }", "silos.overlap={ fraction = 0.1, silos = 2 }"], "declared cap"),
        ([*PARTITION, "silos.overlap={ fraction = 0.1, silos = 5 }"], "more than the 4 silos"),
        (["silos.membership=unknown", "silos.overlap={ fraction = 0.1, silos = 2 }"], "is for partitions"),
        (["training.contribution=shared"], r"training\.contribution"),
        (["training.sampling=individuals", "privacy.unit=record"], r"training\.sampling"),
        (["training.sampling=individuals", "training.engine=fleet"], r"training\.engine"),
    ],
)
def test_what_has_no_price_is_told(scenario_file: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        prepare(load(scenario_file, overrides))
