"""The comparison methods, each against its theorem written out again or against dp-accounting."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from accounting import (
    AtMost,
    Directions,
    Disjoint,
    Federation,
    Gaussian,
    Mechanism,
    PureEpsilon,
    Relation,
    Release,
    Rung,
    SampledGaussian,
    ZeroConcentrated,
)
from accounting._classical import advanced, basic, optimal
from accounting._envelope import worst_curve
from accounting._pairs import DiscretePair
from accounting._parts import Parts, directed_parts

ADD_OR_REMOVE = Relation.ADD_OR_REMOVE_ONE
DELTA = 1e-5
ROUNDS = 20


def sampled(steps: int) -> SampledGaussian:
    return SampledGaussian(sampling_rate=0.02, noise_multiplier=1.0, steps=steps)


def alternating() -> Federation:
    """Two silos with 50 and 5 steps in turn, in opposite phase: cases 149 and 150."""
    steps = {"a": (50, 5), "b": (5, 50)}
    silos = {
        silo: [Release(mechanism=sampled(turns[number % 2]), round=number) for number in range(ROUNDS)]
        for silo, turns in steps.items()
    }
    return Federation(silos, Disjoint(), ADD_OR_REMOVE)


@pytest.fixture(scope="module")
def rungs() -> dict[str, Rung]:
    return {rung.method: rung for rung in alternating().ladder(DELTA)}


def dp_accounting_epsilon(steps: int, delta: float) -> float:
    one = pld.from_gaussian_mechanism(1.0, sampling_prob=0.02, value_discretization_interval=1e-3)
    return one.self_compose(steps).get_epsilon_for_delta(delta)


def test_max_of_sums_and_sum_of_maxima_have_the_known_values(rungs: dict[str, Rung]) -> None:
    """Cases 149 and 150 by dp-accounting: 550 steps against 1,000."""
    assert rungs["parallel"].epsilon == pytest.approx(2.9020424, abs=0.005)
    assert rungs["rounds-composed"].epsilon == pytest.approx(3.8994987, abs=0.005)


def test_one_ledger_for_everything_has_all_steps_of_all_silos(rungs: dict[str, Rung]) -> None:
    assert rungs["sequential"].epsilon == pytest.approx(dp_accounting_epsilon(1100, DELTA), rel=2e-3)


def test_basic_methods_add_what_dp_accounting_says_of_one_round(rungs: dict[str, Rung]) -> None:
    worst = ROUNDS * dp_accounting_epsilon(50, DELTA / ROUNDS)
    assert rungs["rounds-basic"].epsilon == pytest.approx(worst, rel=2e-3)
    cells = 2 * ROUNDS
    everything = ROUNDS * (dp_accounting_epsilon(50, DELTA / cells) + dp_accounting_epsilon(5, DELTA / cells))
    assert rungs["sequential-basic"].epsilon == pytest.approx(everything, rel=2e-3)


def test_the_split_of_delta_is_stated_and_is_the_one_used(rungs: dict[str, Rung]) -> None:
    assert "all of delta" in rungs["parallel"].split
    assert rungs["rounds-basic"].split == "delta / 20 on each of 20 rounds"
    assert rungs["sequential-basic"].split == "delta / 40 on each of 40 releases"
    assert rungs["rounds-advanced"].split == rungs["rounds-optimal"].split
    assert "half of delta" in rungs["rounds-optimal"].split
    each = dp_accounting_epsilon(50, DELTA / 2 / ROUNDS)
    assert rungs["rounds-advanced"].epsilon == pytest.approx(
        each * math.sqrt(2 * ROUNDS * math.log(2 / DELTA)) + ROUNDS * each * math.expm1(each), rel=5e-3
    )


def test_rungs_are_sorted_and_none_is_below_the_tight_one(rungs: dict[str, Rung]) -> None:
    prices = [rung.epsilon for rung in alternating().ladder(DELTA)]
    assert prices == sorted(prices)
    assert rungs["parallel"].epsilon == prices[0]
    assert len(prices) == 8


def test_without_rounds_only_whole_silos_are_compared() -> None:
    silos: dict[str, list[Mechanism | Release]] = {"a": [Release(mechanism=sampled(50), round=1)], "b": [sampled(5)]}
    methods = {rung.method for rung in Federation(silos, Disjoint(), ADD_OR_REMOVE).ladder(DELTA)}
    assert methods == {"parallel", "parallel-rdp", "sequential"}


def test_unequal_rounds_leave_optimal_composition_out() -> None:
    silos = {"a": [Release(mechanism=sampled(50), round=1), Release(mechanism=sampled(5), round=2)]}
    methods = {rung.method for rung in Federation(silos, Disjoint(), ADD_OR_REMOVE).ladder(DELTA)}
    assert "rounds-optimal" not in methods
    assert "rounds-advanced" in methods


def test_mechanisms_without_a_pair_still_have_a_ladder() -> None:
    silos = {name: [Release(mechanism=ZeroConcentrated(rho=0.1), round=number) for number in range(3)] for name in "ab"}
    methods = [rung.method for rung in Federation(silos, Disjoint(), ADD_OR_REMOVE).ladder(DELTA)]
    assert "rounds-composed" not in methods
    assert {"parallel", "sequential", "rounds-basic"} <= set(methods)


def test_under_overlap_every_rung_is_at_least_the_tight_one() -> None:
    laws = [[sampled(50), sampled(5)], [sampled(5), sampled(50)], [Gaussian(noise_multiplier=4.0)] * 2]
    silos = {
        f"s{place}": [Release(mechanism=law, round=number) for number, law in enumerate(each)]
        for place, each in enumerate(laws)
    }
    rungs = Federation(silos, AtMost(2), ADD_OR_REMOVE).ladder(DELTA)
    tight = next(rung.epsilon for rung in rungs if rung.method == "parallel")
    assert all(rung.epsilon >= tight * (1 - 1e-3) for rung in rungs)


def test_without_delta_a_gaussian_has_no_price_by_any_method() -> None:
    assert {rung.epsilon for rung in alternating().ladder(0.0)} == {math.inf}


@given(st.lists(st.floats(0, 3), min_size=1, max_size=30), st.floats(1e-12, 0.1))
def test_advanced_composition_is_its_formula(epsilons: Sequence[float], slack: float) -> None:
    """Theorem III.3 for equal epsilons; unequal ones are at most as bad as the largest."""
    largest, count = max(epsilons), len(epsilons)
    formula = math.sqrt(2 * count * math.log(1 / slack)) * largest + count * largest * (math.exp(largest) - 1)
    assert advanced([largest] * count, slack) == pytest.approx(formula)
    assert advanced(epsilons, slack) <= formula * (1 + 1e-12)
    assert basic(epsilons) <= basic([largest] * count) * (1 + 1e-12)


@settings(max_examples=40)
@given(st.integers(1, 25), st.floats(0.05, 2), st.floats(0, 1e-4))
def test_optimal_composition_meets_every_corner_of_its_theorem(steps: int, epsilon: float, leak: float) -> None:
    """Theorem 3.3: ((k - 2i) eps, 1 - (1 - delta)^k (1 - delta_i)), here in exact fractions of e^eps."""
    power = Fraction(math.exp(epsilon))
    for i in range(steps // 2 + 1):
        total = sum(
            math.comb(steps, place) * (power ** (steps - place) - power ** (steps - 2 * i + place))
            for place in range(i)
        )
        lost = float(Fraction(total) / (1 + power) ** steps)
        delta = 1 - (1 - leak) ** steps * (1 - lost)
        found = optimal(epsilon, leak, steps, delta * (1 + 1e-9) + 1e-14)
        assert found <= (steps - 2 * i) * epsilon + 1e-9
        if delta > 1e-8:
            assert optimal(epsilon, leak, steps, delta * (1 - 1e-6)) >= (steps - 2 * i) * epsilon - 1e-9


def test_optimal_composition_is_at_most_basic_and_advanced() -> None:
    for steps, epsilon in ((1, 0.5), (10, 0.1), (200, 0.05)):
        found = optimal(epsilon, 0.0, steps, 1e-6)
        assert found <= basic([epsilon] * steps)
        assert found <= advanced([epsilon] * steps, 1e-6)


def gaussian_curve(mu: float) -> Callable[[float], float]:
    return lambda epsilon: float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def response_curve(epsilon: float) -> Callable[[float], float]:
    yes = 1 / (1 + math.exp(-epsilon))
    return lambda at: max(1 - math.exp(at), yes - math.exp(at) * (1 - yes), 0.0)


def removed(mechanism: Mechanism) -> Parts:
    parts: Directions[Parts] = directed_parts([mechanism], ADD_OR_REMOVE)
    return parts.remove


def test_a_worst_curve_lies_on_the_curves_it_is_made_of() -> None:
    """A Gaussian and randomised response cross twice; both have a closed form, at negative epsilon as well."""
    candidates = [removed(Gaussian(noise_multiplier=1.2)), removed(PureEpsilon(epsilon=1.0))]
    ((pair, count),) = worst_curve(candidates)
    assert count == 1
    curves = gaussian_curve(1 / 1.2), response_curve(1.0)
    for epsilon in np.linspace(-4, 4, 81):
        largest = max(curve(float(epsilon)) for curve in curves)
        assert largest - 1e-10 <= pair.profile(float(epsilon)) <= largest + 1e-5


def test_a_worst_curve_is_the_candidate_that_contains_the_others() -> None:
    short, long = removed(sampled(5)), removed(sampled(50))
    assert worst_curve([short, long]) == long
    assert worst_curve([long]) == long


def test_a_worst_curve_is_a_pair_of_laws() -> None:
    ((pair, _),) = worst_curve([removed(sampled(50)), removed(Gaussian(noise_multiplier=3.0, steps=2))])
    assert isinstance(pair, DiscretePair)
    assert math.fsum(pair.p) == pytest.approx(1.0)
    assert math.fsum(pair.q) == pytest.approx(1.0)
    assert pair.infinite_mass < 1e-10
