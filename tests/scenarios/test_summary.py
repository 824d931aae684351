"""Statistics of results: what an interval covers, what a gap's part is, what is compared with what."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import bootstrap

from scenarios.reports._summary import LEAST_SEEDS, Estimate, estimate, over_seeds, paired, per_run, said_of_seeds


def table(runs: list[dict[str, object]]) -> pd.DataFrame:
    """Results of runs of two silos; a run gives method, seed and the metric of all and of each."""
    rows = []
    for each in runs:
        name = f"{each['method']}-{each.get('epsilon', 1)}-{each['seed']}-{each.get('training.rounds', '')}"
        base = {"run": name, "scenario": "s", "epsilon": 1.0} | {k: v for k, v in each.items() if k != "auc"}
        rows += [base | {"silo": silo, "auc": auc} for silo, auc in zip(("all", "a", "b"), each["auc"], strict=True)]
    return pd.DataFrame(rows)


def test_intervals_of_five_seeds_cover_the_mean_about_as_often_as_they_say() -> None:
    generator, hits, plain_hits = np.random.default_rng(3), 0, 0
    for _ in range(400):
        values = generator.normal(size=LEAST_SEEDS)
        found = estimate(values)
        hits += found.low <= 0 <= found.high
        resamples = generator.choice(values, (500, LEAST_SEEDS)).mean(axis=1)
        low, high = np.quantile(resamples, (0.025, 0.975))
        plain_hits += low <= 0 <= high
    assert 0.89 <= hits / 400 <= 0.97
    assert plain_hits / 400 < 0.88


def test_intervals_of_many_seeds_are_the_percentile_bootstraps() -> None:
    values = np.random.default_rng(5).exponential(size=200)
    found = estimate(values)
    plain = bootstrap((values,), np.mean, method="percentile", n_resamples=10_000, random_state=1).confidence_interval
    width = plain.high - plain.low
    assert found.low == pytest.approx(plain.low, abs=0.06 * width)
    assert found.high == pytest.approx(plain.high, abs=0.06 * width)
    assert found.mean == pytest.approx(values.mean())


def test_an_estimate_is_the_same_in_any_order() -> None:
    values = np.random.default_rng(1).normal(size=7)
    assert estimate(values) == estimate(values[::-1])


def test_few_seeds_have_a_range_and_one_has_nothing() -> None:
    assert estimate([0.3, 0.1, 0.2]) == Estimate(mean=pytest.approx(0.2), low=0.1, high=0.3, seeds=3)
    one = estimate([0.4])
    assert one.mean == 0.4
    assert np.isnan([one.low, one.high]).all()
    assert "one seed" in said_of_seeds(1)
    assert said_of_seeds(3) == "the range of 3 seeds"
    assert "95%" in said_of_seeds(5)
    assert not estimate([1.0, 1.1, 1.2]).certain


def test_a_run_without_a_value_is_counted_as_lost_and_not_as_zero() -> None:
    found = estimate([1.0, np.nan, 3.0, np.inf])
    assert (found.mean, found.seeds, found.lost) == (2.0, 2, 2)
    assert np.isnan(estimate([np.nan]).mean)


def test_the_gap_is_of_the_same_seed() -> None:
    runs = per_run(
        table(
            [
                {"method": "majority", "seed": 1, "auc": (0.5, 0.5, 0.5)},
                {"method": "majority", "seed": 2, "auc": (0.6, 0.5, 0.5)},
                {"method": "no-privacy", "seed": 1, "auc": (0.9, 0.9, 0.9)},
                {"method": "no-privacy", "seed": 2, "auc": (0.8, 0.9, 0.9)},
                {"method": "fedavg", "seed": 1, "auc": (0.7, 0.6, 0.9)},
                {"method": "fedavg", "seed": 2, "auc": (0.75, 0.6, 0.9)},
                {"method": "fedavg", "seed": 3, "auc": (0.75, 0.6, 0.9)},
            ]
        ),
        "auc",
    )
    kept = runs["utility"].loc[runs["method"] == "fedavg"].tolist()
    assert kept[:2] == pytest.approx([0.2 / 0.4, 0.15 / 0.2])
    assert np.isnan(kept[2])
    assert runs["utility"].loc[runs["method"] == "majority"].tolist() == [0, 0]


def test_there_is_no_part_of_a_gap_that_does_not_open() -> None:
    runs = per_run(
        table([{"method": m, "seed": 1, "auc": (0.5, 0.5, 0.5)} for m in ("majority", "no-privacy", "fedavg")]), "auc"
    )
    assert runs["utility"].isna().all()


def test_baselines_are_of_the_same_settings() -> None:
    rounds = [{"training.rounds": 5}, {"training.rounds": 50}]
    levels = {"majority": (0.5, 0.5), "no-privacy": (0.7, 0.9), "fedavg": (0.6, 0.6)}
    runs = per_run(
        table(
            [
                {"method": method, "seed": 1, "auc": (auc,) * 3} | setting
                for method, values in levels.items()
                for auc, setting in zip(values, rounds, strict=True)
            ]
        ),
        "auc",
    )
    assert runs["utility"].loc[runs["method"] == "fedavg"].tolist() == pytest.approx([0.5, 0.25])
    assert set(runs["label"].loc[runs["method"] == "fedavg"]) == {"fedavg, rounds 5", "fedavg, rounds 50"}


def test_silos_give_the_mean_the_worst_and_the_spread_of_those_that_have_a_value() -> None:
    found = per_run(table([{"method": "fedavg", "seed": 1, "auc": (0.8, 0.6, 0.9)}]), "auc").iloc[0]
    assert (found["silo_mean"], found["silo_worst"]) == (pytest.approx(0.75), 0.6)
    assert found["silo_spread"] == pytest.approx(np.std([0.6, 0.9]))
    undefined = per_run(table([{"method": "fedavg", "seed": 1, "auc": (0.8, np.nan, 0.9)}]), "auc").iloc[0]
    assert (undefined["silo_worst"], undefined["silo_spread"]) == (0.9, 0)
    loss = table([{"method": "fedavg", "seed": 1, "auc": (0.8, 0.6, 0.9)}]).rename(columns={"auc": "loss"})
    assert per_run(loss, "loss").iloc[0]["silo_worst"] == 0.9


def test_differences_are_paired_by_seed() -> None:
    # Seeds differ by 1, the two sides by 0.1: pairing sees the 0.1 with certainty.
    seeds = pd.Series(np.arange(5.0), index=range(5))
    found = paired(seeds, seeds.iloc[::-1] + 0.1)
    assert (found.mean, found.certain) == (pytest.approx(0.1), True)
    assert paired(seeds, seeds.loc[[0, 1]]).seeds == 2


def test_methods_come_in_their_order_and_epsilons_in_theirs() -> None:
    runs = [
        {"method": m, "seed": s, "epsilon": e, "auc": (e / 10, 0, 0)}
        for m in ("b", "a")
        for e in (8.0, 0.5)
        for s in (1, 2)
    ]
    found = over_seeds(per_run(table(runs), "auc"), ["auc"])
    assert list(zip(found["label"], found["epsilon"], strict=True)) == [("b", 0.5), ("b", 8), ("a", 0.5), ("a", 8)]
    assert found["auc"].tolist() == pytest.approx([0.05, 0.8, 0.05, 0.8])
