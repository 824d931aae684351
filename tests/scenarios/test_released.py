"""What silos release beside training: charged, priced with it, and used as public numbers everywhere."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from accounting import Allowance, DiscreteLaplace, Ledger, NonPrivate, Relation, SampledGaussian, delta
from scenarios import RunResult, Scenario, ScenarioError, load, make_plan, prepare, public_sizes, run
from scenarios._asked import HELD_OUT
from scenarios._noisy_metrics import noisy_metrics
from scenarios._outcome import headline
from scenarios._price import budget_of
from scenarios._standardise import Scaling, standardised

PRIVATE_SIZES = ['privacy.relation="add-or-remove-one"', "privacy.size_epsilon=0.2"]
BY_BATCH = [*PRIVATE_SIZES, "training.expected_batch=10"]
METRICS = ["evaluation.silo_metrics=true", "evaluation.metric_epsilon=1.5", "evaluation.oracle=false"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, module_scenario_file: Path) -> RunResult:
    """One run with everything: noisy sizes, noisy moments, noisy metrics, no oracle."""
    extra = [*BY_BATCH, *METRICS, 'data.standardise="dp"', "data.standardise_epsilon=0.4"]
    return run(load(module_scenario_file, extra), out=tmp_path_factory.mktemp("runs") / "whole")


def planned(path: Path, overrides: list[str], counts: Mapping[str, int] | None = None):
    scenario = load(path, overrides)
    return make_plan(scenario, counts or public_sizes(scenario, prepare(scenario)))


def test_every_release_of_a_run_is_charged(whole: RunResult) -> None:
    with Ledger.open(whole.folder / "ledger.db", read_only=True) as ledger:
        for silo in ("north", "south", "west"):
            assert [each.key.item for each in ledger.charges(silo)] == ["allowance", "size", "moments", *["update"] * 4]
            assert [each.key.item for each in ledger.charges(silo + HELD_OUT)] == ["outcomes", "loss"]
            laws = {type(each) for each in ledger.releases(silo) if each.steps}
            assert DiscreteLaplace in laws
            assert Allowance in laws
            assert SampledGaussian not in laws


def test_the_whole_run_meets_its_target(whole: RunResult) -> None:
    assert 0.99 * 2.0 <= whole.guarantee.epsilon <= 2.0
    assert whole.guarantee.per_silo["west" + HELD_OUT] == pytest.approx(1.5, rel=1e-2)
    shares = {share.item: share.epsilon for share in whole.plan.budget}
    assert shares["size"] + shares["moments"] + shares["update"] == pytest.approx(2.0, rel=1e-3)


def test_the_oracle_is_named_only_where_it_was_used(whole: RunResult, scenario_file: Path, tmp_path: Path) -> None:
    assert not any("oracle" in line for line in whole.guarantee.not_covered)
    assert {metric[:3] for metric in whole.metrics["metric"]} == {"dp-"}
    seen = run(load(scenario_file, ["training.rounds=1"]), out=tmp_path / "seen").guarantee
    assert any("oracle" in line for line in seen.not_covered)


def test_the_sizes_in_the_plan_are_the_counts_in_the_ledger(whole: RunResult) -> None:
    sizes = public_sizes(whole.scenario, prepare(whole.scenario))
    assert {part.silo: part.size for part in whole.plan.silos} == sizes
    truth = {name: len(shard) for name, shard in prepare(whole.scenario).shards.items()}
    assert sizes != truth
    assert whole.plan.sizes == "noisy counts (epsilon = 0.2)"


@pytest.mark.parametrize("counts", [{"north": 1}, {"north": 90}, {"north": 4000}])
def test_training_meets_one_target_whatever_the_count(scenario_file: Path, counts: dict[str, int]) -> None:
    (part,) = planned(scenario_file, BY_BATCH, counts).silos
    assert part.allowance is not None
    law = part.schedule.mechanism().repeated(part.steps)
    spent = delta([law], relation=Relation.ADD_OR_REMOVE_ONE, epsilon=part.allowance.epsilon).delta
    assert spent <= 1.01 * part.allowance.delta  # delta and epsilon are bounded on grids of their own
    assert part.price.epsilon <= 2.0
    assert part.schedule.sampling_rate == min(1.0, 10 / counts["north"])
    assert part.schedule.expected_batch == min(10.0, counts["north"])


INDIVIDUALS = ["training.sampling=individuals", "data.records_per_individual=3"]


@pytest.mark.parametrize("count", [1, 90, 4000])
def test_counts_of_individuals_choose_laws_of_one_price(scenario_file: Path, count: int) -> None:
    (part,) = planned(scenario_file, [*BY_BATCH, *INDIVIDUALS], {"north": count}).silos
    (asked,) = part.asked
    # One individual moves a count of individuals by one, however many records it has.
    assert asked.mechanism == DiscreteLaplace(scale=1 / 0.2, sensitivity=1, replace_sensitivity=0, records=3)
    law = part.schedule.mechanism().repeated(part.steps)
    assert part.allowance is not None
    assert part.allowance.affords([law])
    assert part.allowance.records == 3
    assert part.schedule.sampling_rate == min(1.0, 10 / count)
    assert part.schedule.expected_batch == min(10.0, count)
    assert part.price.epsilon <= 2.0


def test_a_count_of_individuals_is_of_individuals(scenario_file: Path) -> None:
    path = scenario_file.parent / "people.csv"
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([*lines, *lines[1:]]), "utf-8")  # everybody has two records
    close = load(scenario_file, [*BY_BATCH, *INDIVIDUALS, "privacy.size_epsilon=1.5"])
    dataset = prepare(close)
    for silo, size in public_sizes(close, dataset).items():
        assert abs(size - dataset.shards[silo].individual_count) < 20
        assert 2 * dataset.shards[silo].individual_count == len(dataset.shards[silo])


def test_a_budget_counts_the_laws_that_a_count_chose(scenario_file: Path, tmp_path: Path) -> None:
    limited = load(scenario_file, [*BY_BATCH, "training.expected_batch=30", "privacy.budget=2.1"])
    plans = [make_plan(limited, {"north": size}) for size in (20, 400)]
    # Order and total of the filter are fixed before the count, on which they may not depend.
    budgets = {budget_of(limited, "north", plan.silos[0].schedule.mechanism()) for plan in plans}
    assert len(budgets) == 1
    result = run(limited, out=tmp_path / "run")
    with Ledger.open(result.folder / "ledger.db", read_only=True) as ledger:
        for part in result.plan.silos:
            budget = budget_of(limited, part.silo, part.schedule.mechanism())
            assert budget is not None
            held = sum(each.key.item == "update" for each in ledger.charges(part.silo))
            assert 1 <= held < part.rounds, part.size
            assert any(f"{part.silo!r}" in line and f"admits {held} of its 4" in line for line in result.plan.warnings)
            law = part.schedule.mechanism()
            assert budget.spent(ledger.charged(part.silo)) <= budget.total
            assert budget.spent([*ledger.charged(part.silo), law]) > budget.total
    assert set(result.failures["silo"]) == {"north", "south", "west"}
    assert result.failures["reason"].str.contains("remain").all()


def test_a_fixed_rate_is_priced_by_composition_since_no_count_chooses_its_law(scenario_file: Path) -> None:
    one, other = (planned(scenario_file, PRIVATE_SIZES, {"north": n}).silos[0] for n in (50, 500))
    assert one.allowance is None
    assert one.schedule.mechanism() == other.schedule.mechanism()
    assert one.price == other.price
    # Composing at one delta wastes nothing: less noise than what is left after subtracting epsilons would need.
    free = planned(scenario_file, [PRIVATE_SIZES[0], "silos.declared_size=50"]).silos[0]
    alone = planned(scenario_file, [PRIVATE_SIZES[0], "silos.declared_size=50", "privacy.epsilon=1.8"]).silos[0]
    sigmas = [part.schedule.noise_multiplier for part in (free, one, alone)]
    assert sigmas[0] < sigmas[1] < sigmas[2]


def test_changing_a_record_changes_no_public_number_but_the_noisy_count(scenario_file: Path) -> None:
    # With the counts held, the whole plan is the same for a shard with one record less.
    scenario = load(scenario_file, BY_BATCH)
    dataset = prepare(scenario)
    counts = public_sizes(scenario, dataset)
    shard = dataset.shards["north"]
    fewer = replace(shard, features=shard.features[1:], labels=shard.labels[1:], individuals=shard.individuals[1:])
    neighbour = replace(dataset, shards=dataset.shards | {"north": fewer})
    assert make_plan(scenario, counts).to_json() == make_plan(scenario, dict(counts)).to_json()
    other = public_sizes(scenario, neighbour)
    assert {name: other[name] for name in counts} != counts  # fresh noise and one record less
    assert list(other) == list(counts)


def test_a_stopped_run_with_noisy_sizes_resumes_to_the_same_ledger(whole: RunResult) -> None:
    with Ledger.open(whole.folder / "ledger.db", read_only=True) as ledger:
        before = ledger.heads()
    model = (whole.folder / "model.safetensors").read_bytes()
    (whole.folder / "checkpoint.safetensors").unlink()
    run(whole.scenario, out=whole.folder, resume=True)
    with Ledger.open(whole.folder / "ledger.db", read_only=True) as ledger:
        assert ledger.heads() == before
    assert (whole.folder / "model.safetensors").read_bytes() == model


def test_exact_standardisation_voids_the_guarantee_and_says_why(scenario_file: Path, tmp_path: Path) -> None:
    result = run(load(scenario_file, ['data.standardise="oracle"', "training.rounds=1"]), out=tmp_path / "run")
    assert math.isinf(result.guarantee.epsilon)
    sentence = result.guarantee.sentence()
    assert "no guarantee" in sentence
    assert "not private" in sentence
    assert "exact means and variances" in sentence
    assert json.loads((result.folder / "guarantee.json").read_text())["void"]
    with Ledger.open(result.folder / "ledger.db", read_only=True) as ledger:
        assert any(isinstance(each, NonPrivate) for each in ledger.releases("north"))


def test_standardised_inputs_have_mean_0_and_variance_1(scenario_file: Path) -> None:
    scenario = load(scenario_file, ['data.standardise="oracle"'])
    inputs = np.concatenate([shard.features for shard in standardised(scenario, prepare(scenario)).shards.values()])
    assert np.abs(inputs.mean(axis=0)).max() < 1e-5
    assert np.abs(inputs.std(axis=0) - 1).max() < 1e-5


def test_scaling_survives_any_noise() -> None:
    for sums in ([-50.0, 3.0, -9.0], [0.0, 0.0, 0.0], [1e9, -1e12, 1e12]):
        scaled = Scaling.of(np.array(sums)).apply(np.array([[0.3], [np.nan], [5.0]], dtype=np.float32))
        assert np.isfinite(scaled[[0, 2]]).all()
        assert np.isnan(scaled[1]).all()


def test_noisy_metrics_without_noise_are_the_metrics() -> None:
    # By hand: 3 of 4 positives and 1 of 2 negatives are right; ties in a bin count one half in the AUC.
    cells = np.zeros((2, 4))
    cells[0, 0], cells[0, 2], cells[1, 1], cells[1, 2], cells[1, 3] = 1, 1, 1, 1, 2
    found = noisy_metrics("binary", {"outcomes": cells, "loss": np.array([3.0])})
    assert found["accuracy"] == pytest.approx(4 / 6)
    assert found["auc"] == pytest.approx((1 + 1.5 + 2 + 2) / 8)
    assert found["loss"] == pytest.approx(0.5)
    assert found["true-positives"] == 3
    assert noisy_metrics("multiclass", {"outcomes": np.diag([3.0, 4, 5]) + 1})["accuracy"] == pytest.approx(15 / 21)
    assert noisy_metrics("binary", {"outcomes": np.full((2, 4), -1.0)}).keys().isdisjoint({"accuracy", "auc", "loss"})


def test_noisy_regression_metrics_without_noise_are_the_metrics() -> None:
    labels, errors = np.array([-0.5, 0.1, 0.7]), np.array([0.2, 0.0, -0.4])
    sums = np.array([3, np.abs(errors).sum() / 2, (errors**2).sum() / 4, labels.sum(), (labels**2).sum()])
    found = noisy_metrics("regression", {"errors": sums}, scale=10.0)
    assert found["mae"] == pytest.approx(2.0)
    assert found["rmse"] == pytest.approx(10 * np.sqrt(np.mean(errors**2)))
    assert found["r2"] == pytest.approx(1 - np.mean(errors**2) / np.var(labels))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([*PRIVATE_SIZES, "silos.declared_size=50"], "in place of silos.declared_size"),
        (["silos.public=['records']"], r"silos\.public.*means nothing under zero-out"),
        ([PRIVATE_SIZES[0], "silos.public=['held-out-records']"], "leave them out of the guarantee by silos.public"),
        ([PRIVATE_SIZES[0], "silos.public=['records']", *INDIVIDUALS], r"declared_size is required|is required: sizes"),
        ([PRIVATE_SIZES[0], "silos.public=['loss']"], "records or individuals or held-out-records|records"),
        ([*PRIVATE_SIZES, "silos.public=['records']", "silos.declared_size=50"], "in place of"),
        (["privacy.size_epsilon=0.2"], "means nothing under zero-out"),
        (["evaluation.silo_metrics=true"], "goes with silo_metrics"),
        (["evaluation.metric_epsilon=0.3"], "goes with silo_metrics"),
        (['data.standardise="dp"'], "standardise_epsilon"),
        ([*METRICS, "evaluation.test_fraction=0"], "needs held-out records"),
        ([*BY_BATCH, "privacy.noise_multiplier=2.0"], "training.sampling_rate instead"),
        ([*BY_BATCH, "privacy.size_epsilon=2.5"], "leaves nothing for training"),
        ([*METRICS, "evaluation.metric_epsilon=2.5"], "above the target"),
    ],
)
def test_what_has_no_price_is_refused(scenario_file: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        planned(scenario_file, overrides)


def test_an_override_of_how_sizes_become_public_replaces_the_other(scenario_file: Path) -> None:
    text = scenario_file.read_text("utf-8").replace('relation = "zero-out"', 'relation = "add-or-remove-one"')
    scenario_file.write_text(text + "size_epsilon = 0.2\n", "utf-8")
    assert load(scenario_file).privacy.size_epsilon == 0.2
    assert load(scenario_file, ["silos.declared_size=50"]).privacy.size_epsilon is None
    assert load(scenario_file, ["privacy.relation=zero-out"]).privacy.size_epsilon is None
    both = ["silos.declared_size=50", "privacy.size_epsilon=0.3"]
    with pytest.raises(ScenarioError, match="in place of"):
        load(scenario_file, both)


def test_sizes_declared_public_are_the_true_ones_everywhere(scenario_file: Path, tmp_path: Path) -> None:
    overrides = [PRIVATE_SIZES[0], "silos.public=['records', 'held-out-records']", "training.rounds=1"]
    scenario = load(scenario_file, [*overrides, "evaluation.oracle=false"])
    dataset = prepare(scenario)
    result = run(scenario, out=tmp_path / "run")
    truth = {name: len(shard) for name, shard in dataset.shards.items()}
    assert {part.silo: part.size for part in result.plan.silos} == truth
    assert {part.silo: part.schedule.expected_batch for part in result.plan.silos} == {
        name: pytest.approx(0.3 * size) for name, size in truth.items()
    }
    told = result.metrics.pivot_table(index="silo", columns="metric", values="value")
    assert told["records"].to_dict() == truth
    assert told["held-out-records"].to_dict() == {name: (dataset.test_silos == name).sum() for name in truth}
    # The same price as under a declared size, and a sentence that says what it leaves out.
    declared = run(
        load(scenario_file, [PRIVATE_SIZES[0], "silos.declared_size=50", "training.rounds=1"]), out=tmp_path / "d"
    )
    assert result.guarantee.epsilon == pytest.approx(declared.guarantee.epsilon, rel=1e-3)
    assert "Not covered: the exact number of training records" in result.guarantee.sentence()
    assert "Not covered" not in declared.guarantee.sentence()
    assert "After 1 rounds" in headline(scenario, result.guarantee, result.metrics)


def test_an_override_of_public_sizes_replaces_the_declared_ones(scenario_file: Path) -> None:
    text = scenario_file.read_text("utf-8").replace('relation = "zero-out"', 'relation = "add-or-remove-one"')
    scenario_file.write_text(text.replace('column = "hospital"', 'column = "hospital"\ndeclared_size = 50'), "utf-8")
    public = load(scenario_file, ["silos.public=['records']"])
    assert public.silos.declared_size is None
    assert public.sizes_declared_public
    both = load(scenario_file, ["silos.public=['held-out-records']"])
    assert both.silos.declared_size == 50
    assert load(scenario_file, ["privacy.size_epsilon=0.2"]).silos.declared_size is None


def test_a_blank_row_stays_and_adds_nothing(scenario_file: Path) -> None:
    path = scenario_file.parent / "people.csv"
    lines = path.read_text("utf-8").splitlines()
    first = lines[1].split(",")
    lines[1] = ",".join([*first[:3], "", *first[4:]])
    path.write_text("\n".join(lines), "utf-8")
    with pytest.raises(ScenarioError, match="missing or infinite value"):
        prepare(load(scenario_file))
    scenario: Scenario = load(scenario_file, ['data.incomplete="blank"'])
    dataset = prepare(scenario)
    rows = np.concatenate([*(shard.features for shard in dataset.shards.values()), dataset.test_features])
    assert len(rows) == len(lines) - 1
    assert np.isnan(rows).all(axis=1).sum() == np.isnan(rows).any(axis=1).sum() == 1
