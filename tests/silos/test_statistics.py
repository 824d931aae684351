"""Statistics: what one record moves a sum by never passes the declared bound, and the noise is what was charged."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import BudgetExhausted, InvalidValue, Ledger, LedgerConflict, Relation
from silos import (
    Declined,
    Errors,
    Loss,
    Moments,
    OpacusEngine,
    Outcomes,
    Question,
    Shard,
    Silo,
    Size,
    Statistic,
    Streams,
    Weights,
    hash_weights,
)
from silos._statistics import add_noise, statistic_from_config

ADD_OR_REMOVE, ZERO_OUT, REPLACE = Relation.ADD_OR_REMOVE_ONE, Relation.ZERO_OUT, Relation.REPLACE_ONE

STATISTICS: dict[str, Statistic] = {
    "size": Size(epsilon=0.5, relation=ADD_OR_REMOVE),
    "moments": Moments(epsilon=0.5, relation=ADD_OR_REMOVE, inputs=5),
    "outcomes": Outcomes(epsilon=0.5, relation=ADD_OR_REMOVE, classes=2),
    "classes": Outcomes(epsilon=0.5, relation=ADD_OR_REMOVE, classes=3),
    "loss": Loss(epsilon=0.5, relation=ADD_OR_REMOVE),
    "errors": Errors(epsilon=0.5, relation=ADD_OR_REMOVE),
}


def a_shard(records: int, seed: int, classes: int = 2) -> Shard:
    generator = np.random.default_rng(seed)
    features = generator.choice([-1e30, -1.0, -0.3, 0.0, 0.9, 1.0, 7.0, np.nan, np.inf], (records, 5))
    return Shard(
        name="north",
        features=features.astype(np.float32),
        labels=generator.integers(classes, size=records),
        individuals=np.arange(records).astype(np.str_),
    )


def some_outputs(records: int, seed: int, outputs: int) -> np.ndarray:
    return np.random.default_rng(seed).choice([-1e9, -3.0, 0.0, 0.2, 40.0, np.nan, np.inf], (records, outputs))


@pytest.mark.parametrize("name", STATISTICS)
@given(seed=st.integers(0, 2**32), records=st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_one_record_moves_a_sum_by_at_most_its_bound(name: str, seed: int, records: int) -> None:
    statistic = STATISTICS[name]
    classes = 3 if name == "classes" else 2
    shard, outputs = a_shard(records, seed, classes), some_outputs(records, seed + 1, 3 if name == "classes" else 1)
    if name == "errors":
        shard = replace(shard, labels=np.linspace(-3, 3, records, dtype=np.float32))
    fewer = replace(shard, features=shard.features[:-1], labels=shard.labels[:-1], individuals=shard.individuals[:-1])
    with np.errstate(over="ignore", invalid="ignore"):
        moved = np.abs(statistic.sums(shard, outputs) - statistic.sums(fewer, outputs[:-1])).sum()
    assert moved <= statistic.bound * (1 + 1e-12) <= statistic.moved * (1 + 1e-12)


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("records", [1, 3])
def test_the_charge_is_the_noise_over_the_sensitivity(name: str, relation: Relation, records: int) -> None:
    # Noise of scale b on a sum that moves by D in L1 is (D / b)-DP; what is charged must say no less.
    statistic = replace(STATISTICS[name], relation=relation, records=records)
    moved = statistic.bound * records * (2 if relation is REPLACE else 1)
    pairs = statistic.mechanism().pairs(relation)
    limits = {direction: getattr(pairs, direction).greatest_loss for direction in ("remove", "add")}
    if name == "size" and relation is REPLACE:
        assert set(limits.values()) == {0.0}
        return
    assert all(limit >= moved / statistic.scale * (1 - 1e-12) for limit in limits.values())
    assert all(limit == pytest.approx(statistic.epsilon) for limit in limits.values())
    assert statistic.mechanism().covers(records)
    assert not statistic.mechanism().covers(records + 1)


@pytest.mark.parametrize("name", STATISTICS)
def test_a_statistic_reads_back_from_its_message(name: str) -> None:
    assert statistic_from_config(dict(STATISTICS[name].to_config())) == STATISTICS[name]


def test_integers_get_two_sided_geometric_noise() -> None:
    # Mass tanh(1/2b) e^(-|x|/b) at x (Ghosh, Roughgarden, Sundararajan 2012).
    drawn = add_noise(np.zeros(40_000, dtype=np.int64), 2.0, np.random.default_rng(5))
    for x in range(-3, 4):
        expected = math.tanh(0.25) * math.exp(-abs(x) / 2)
        assert abs(np.mean(drawn == x) - expected) < 5 * math.sqrt(expected / len(drawn))


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(
    "kind", [Outcomes(epsilon=1.0, relation=REPLACE, classes=2), Loss(epsilon=1.0, relation=REPLACE)]
)
def test_no_price_is_so_small_that_its_noise_is_no_longer_drawn(kind: Statistic, relation: Relation) -> None:
    for epsilon in (1e-13, 1e-19, 1e-300):
        with pytest.raises(InvalidValue, match="epsilon"):
            replace(kind, epsilon=epsilon, relation=relation)
    least = replace(kind, epsilon=1e-11, relation=relation)
    drawn = add_noise(np.zeros(50, np.int64), least.scale, np.random.default_rng(1))
    assert np.count_nonzero(drawn) == 50


@pytest.mark.parametrize("greatest", [0.0, -1.0, math.inf, math.nan])
def test_a_loss_is_clipped_to_a_positive_number(greatest: float) -> None:
    with pytest.raises(InvalidValue, match="greatest"):
        Loss(epsilon=1.0, relation=ADD_OR_REMOVE, greatest=greatest)


def test_real_numbers_get_laplace_noise() -> None:
    drawn = add_noise(np.zeros(40_000), 2.0, np.random.default_rng(5))
    assert np.mean(np.abs(drawn)) == pytest.approx(2.0, rel=0.03)
    assert np.mean(np.abs(drawn) > 6.0) == pytest.approx(math.exp(-3), rel=0.1)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.db", create=True) as opened:
        yield opened


@pytest.fixture
def silo(ledger: Ledger, engine: OpacusEngine, streams: Streams) -> Silo:
    held_out = replace(a_shard(20, 3), name="north/held-out")
    return Silo(
        run="run",
        shard=a_shard(40, 2),
        engine=engine,
        ledger=ledger,
        streams=streams,
        held_out=held_out,
        predict=lambda _, features: np.nan_to_num(features[:, :1].astype(np.float64), posinf=3, neginf=-3),
    )


def test_a_statistic_is_charged_before_and_released_after_it_is_computed(
    silo: Silo, ledger: Ledger, weights: Weights
) -> None:
    released = silo.answer(Question(round=0, statistic=STATISTICS["size"]))
    charge = silo.charge("size", 0, 0)
    assert charge is not None
    assert charge.mechanism == STATISTICS["size"].mechanism()
    assert charge.output == hash_weights(released)
    silo.answer(Question(round=4, statistic=STATISTICS["outcomes"], weights=weights))
    assert ledger.releases("north") == [STATISTICS["size"].mechanism()]
    assert ledger.releases("north/held-out") == [STATISTICS["outcomes"].mechanism()]


def test_the_same_question_is_the_same_release_and_another_one_is_refused(silo: Silo, ledger: Ledger) -> None:
    first = silo.answer(Question(round=0, statistic=STATISTICS["size"]))
    again = silo.answer(Question(round=0, statistic=STATISTICS["size"]))
    assert np.array_equal(first["size"], again["size"])
    with pytest.raises(LedgerConflict):
        silo.answer(Question(round=0, statistic=Size(epsilon=5.0, relation=ADD_OR_REMOVE)))
    assert len(ledger.releases("north")) == 1


def test_noise_differs_between_rounds_and_attempts(silo: Silo) -> None:
    asked = [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0), (4, 0)]
    counts = {
        int(silo.answer(Question(round=round, attempt=attempt, statistic=STATISTICS["size"]))["size"][0])
        for round, attempt in asked
    }
    assert len(counts) > 1


def test_a_budget_refuses_before_anything_is_computed(silo: Silo, ledger: Ledger) -> None:
    def admit(*_: object) -> None:
        raise BudgetExhausted("spent", requested=1.0, remaining=0.0)

    with pytest.raises(BudgetExhausted):
        replace(silo, admit=admit).answer(Question(round=0, statistic=STATISTICS["size"]))
    assert ledger.rows("north") == []


def test_a_silo_without_held_out_records_declines_to_score(silo: Silo, ledger: Ledger, weights: Weights) -> None:
    with pytest.raises(Declined, match="held-out"):
        replace(silo, held_out=None).answer(Question(round=1, statistic=STATISTICS["loss"], weights=weights))
    assert ledger.silos() == []
