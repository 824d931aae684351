"""One contract for every mechanism, whatever its law: what composing, ordering and weakening must do to its price."""

import json
import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mechanism_examples import ALL, EXAMPLES, NOT_MONOTONE, STRATEGIES, UNORDERED, WEAKER, has_pairs, supports

from accounting import (
    ApproximateEpsilon,
    Exponential,
    Gaussian,
    InvalidValue,
    Laplace,
    Mechanism,
    MultiRecordSampledGaussian,
    Pair,
    PureEpsilon,
    RandomisedResponse,
    Relation,
    SampledGaussian,
    Unsupported,
    mechanism_from_json,
    mechanisms,
)
from accounting._accountant import delta, epsilon

pytestmark = pytest.mark.filterwarnings("ignore::accounting._rdp.OrderGridWarning")
"""A bounded loss is best priced at an infinite order, beyond any grid; nothing here depends on how tight that is."""

RELATIONS = list(Relation)
DELTA = 1e-6
MANY = {"max_examples": 20, "deadline": None, "derandomize": True}

PRICED = [
    pytest.param(mechanism, relation, method, id=f"{mechanism.name}-{index}-{relation}-{method}")
    for index, mechanism in enumerate(ALL)
    for relation in RELATIONS
    for method in ("pld", "rdp")
    if (has_pairs if method == "pld" else supports)(mechanism, relation)
]
"""Every example under every relation and method that it claims."""


def price(releases: list[Mechanism], relation: Relation, method: str, target: float = DELTA) -> float:
    return epsilon(releases, relation=relation, delta=target, method=method).epsilon


def about(value: float) -> object:
    """Equal but for the PLD's own error of 0.1%."""
    return pytest.approx(value, rel=2e-3, abs=1e-6)


def test_every_mechanism_has_examples_and_a_strategy() -> None:
    assert set(mechanisms().values()) == set(EXAMPLES) == set(STRATEGIES)
    assert all(type(example) is kind for kind, examples in EXAMPLES.items() for example in examples)


def test_every_mechanism_is_priced_under_some_relation() -> None:
    for mechanism in ALL:
        assert any(supports(mechanism, relation) for relation in RELATIONS), mechanism


@pytest.mark.parametrize(("mechanism", "relation", "method"), PRICED)
def test_steps_are_a_list_is_a_list_of_steps(mechanism: Mechanism, relation: Relation, method: str) -> None:
    whole = price([mechanism.repeated(6)], relation, method)
    assert price([mechanism] * 6, relation, method) == about(whole)
    assert price([mechanism.repeated(2), mechanism.repeated(4)], relation, method) == about(whole)


@pytest.mark.parametrize(("mechanism", "relation", "method"), PRICED)
def test_no_steps_cost_nothing_and_more_steps_cost_no_less(
    mechanism: Mechanism, relation: Relation, method: str
) -> None:
    assert price([mechanism.repeated(0)], relation, method) == 0
    prices = [price([mechanism.repeated(steps)], relation, method) for steps in (1, 3, 10)]
    assert prices[0] <= prices[1] * 1.002 <= prices[2] * 1.004


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("method", ["pld", "rdp"])
def test_order_of_releases_does_not_matter(relation: Relation, method: str) -> None:
    claims = has_pairs if method == "pld" else supports
    releases = [m.repeated(2) for m in ALL if claims(m, relation) and price([m], relation, method) < math.inf]
    forwards, backwards = price(releases, relation, method), price(releases[::-1], relation, method)
    assert 0 < forwards < math.inf
    assert forwards == about(backwards)


@pytest.mark.parametrize(("mechanism", "relation", "method"), PRICED)
def test_less_noise_costs_no_less(mechanism: Mechanism, relation: Relation, method: str) -> None:
    before = price([mechanism.repeated(5)], relation, method)
    for field in fields(mechanism):
        if field.name in WEAKER and (type(mechanism), field.name) not in NOT_MONOTONE:
            weaker = replace(mechanism, **{field.name: WEAKER[field.name](getattr(mechanism, field.name))})
            assert before <= price([weaker.repeated(5)], relation, method) * 1.002 + 1e-9, field.name


def test_every_number_of_every_mechanism_is_ordered_or_explained() -> None:
    names = {field.name for kind in EXAMPLES for field in fields(kind)}
    assert names == set(WEAKER) | set(UNORDERED)


@pytest.mark.parametrize(("mechanism", "relation", "method"), [p for p in PRICED if p.values[2] == "pld"])
def test_pld_is_at_most_renyi(mechanism: Mechanism, relation: Relation, method: str) -> None:
    if isinstance(mechanism, Exponential):
        pytest.skip("its pair envelops more than its exact Renyi divergence does; both are upper bounds")
    for steps in (1, 20):
        ours, bound = (price([mechanism.repeated(steps)], relation, each) for each in (method, "rdp"))
        assert ours <= bound * 1.001 + 1e-9


@pytest.mark.parametrize("mechanism", ALL, ids=lambda m: m.name)
def test_zero_out_is_at_most_replace_one(mechanism: Mechanism) -> None:
    if not (supports(mechanism, Relation.ZERO_OUT) and supports(mechanism, Relation.REPLACE_ONE)):
        pytest.skip("not priced under both")
    if getattr(mechanism, "replace_sensitivity", None) is not None:
        pytest.skip("its query moves less under a replacement than under zeroing, as a count does")
    orders = np.array([1.5, 2.0, 8.0, 64.0])
    zeroed, replaced = (mechanism.renyi(r, orders) for r in (Relation.ZERO_OUT, Relation.REPLACE_ONE))
    assert np.all(np.maximum(*zeroed) <= np.maximum(*replaced) * (1 + 1e-9) + 1e-12)


@pytest.mark.parametrize("mechanism", ALL, ids=lambda m: m.name)
def test_json_gives_the_mechanism_back(mechanism: Mechanism) -> None:
    assert mechanism_from_json(json.loads(json.dumps(mechanism.to_json()))) == mechanism


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.name)
def test_unknown_fields_and_values_out_of_range_are_refused(kind: type[Mechanism]) -> None:
    values = EXAMPLES[kind][0].to_json()
    with pytest.raises(InvalidValue, match="nosie"):
        mechanism_from_json(values | {"nosie": 1})
    for field in values:
        if isinstance(values[field], int | float) and not isinstance(values[field], bool):
            for wrong in (-1, math.nan):
                with pytest.raises(InvalidValue, match=field):
                    mechanism_from_json(values | {field: wrong})


@pytest.mark.parametrize("mechanism", ALL, ids=lambda m: m.name)
def test_pair_masses_are_laws_and_agree_with_losses(mechanism: Mechanism) -> None:
    """Masses sum to 1, their ratio lies in the bin, and swapping P and Q mirrors the losses."""
    for relation in filter(lambda r: has_pairs(mechanism, r), RELATIONS):
        for pair in mechanism.pairs(relation):
            low, high = pair.loss_range(1e-15)
            edges = np.linspace(low - 0.011, high + 0.013, 501)
            masses = pair.masses(edges)
            assert math.fsum(masses.p) + masses.p_infinite == pytest.approx(1, abs=1e-12)
            assert math.fsum(masses.q) + masses.q_infinite == pytest.approx(1, abs=1e-12)
            inside = (masses.p[1:-1] > 1e-250) & (masses.q[1:-1] > 1e-250)
            losses = np.log(masses.p[1:-1][inside] / masses.q[1:-1][inside])
            assert np.all(losses >= edges[:-1][inside] - 1e-6)
            assert np.all(losses <= edges[1:][inside] + 1e-6)
            mirrored = pair.reversed().masses(-edges[::-1])
            np.testing.assert_allclose(mirrored.q[::-1], masses.p, rtol=1e-6, atol=1e-13)


def profiles(pair: Pair, epsilons: np.ndarray) -> np.ndarray:
    """Hockey-stick divergences at increasing epsilons, from masses."""
    masses = pair.masses(epsilons)
    above_p, above_q = (np.cumsum(side[::-1])[::-1][1:] for side in (masses.p, masses.q))
    return masses.p_infinite + np.maximum(above_p - np.exp(epsilons) * above_q, 0)


@pytest.mark.parametrize("mechanism", ALL, ids=lambda m: m.name)
def test_renyi_divergence_is_the_integral_of_the_profile(mechanism: Mechanism) -> None:
    """E_Q[r^a] - 1 = a (a-1) int_0^inf e^((a-1) x) delta(x) + e^(-a x) delta'(x) dx, with both directions' profiles."""
    nodes, weights = np.polynomial.legendre.leggauss(12)
    orders = np.array([1.5, 2.0, 3.0])
    for relation in filter(lambda r: has_pairs(mechanism, r), RELATIONS):
        for pair in mechanism.pairs(relation):
            if pair.infinite_mass > 0:
                assert np.all(np.isinf(pair.renyi(orders)))
                continue
            ends = np.linspace(0, min(60.0, 1.0 + max(map(abs, pair.loss_range(1e-30)))), 2000)
            half = np.diff(ends)[:, None] / 2
            x, width = (ends[:-1][:, None] + half * (1 + nodes)).ravel(), (half * weights).ravel()
            above, below = profiles(pair, x), profiles(pair.reversed(), x)
            for order in orders:
                moment = np.sum(width * (np.exp((order - 1) * x) * above + np.exp(-order * x) * below))
                expected = math.log1p(order * (order - 1) * moment) / (order - 1)
                assert pair.renyi(np.array([order]))[0] == pytest.approx(expected, rel=1e-3, abs=1e-12)


@pytest.mark.parametrize("kind", STRATEGIES, ids=lambda kind: kind.name)
@settings(**MANY)
@given(data=st.data())
def test_prices_are_numbers_and_never_negative(kind: type[Mechanism], data: st.DataObject) -> None:
    mechanism = data.draw(STRATEGIES[kind]).repeated(data.draw(st.sampled_from([0, 1, 2, 100, 100_000])))
    relation = data.draw(st.sampled_from(RELATIONS))
    target = data.draw(st.sampled_from([0.0, 1e-15, 1e-9, 1e-5, 0.5, 1.0]))
    at = data.draw(st.sampled_from([0.0, 1e-6, 1.0, 50.0]))
    if not supports(mechanism, relation):
        return
    spent = epsilon([mechanism], relation=relation, delta=target).epsilon
    assert spent >= 0
    assert 0 <= delta([mechanism], relation=relation, epsilon=at).delta <= 1
    if target == 1 or mechanism.steps == 0:
        assert spent == 0
    if target == 0 and has_pairs(mechanism, relation):
        greatest = max(pair.greatest_loss for pair in mechanism.pairs(relation))
        exact = mechanism.steps * greatest if mechanism.steps else 0.0
        assert spent == pytest.approx(exact, rel=1e-12)


@settings(**MANY)
@given(
    rate=st.sampled_from([0.0, 1e-6, 0.01, 0.5, 1.0]),
    steps=st.sampled_from([0, 1, 3, 1000]),
    records=st.integers(1, 4),
)
def test_without_noise_epsilon_is_infinite_exactly_below_the_chance_of_being_sampled(
    rate: float, steps: int, records: int
) -> None:
    seen = 1 - (1 - rate) ** (steps * records)
    bare = MultiRecordSampledGaussian(sampling_rate=rate, noise_multiplier=0, records=records, steps=steps)
    if seen > 0:
        assert price([bare], Relation.ADD_OR_REMOVE_ONE, "auto", seen * 0.99) == math.inf
    assert price([bare], Relation.ADD_OR_REMOVE_ONE, "auto", min(1.0, seen * 1.01 + 1e-9)) < math.inf


def test_unknown_prices_are_refused_with_a_reason() -> None:
    cases = [
        (RandomisedResponse(noise=0.5), Relation.ADD_OR_REMOVE_ONE, "zero-out"),
        (
            MultiRecordSampledGaussian(sampling_rate=0.1, noise_multiplier=1, records=2),
            Relation.REPLACE_ONE,
            "records=2",
        ),
        *((m, Relation.ADD_OR_REMOVE_ONE, "public shard size") for m in ALL if "batch" in m.name),
    ]
    for mechanism, relation, reason in cases:
        with pytest.raises(Unsupported, match=reason):
            epsilon([mechanism], relation=relation, delta=DELTA)


def test_individuals_are_covered_only_where_the_price_says_so() -> None:
    record = SampledGaussian(sampling_rate=0.1, noise_multiplier=1)
    assert not record.covers(2)
    assert replace(record, by_individual=True).covers(50)
    capped = MultiRecordSampledGaussian(sampling_rate=0.1, noise_multiplier=1, records=3)
    assert capped.covers(3)
    assert not capped.covers(4)


@pytest.mark.parametrize(("claim", "steps"), [(1e-17, 10**15), (1e-12, 10**12), (0.1, 10), (800.0, 3), (1e5, 2)])
def test_a_pure_claim_is_its_own_greatest_loss_however_small_or_large(claim: float, steps: int) -> None:
    release = PureEpsilon(epsilon=claim, steps=steps)
    assert epsilon([release], relation=Relation.ADD_OR_REMOVE_ONE, delta=0.0).epsilon == claim * steps
    assert epsilon([release], relation=Relation.ADD_OR_REMOVE_ONE, delta=1e-5).epsilon <= claim * steps


@pytest.mark.parametrize("revealed", [1e-5, 7e-6, 3e-6, 1e-6, 2e-7, 1e-8])
def test_at_the_mass_of_infinite_loss_epsilon_is_the_greatest_finite_loss(revealed: float) -> None:
    def at(target: float, claim: float, *others: Mechanism) -> float:
        releases = [ApproximateEpsilon(epsilon=claim, delta=revealed), *others]
        return epsilon(releases, relation=Relation.ADD_OR_REMOVE_ONE, delta=target).epsilon

    assert at(revealed, 1.0) == 1.0
    assert at(revealed, 1.9, Laplace(scale=10.0)) == 2.0
    assert at(revealed, 0.1, Gaussian(noise_multiplier=1.0)) == math.inf
    for factor in (1 + 1e-15, 1 + 1e-14, 1 + 1e-12, 1 + 1e-9, 1 + 1e-3):
        assert at(revealed * factor, 1.9, Laplace(scale=10.0)) <= 2.0
        assert at(revealed * factor, 0.1, Gaussian(noise_multiplier=1.0)) > 4
    assert at(revealed * (1 - 1e-14), 1.9, Laplace(scale=10.0)) == math.inf


@pytest.mark.parametrize("claim", [0.0, 1e-12, 1e-7, 1e-5])
def test_a_faint_claim_with_a_delta_has_a_finite_price(claim: float) -> None:
    release = ApproximateEpsilon(epsilon=claim, delta=1e-7, steps=10)
    price = epsilon([release], relation=Relation.ADD_OR_REMOVE_ONE, delta=1e-5)
    assert price.epsilon <= 10 * claim
