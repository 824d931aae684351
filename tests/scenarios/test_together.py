"""What many runs cost together: never less than any composition that an individual may have met."""

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from accounting import InvalidValue, Ledger, Mechanism, Relation, SampledGaussian, epsilon
from scenarios import Scenario, load, prepare, run
from scenarios._errors import RunError
from scenarios.reports._together import RunLedger, _deal, price_together, read_run_ledger

FACTS = {"membership": "disjoint", "participation": "fixed", "relation": "zero-out", "unit": "record"}


def law(noise: float, steps: int = 10) -> SampledGaussian:
    return SampledGaussian(sampling_rate=0.1, noise_multiplier=noise, steps=steps)


def made(chains: dict[str, Sequence[SampledGaussian]], **changes: object) -> RunLedger:
    """A run over two silos whose individuals are the same in every run, unless told otherwise."""
    base = RunLedger(
        data="csv:people.csv",
        deal="by hospital",
        split="1/0.2",
        delta=1e-4,
        facts=tuple(sorted(FACTS.items())),
        releases={chain: list(laws) for chain, laws in chains.items()},
    )
    return replace(base, **changes)


def cost(*laws: SampledGaussian) -> float:
    return epsilon(list(laws), relation=Relation.ZERO_OUT, delta=1e-4).epsilon


def test_runs_over_one_silo_compose() -> None:
    runs = [made({"a": [law(2)], "b": [law(5)]}), made({"a": [law(3)], "b": [law(5)]})]
    found = price_together(runs)
    assert found.epsilon == pytest.approx(cost(law(2), law(3)), rel=1e-9)
    assert found.worst == ("a",)
    assert price_together(runs[:1]).epsilon == pytest.approx(cost(law(2)), rel=1e-9)


def test_the_worst_silo_is_found_over_all_runs_and_not_in_each() -> None:
    # Each silo has one dear run: the max of each run, added, would charge two dear runs to one individual.
    runs = [made({"a": [law(1)], "b": [law(9)]}), made({"a": [law(9)], "b": [law(1)]})]
    assert price_together(runs).epsilon == pytest.approx(cost(law(1), law(9)), rel=1e-9)


def test_an_individual_dealt_anew_may_meet_the_worst_silo_of_every_deal() -> None:
    runs = [
        made({"a": [law(1)], "b": [law(9)]}, deal="seed 1", split="1/0.2"),
        made({"a": [law(9)], "b": [law(1)]}, deal="seed 2", split="2/0.2"),
    ]
    found = price_together(runs)
    assert found.epsilon == pytest.approx(cost(law(1), law(1)), rel=1e-6)
    assert set(found.worst) == {"a of deal 1", "b of deal 2"}


def test_who_is_held_out_in_one_run_and_trained_on_in_another_pays_for_both() -> None:
    chains = {"a": [law(2)], "a/held-out": [law(1)]}
    same_split = [made(chains), made(chains)]
    assert price_together(same_split).epsilon == pytest.approx(cost(law(1), law(1)), rel=1e-9)
    two_splits = [made(chains), made(chains, split="2/0.2")]
    assert price_together(two_splits).epsilon == pytest.approx(cost(law(1), law(1), law(2), law(2)), rel=1e-9)


def test_the_widest_membership_and_the_least_delta_hold_for_all() -> None:
    wide = tuple(sorted((FACTS | {"membership": "unknown"}).items()))
    runs = [made({"a": [law(2)], "b": [law(2)]}), made({"a": [law(2)], "b": [law(2)]}, facts=wide, delta=1e-6)]
    found = price_together(runs)
    expected = epsilon([law(2)] * 4, relation=Relation.ZERO_OUT, delta=1e-6).epsilon
    assert found.epsilon == pytest.approx(expected, rel=1e-9)
    assert found.delta == 1e-6


def test_runs_under_different_relations_have_no_common_price() -> None:
    other = tuple(sorted((FACTS | {"relation": "replace-one"}).items()))
    with pytest.raises(InvalidValue, match="replace-one"):
        price_together([made({"a": [law(2)]}), made({"a": [law(2)]}, facts=other)])


def test_many_laws_are_bounded_from_above() -> None:
    laws = [law(2 + number / 100, steps=2) for number in range(30)]
    found = price_together([made({"a": laws[:15]}), made({"a": laws[15:]})])
    assert found.method == "rdp"
    assert found.epsilon >= cost(*laws[:20])


def test_a_ledger_without_charges_costs_nothing_and_one_without_terms_is_refused(tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text(load("cps-regions").to_toml(), "utf-8")
    with pytest.raises(RunError, match="its ledger is gone"):
        read_run_ledger(tmp_path)
    with Ledger.open(tmp_path / "ledger.db", create=True) as ledger:
        ledger.fix("a", "shard", "frozen")
    assert read_run_ledger(tmp_path) is None
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.charge(silo="a", run="r", round=1, attempt=0, item="update", mechanism=law(2), request="asked")
    with pytest.raises(RunError, match="no relation, no membership, no unit, no participation"):
        read_run_ledger(tmp_path)


def test_a_run_of_this_program_is_read_as_its_ledger_holds_it(scenario_file: Path, tmp_path: Path) -> None:
    results = [run(load(scenario_file, seed=seed), out=tmp_path / str(seed)) for seed in (3, 4)]
    first, second = (read_run_ledger(result.folder) for result in results)
    assert first is not None
    assert second is not None
    assert (first.data, first.deal, first.delta) == (second.data, second.deal, 1e-3)
    assert first.split != second.split
    assert price_together([first]).epsilon == pytest.approx(results[0].guarantee.epsilon, rel=1e-9)
    paid: dict[str, list[Mechanism]] = {}
    for result in results:
        with Ledger.open(result.folder / "ledger.db", read_only=True) as ledger:
            for silo in ledger.silos():
                paid.setdefault(silo, []).extend(ledger.releases(silo))
    by_silo = [epsilon(each, relation=Relation.ZERO_OUT, delta=1e-3).epsilon for each in paid.values()]
    assert price_together([first, second]).epsilon == pytest.approx(max(by_silo), rel=1e-9)


def deal_of(scenario: Scenario) -> str:
    return _deal(tomllib.loads(scenario.to_toml()))


def silos_of(scenario: Scenario) -> dict[str, list[str]]:
    """The silos that each individual trains in."""
    found: dict[str, list[str]] = {}
    for name, shard in prepare(scenario).shards.items():
        for one in np.unique(shard.individuals).tolist():
            found.setdefault(one, []).append(name)
    return found


@pytest.mark.parametrize(
    ("shared", "change"),
    [
        (["data.beyond_cap=drop", "silos={ column = 'sex' }"], ["seed"]),
        (["data.beyond_cap=drop", "silos={ column = 'sex' }"], ["silos.membership=unknown", "data.beyond_cap=refuse"]),
        (["silos={ partition = 'iid', count = 3 }"], ["seed"]),
        (["silos={ partition = 'dirichlet', count = 3, alpha = 1.0 }"], ["data.label.column=late"]),
        (["silos={ partition = 'dirichlet', count = 3, alpha = 0.2 }"], ["silos.min_records=60"]),
    ],
)
def test_runs_share_a_deal_only_where_every_individual_is_in_the_same_silos(
    scenario_file: Path, shared: list[str], change: list[str]
) -> None:
    table = pd.read_csv(scenario_file.parent / "people.csv")
    table["late"] = table["sick"].to_numpy()[::-1]
    other = table.assign(sex=table["sex"].map({"f": "m", "m": "f"}))
    pd.concat([table, other]).to_csv(scenario_file.parent / "people.csv", index=False)
    shared = ["evaluation.test_fraction=0.0", "data.records_per_individual=2", *shared]
    seed = 2 if change == ["seed"] else 1
    first = load(scenario_file, shared, seed=1)
    second = load(scenario_file, [*shared, *(one for one in change if one != "seed")], seed=seed)
    assert silos_of(first) != silos_of(second)
    assert deal_of(first) != deal_of(second)
    again = load(scenario_file, [*shared, "privacy.epsilon=0.5", "training.rounds=9"], seed=1)
    assert silos_of(first) == silos_of(again)
    assert deal_of(first) == deal_of(again)


def test_a_cap_that_drops_by_the_seed_may_leave_an_individual_in_the_dear_silo_of_each_run(
    scenario_file: Path, tmp_path: Path
) -> None:
    """Over two seeds an individual of two hospitals may have met each one's dear run, whatever each silo paid."""
    table = pd.read_csv(scenario_file.parent / "people.csv")
    pd.concat([table.assign(hospital=name) for name in ("north", "south")]).to_csv(
        scenario_file.parent / "people.csv", index=False
    )
    shared = ["data.beyond_cap=drop", "training.rounds=1", "evaluation.test_fraction=0.0"]
    results = [
        run(
            load(scenario_file, [*shared, f"privacy.silos={{ {dear} = {{ epsilon = 6.0 }} }}"], seed=seed),
            out=tmp_path / dear,
        )
        for seed, dear in ((1, "north"), (2, "south"))
    ]
    runs = [found for result in results if (found := read_run_ledger(result.folder)) is not None]
    paid: dict[str, list[Mechanism]] = {}
    for result in results:
        with Ledger.open(result.folder / "ledger.db", read_only=True) as ledger:
            for name, shard in prepare(result.scenario).shards.items():
                for one in np.unique(shard.individuals).tolist():
                    paid.setdefault(one, []).extend(ledger.releases(name))
    distinct = {repr(each): each for each in paid.values()}.values()
    worst = max(epsilon(each, relation=Relation.ZERO_OUT, delta=1e-3).epsilon for each in distinct)
    assert worst > 6.5
    assert price_together(runs).epsilon == pytest.approx(worst, rel=1e-6)
