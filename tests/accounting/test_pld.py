"""PLD answers: never below the truth, close above it, and numbers everywhere.

Truth is a closed form, or bracketed: below by merging outputs into bins whose loss ratio is on a grid (post-processing
can only lose), above by our own answer.
"""

import math

import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import norm

from accounting._accountant import epsilon
from accounting._gaussian import Gaussian, gaussian_pairs
from accounting._gaussian_pairs import SampledPair, SampledReplacePair
from accounting._pairs import DiscretePair, ResponsePair
from accounting._pld import LossDistribution
from accounting._rdp import ORDERS, delta_from_renyi, epsilon_from_renyi
from accounting._relations import Relation

REMOVE = Relation.ADD_OR_REMOVE_ONE


def sampled(q: float, sigma: float, steps: int) -> LossDistribution:
    return LossDistribution([(gaussian_pairs(q, sigma, REMOVE).remove, steps)])


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Balle, Wang 2018, Theorem 8, solved in 60 digits."""
    with mp.workdps(60):
        mean = mp.mpf(mu)

        def profile(epsilon: mp.mpf) -> mp.mpf:
            return mp.ncdf(mean / 2 - epsilon / mean) - mp.e**epsilon * mp.ncdf(-mean / 2 - epsilon / mean)

        if profile(mp.mpf(0)) <= delta:
            return 0.0
        low, high = mp.mpf(0), mp.mpf(1)
        while profile(high) > delta:
            high *= 2
        for _ in range(70):
            middle = (low + high) / 2
            low, high = (middle, high) if profile(middle) > delta else (low, middle)
        return float(high)


def within(ours: float, truth: float, relative: float = 6e-4) -> bool:
    return truth * (1 - 1e-10) <= ours <= truth * (1 + relative) + 1e-6


@pytest.mark.parametrize(
    ("sigma", "steps", "delta"),
    [
        (1.0, 1, 1e-5),
        (1.0, 1, 0.3),
        (1.0, 1, 0.5),
        (1000.0, 1, 1e-6),
        (100.0, 10_000, 1e-9),
        (30.0, 100_000, 1e-6),
        (0.05, 100, 1e-6),
        (0.05, 100_000, 1e-9),
        (1e4, 100_000, 1e-4),
        (1e4, 1, 1e-12),
        (0.3, 7, 1e-15),
    ],
)
def test_gaussian_steps_cost_their_closed_form(sigma: float, steps: int, delta: float) -> None:
    assert within(sampled(1.0, sigma, steps).epsilon(delta), gaussian_epsilon(math.sqrt(steps) / sigma, delta))


@pytest.mark.parametrize("delta", [1e-6, 1e-9, 1e-13, 1e-15, 1e-30])
def test_small_deltas_are_not_lost_in_rounding(delta: float) -> None:
    """Gaussian sigma = 100, 10,000 steps: a bare Fourier transform gives 7.438 at 1e-13, the truth is 7.560.

    A sampling rate of 1 is composed in closed form, so one just below is taken, whose price is the same to 1e-9.
    """
    ours = LossDistribution([(SampledPair(sigma=100.0, sampling_rate=1 - 1e-12), 10_000)]).epsilon(delta)
    assert within(ours, gaussian_epsilon(1.0, delta))


def test_randomised_response_costs_its_closed_form() -> None:
    """Kairouz, Oh, Viswanath 2015, Theorem 3.3: a Binomial number of truths."""
    epsilon, steps, delta = 0.1, 300, 1e-6
    p = 1 / (1 + math.exp(-epsilon))
    ours = LossDistribution([(DiscretePair((p, 1 - p), (1 - p, p)), steps)])
    with mp.workdps(40):
        laws = [(mp.binomial(steps, k) * mp.mpf(p) ** k * (1 - mp.mpf(p)) ** (steps - k)) for k in range(steps + 1)]
        losses = [(2 * k - steps) * mp.log(mp.mpf(p) / (1 - mp.mpf(p))) for k in range(steps + 1)]

        def profile(at: float) -> float:
            terms = (m * (1 - mp.e ** (at - loss)) for m, loss in zip(laws, losses, strict=True) if loss > at)
            return float(mp.fsum(terms))

        truth = brentq(lambda at: math.log(profile(at) / delta), 1, 15, xtol=1e-12)
        assert within(ours.epsilon(delta), truth)
        assert profile(9.0) <= ours.delta(9.0) <= profile(9.0) * 1.015


def merged_epsilon(q: float, sigma: float, steps: int, delta: float, interval: float) -> float:
    """A lower bound on epsilon: outputs merged into bins in which ln(P-mass / Q-mass) is a multiple of `interval`.

    Whoever sees only the bin sees less (data processing), and composition over the grid is then exact up to 1e-11,
    taken off delta. Mass in the last bin is given the next smaller multiple.
    """
    laws = (lambda x: ndtr(x) * (1 - q) + q * ndtr(x - 1 / sigma)), ndtr
    upper = (lambda x: ndtr(-x) * (1 - q) + q * ndtr(1 / sigma - x)), lambda x: ndtr(-x)

    def between(a: float, b: float) -> tuple[float, float]:
        tails = upper if a > 0 else laws
        return abs(tails[0](b) - tails[0](a)), abs(tails[1](b) - tails[1](a))

    def loss(x: float) -> float:
        return math.log1p(q * math.expm1((x - 0.5 / sigma) / sigma))

    def ratio(b: float) -> float:
        return math.log(np.divide(*between(start, b)))

    places, masses = [], []
    start, remainder = -9.0, between(-math.inf, -9.0)[0]
    while start < 9:
        index = math.floor(loss(start) / interval + 0.2) + 1
        shortest = longest = 1e-3
        while ratio(start + longest) < index * interval:
            longest *= 1.5
        while ratio(start + shortest) > index * interval:
            shortest /= 2
        end = brentq(lambda b: ratio(b) - index * interval, start + shortest, start + longest, xtol=1e-14)  # noqa: B023
        places.append(index)
        masses.append(between(start, end)[0])
        start = end
    masses[0] += remainder
    masses[-1] += upper[0](start)
    return composed_epsilon(places, masses, steps, delta + 1e-11, interval)


def composed_epsilon(places: list[int], masses: list[float], steps: int, delta: float, interval: float) -> float:
    """Plain composition over a window so wide that nothing wraps round."""
    law = np.bincount(np.array(places) - places[0], weights=masses)
    losses = interval * (places[0] + np.arange(law.size))
    mean = float(law @ losses)
    spread = math.sqrt(float(law @ (losses - mean) ** 2) * steps)
    size = 2 ** math.ceil(math.log2((40 * spread + 2 * np.ptp(losses)) / interval))
    composed = np.fft.irfft(np.fft.rfft(law, size) ** steps, size)
    offset = math.floor((steps * mean - 20 * spread) / interval)
    grid = interval * (offset + np.arange(size))
    composed = np.roll(composed, steps * places[0] - offset)

    def excess(epsilon: float) -> float:
        return float(composed @ np.maximum(-np.expm1(np.minimum(epsilon - grid, 0)), 0)) - delta

    return brentq(excess, 0, steps * mean + 15 * spread)


@pytest.mark.parametrize(
    ("q", "sigma", "steps", "delta", "interval"),
    [
        (0.001, 3.0, 20_000, 1e-6, 8e-6),
        (0.04, 1.5, 2_250, 1e-5, 4e-4),
        (0.01, 1.0, 500, 1e-5, 4e-4),
        (0.002, 0.6, 20_000, 1e-6, 4e-4),
        (0.5, 10.0, 20_000, 1e-6, 1.2e-3),
        (0.2, 0.8, 1_000, 1e-6, 1e-2),
    ],
)
def test_hard_cases_lie_within_a_tenth_of_a_percent_of_the_truth(
    q: float, sigma: float, steps: int, delta: float, interval: float
) -> None:
    lower, ours = merged_epsilon(q, sigma, steps, delta, interval), sampled(q, sigma, steps).epsilon(delta)
    assert lower <= ours <= lower * 1.001


def test_a_tiny_epsilon_is_tight() -> None:
    """q = .001, sigma = 3, 20,000 steps: dp-accounting gives .286 at an interval of 1e-3 and .1840 at 1e-5."""
    assert sampled(0.001, 3.0, 20_000).epsilon(1e-6) == pytest.approx(0.1840, abs=1.5e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("q", "sigma", "steps", "delta", "interval"),
    [
        (0.01, 0.3, 1000, 1e-6, 5e-4),
        (0.01, 0.1, 10, 1e-5, 1e-3),
        (0.01, 1.0, 1, 1e-5, 1e-4),
        (1e-4, 1.0, 100_000, 1e-6, 1e-5),
    ],
)
def test_dp_accounting_at_a_fine_interval_agrees(
    q: float, sigma: float, steps: int, delta: float, interval: float
) -> None:
    one = privacy_loss_distribution.from_gaussian_mechanism(
        sigma, sampling_prob=q, value_discretization_interval=interval, use_connect_dots=True
    )
    ours = LossDistribution([(SampledPair(sigma=sigma, sampling_rate=q), steps)]).epsilon(delta)
    assert ours == pytest.approx(one.self_compose(steps).get_epsilon_for_delta(delta), rel=1e-3, abs=1e-6)


LAWS = st.tuples(
    st.sampled_from([0.0, 1e-6, 1e-4, 0.01, 0.3, 0.999, 1.0]),
    st.sampled_from([0.0, 1e-3, 0.04, 0.2, 1.0, 20.0, 1e4]),
    st.sampled_from([0, 1, 2, 50, 3000, 100_000]),
)
DELTAS = st.sampled_from([0.0, 1e-15, 1e-9, 1e-6, 1e-3, 0.1, 0.9, 1.0])


@settings(max_examples=50, deadline=None, derandomize=True)
@given(law=LAWS, delta=DELTAS, relation=st.sampled_from(Relation), way=st.sampled_from([0, 1]))
def test_answers_are_numbers_at_every_edge(
    law: tuple[float, float, int], delta: float, relation: Relation, way: int
) -> None:
    q, sigma, steps = law
    pair = gaussian_pairs(q, sigma, relation)[way]
    losses = LossDistribution([(pair, steps)])
    epsilon = losses.epsilon(delta)
    assert epsilon >= 0
    if q == 0 or steps == 0 or delta == 1:
        assert epsilon == 0
    elif delta == 0:
        assert epsilon == losses.greatest_loss
    elif sigma == 0:
        revealed = -math.expm1(steps * math.log1p(-q)) if q < 1 else 1.0
        hidden = way == 1 and relation is not Relation.REPLACE_ONE
        assert (epsilon == math.inf) == (delta < revealed and not hidden)
    else:
        assert epsilon < math.inf
        assert 0 <= losses.delta(epsilon) <= max(1.2 * delta, 1e-200)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    q=st.floats(1e-4, 1),
    sigma=st.floats(0.3, 100),
    steps=st.integers(1, 20_000),
    delta=st.floats(1e-9, 1e-2),
    relation=st.sampled_from(Relation),
    way=st.sampled_from([0, 1]),
)
def test_pld_is_at_most_renyi(q: float, sigma: float, steps: int, delta: float, relation: Relation, way: int) -> None:
    pair = gaussian_pairs(q, sigma, relation)[way]
    losses, orders = LossDistribution([(pair, steps)]), ORDERS[1:-1:4]
    values = steps * pair.renyi(orders)
    bounds = values + np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)
    epsilon = losses.epsilon(delta)
    assert epsilon <= max(float(bounds.min()), 0) * 1.0005 + 1e-6
    assert losses.delta(epsilon * 1.1) <= delta_from_renyi(orders, values, epsilon * 1.1) * 1.01


@settings(max_examples=25, deadline=None, derandomize=True)
@given(q=st.floats(1e-3, 0.5), sigma=st.floats(0.5, 30), steps=st.integers(1, 5_000))
def test_epsilon_and_delta_invert_each_other(q: float, sigma: float, steps: int) -> None:
    losses = sampled(q, sigma, steps)
    epsilon = losses.epsilon(1e-5)
    assert losses.epsilon(min(losses.delta(epsilon), 1.0)) == pytest.approx(epsilon, rel=1e-3, abs=1e-6)
    assert losses.delta(epsilon + 0.1) <= losses.delta(epsilon) <= losses.delta(epsilon * 0.9)


def test_equal_pairs_compose_alike_however_they_are_listed() -> None:
    a, b = SampledPair(sigma=1.0, sampling_rate=0.01), SampledPair(sigma=2.0, sampling_rate=0.1)
    whole = LossDistribution([(a, 300), (b, 40)]).epsilon(1e-6)
    split = LossDistribution([(b, 15), (a, 100), (b, 25), (a, 200)]).epsilon(1e-6)
    assert split == pytest.approx(whole, rel=1e-9)


def test_many_distinct_pairs_cost_as_much_as_equal_ones_nearby() -> None:
    pairs = [(SampledPair(sigma=1.0 + 1e-7 * i, sampling_rate=0.01), 10) for i in range(30)]
    together = LossDistribution([(SampledPair(sigma=1.0, sampling_rate=0.01), 300)]).epsilon(1e-6)
    assert LossDistribution(pairs).epsilon(1e-6) == pytest.approx(together, rel=1e-5)


def test_gaussians_of_different_widths_compose_to_one() -> None:
    """Squared means over widths add up (Dong, Roth, Su 2022, Corollary 3.3)."""
    widths = [1.0, 3.0, 10.0]
    mu = math.sqrt(sum(1 / sigma**2 for sigma in widths))
    parts = [(SampledPair(sigma=sigma), 1) for sigma in widths]
    assert within(LossDistribution(parts).epsilon(1e-7), gaussian_epsilon(mu, 1e-7))


@pytest.mark.parametrize("rate", [1e-6, 1e-3, 0.05, 0.5, 0.9])
@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_power_against_a_gaussian_is_its_trade_off(mu: float, rate: float) -> None:
    """Dong, Roth, Su 2022, equation (6): 1 - G_mu(rate) = Phi(Phi^-1(rate) + mu)."""
    ours = LossDistribution([(SampledPair(sigma=10 / mu, sampling_rate=1 - 1e-12), 100)]).true_positive_rate(rate)
    truth = float(norm.cdf(norm.ppf(rate) + mu))
    assert truth * (1 - 1e-9) <= ours <= truth * 1.01


def test_power_ends_where_it_must() -> None:
    losses = sampled(0.1, 1.0, 10)
    assert losses.true_positive_rate(1.0) == 1
    assert losses.true_positive_rate(0.0) == 0
    revealed = LossDistribution([(gaussian_pairs(0.5, 0.0, REMOVE).remove, 1)])
    assert revealed.true_positive_rate(0.0) == pytest.approx(0.5)
    assert LossDistribution([]).true_positive_rate(0.2) == 0.2


def test_bounded_losses_have_an_epsilon_at_delta_zero() -> None:
    one = DiscretePair((math.e / (1 + math.e), 1 / (1 + math.e)), (1 / (1 + math.e), math.e / (1 + math.e)))
    assert LossDistribution([(one, 3)]).epsilon(0.0) == pytest.approx(3.0, abs=1e-14)
    assert LossDistribution([(one, 3)]).delta(3.1) == 0
    assert sampled(0.1, 1.0, 5).epsilon(0.0) == math.inf


def test_infinite_losses_compose_as_chances_do() -> None:
    pair = DiscretePair((0.99, 0.01), (1.0, 0.0))
    losses = LossDistribution([(pair, 20)])
    assert losses.infinite_mass == pytest.approx(1 - 0.99**20, rel=1e-12)
    assert losses.epsilon(0.18) == math.inf
    assert losses.epsilon(0.1822) < 0.01
    assert losses.delta(50.0) == pytest.approx(1 - 0.99**20, rel=1e-9)


def test_a_finer_grid_changes_nothing_but_the_last_digits() -> None:
    losses = sampled(0.02, 1.0, 1000)
    rough, usual, fine = (losses.epsilon(1e-6, accuracy=accuracy) for accuracy in (1e-2, 3e-4, 1e-5))
    assert fine <= usual * (1 + 1e-8) <= rough * (1 + 1e-8)
    assert rough <= fine * 1.02
    assert usual <= fine * 1.0006


def test_replacement_costs_less_than_two_independent_changes() -> None:
    """The pair of its own, not sensitivity 2C: 2.84 against 13.4 in the design's example of sampled replace-one."""
    q, sigma, steps, delta = 0.01, 1.0, 1000, 1e-5
    own = LossDistribution([(SampledReplacePair(sigma=sigma, sampling_rate=q), steps)]).epsilon(delta)
    doubled = LossDistribution([(SampledPair(sigma=sigma / 2, sampling_rate=q), steps)]).epsilon(delta)
    assert sampled(q, sigma, steps).epsilon(delta) < own < doubled / 3
    assert (
        epsilon_from_renyi(ORDERS, steps * SampledReplacePair(sigma=sigma, sampling_rate=q).renyi(ORDERS), delta) > own
    )


@pytest.mark.parametrize("rate", [1e-279, 1e-280, 1e-281, 1e-300, 5e-324])
def test_power_at_the_faintest_rates_is_not_below_the_truth(rate: float) -> None:
    """A Gaussian of mu = 63: 1 - G_mu(rate) is almost 1 even at rates near the least float."""
    mu = math.sqrt(10) / 0.05
    ours = LossDistribution([(SampledPair(sigma=0.05, sampling_rate=1 - 1e-12), 10)]).true_positive_rate(rate)
    with mp.workdps(40):
        quantile = mp.findroot(lambda x: mp.log(mp.erfc(-x / mp.sqrt(2)) / 2) - mp.log(mp.mpf(rate)), -37)
        truth = float(mp.ncdf(quantile + mu))
    assert truth * (1 - 1e-9) <= ours <= 1


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("sigma", "steps"), [(0.05, 1), (0.02, 3), (1e-3, 10)])
def test_plain_gaussians_cost_their_closed_form_however_little_the_noise(
    relation: Relation, sigma: float, steps: int
) -> None:
    price = epsilon([Gaussian(noise_multiplier=sigma, steps=steps)], relation=relation, delta=1e-5)
    shift = 2 if relation is Relation.REPLACE_ONE else 1
    truth = gaussian_epsilon(shift * math.sqrt(steps) / sigma, 1e-5)
    assert price.method == "pld"
    assert truth * (1 - 1e-12) <= price.epsilon <= truth * (1 + 1e-9)


@pytest.mark.parametrize("delta", [1e-10, 1e-13, 1e-50, 1e-200])
@pytest.mark.parametrize(("sigma", "steps"), [(100.0, 10_000), (1e4, 1), (1e8, 1), (0.3, 7)])
def test_plain_gaussians_cost_their_closed_form_however_small_the_delta(sigma: float, steps: int, delta: float) -> None:
    price = epsilon([Gaussian(noise_multiplier=sigma, steps=steps)], relation=Relation.ZERO_OUT, delta=delta)
    truth = gaussian_epsilon(math.sqrt(steps) / sigma, delta)
    assert truth <= price.epsilon <= truth * (1 + 1e-11) + 2e-12
    assert price.method == "pld"


@pytest.mark.parametrize("steps", [2, 3, 5, 8, 30, 300])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 3.0])
def test_few_steps_of_few_atoms_are_tight_also_at_their_atoms(epsilon: float, steps: int) -> None:
    """Kairouz, Oh, Viswanath 2015, Theorem 3.3: PureEpsilon(0.3) five times is .028222 at 0.9, where an atom lies."""
    losses, yes = LossDistribution([(ResponsePair(epsilon), steps)]), 1 / (1 + math.exp(-epsilon))
    places = [(2 * k - steps, math.comb(steps, k) * yes**k * (1 - yes) ** (steps - k)) for k in range(steps + 1)]
    for at in (0.02, 0.9, 1.0, 2.0, 2.5, 3.0, 0.6 * steps):
        truth = math.fsum(mass * -math.expm1((at - place) * epsilon) for place, mass in places if place > at)
        if truth > 1e-9:
            assert truth * (1 - 1e-9) <= losses.delta(at * epsilon) <= truth * 1.005
