"""Dominating pairs: their masses, divergences and profiles against extended precision, by independent routes."""

import math
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from accounting._errors import InvalidValue
from accounting._gaussian import gaussian_pairs
from accounting._gaussian_pairs import MixturePair, SampledPair, SampledReplacePair
from accounting._multi_record import MultiRecordSampledGaussian
from accounting._pairs import IDENTICAL, DiscretePair, Pair, ResponsePair
from accounting._relations import Relation

BINOMIAL = MixturePair(sigma=1.3, means=(0.0, 1.0, 2.0, 3.0), p=(0.729, 0.243, 0.027, 0.001), q=(1.0, 0.0, 0.0, 0.0))
PAIRS: list[Pair] = [
    SampledPair(sigma=0.8),
    SampledPair(sigma=1.0, sampling_rate=0.01),
    SampledPair(sigma=0.5, sampling_rate=0.3).reversed(),
    SampledPair(sigma=20.0, sampling_rate=1e-4),
    SampledReplacePair(sigma=1.1, sampling_rate=0.05),
    SampledReplacePair(sigma=0.4, sampling_rate=0.9),
    BINOMIAL,
    BINOMIAL.reversed(),
    DiscretePair((0.7, 0.2, 0.1), (0.1, 0.2, 0.7)),
    DiscretePair((0.9, 0.1, 0.0), (0.9, 0.0, 0.1)),
    ResponsePair(0.5),
    ResponsePair(2.0, revealed=0.01),
    ResponsePair(800.0),
]


def normal(x: mp.mpf, mean: float, sigma: float) -> mp.mpf:
    return mp.npdf(x, mean, sigma)


def divergence(p: mp.mpf, q: mp.mpf, order: float, sigma: float, reach: float) -> float:
    """Renyi divergence of two densities by adaptive quadrature at 20 digits."""
    with mp.workdps(20):
        order = mp.mpf(order)
        points = [mp.mpf(x) for x in np.arange(-reach, reach + 2 * sigma, 2 * sigma)]
        # D = ln(1 + E_Q[r^a - 1]) keeps digits where the divergence is small.
        excess = mp.quad(lambda x: q(x) * ((p(x) / q(x)) ** order - 1), points)
        return float(mp.log1p(excess) / (order - 1))


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_masses_sum_to_one_and_losses_lie_in_their_bins(pair: Pair) -> None:
    low, high = pair.loss_range(1e-12)
    edges = np.linspace(low - 0.1, high + 0.1, 301)
    masses = pair.masses(edges)
    assert masses.p.sum() + masses.p_infinite == pytest.approx(1, abs=1e-13)
    assert masses.q.sum() + masses.q_infinite == pytest.approx(1, abs=1e-13)
    p, q = masses.p[1:-1], masses.q[1:-1]
    seen = (p > 1e-250) & (q > 1e-250)
    losses = np.log(p[seen]) - np.log(q[seen])
    assert np.all(losses >= edges[:-1][seen] - 1e-8)
    assert np.all(losses <= edges[1:][seen] + 1e-8)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_reversing_swaps_the_laws_and_negates_the_loss(pair: Pair) -> None:
    assert pair.reversed().reversed() == pair
    edges = np.linspace(-2, 2, 57) + 1e-3
    forward, backward = pair.masses(edges), pair.reversed().masses(-edges[::-1])
    assert backward.p == pytest.approx(forward.q[::-1], rel=1e-9, abs=1e-15)
    assert backward.q == pytest.approx(forward.p[::-1], rel=1e-9, abs=1e-15)
    assert backward.p_infinite == forward.q_infinite


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize("tail", [1e-3, 1e-12, 1e-40])
def test_loss_range_leaves_out_at_most_the_tail(pair: Pair, tail: float) -> None:
    low, high = pair.loss_range(tail)
    masses = pair.masses(np.array([math.nextafter(low, -math.inf), high]))
    assert masses.p[0] <= tail * (1 + 1e-6)
    assert masses.p[-1] <= tail * (1 + 1e-6)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_greatest_loss_is_the_supremum(pair: Pair) -> None:
    greatest = pair.greatest_loss
    if math.isfinite(greatest):
        assert pair.masses(np.array([greatest * (1 + 1e-12)])).p[-1] == 0
        assert pair.masses(np.array([greatest - 0.01])).p[-1] > 0
    else:
        masses = pair.masses(np.array([1e-4]))
        assert masses.p[-1] + masses.p_infinite > 0


def test_tail_masses_keep_full_relative_precision() -> None:
    """Far out in either tail, where differences of distribution functions near 1 would have no digits left."""
    sigma, q = 0.7, 0.02
    pair = SampledPair(sigma=sigma, sampling_rate=q)
    edges = np.array([8.0, 8.01, 20.0, 20.5])
    masses = pair.masses(edges)
    with mp.workdps(60):
        x = [mp.mpf(sigma) ** 2 * mp.log((mp.e ** mp.mpf(e) - 1 + mp.mpf(q)) / mp.mpf(q)) + 0.5 for e in edges]
        upper = lambda a, m: mp.erfc((a - m) / sigma / mp.sqrt(2)) / 2  # noqa: E731
        at_zero = [upper(a, 0) - upper(b, 0) for a, b in pairwise(x)]
        at_one = [upper(a, 1) - upper(b, 1) for a, b in pairwise(x)]
        p = [(1 - mp.mpf(q)) * a + mp.mpf(q) * b for a, b in zip(at_zero, at_one, strict=True)]
    assert masses.q[1:-1] == pytest.approx([float(a) for a in at_zero], rel=1e-11)
    assert masses.p[1:-1] == pytest.approx([float(a) for a in p], rel=1e-11)


@pytest.mark.parametrize("sigma", [1e-3, 0.06, 0.3, 1.0, 5.0, 1e4])
@pytest.mark.parametrize("q", [1e-6, 0.01, 0.9])
def test_sampled_divergence_is_the_binomial_sum_at_whole_orders(q: float, sigma: float) -> None:
    """Mironov, Talwar, Zhang 2019, section 3.3, in 50 digits."""
    orders = np.array([2.0, 3.0, 32.0, 257.0, 1024.0])
    ours = SampledPair(sigma=sigma, sampling_rate=q).renyi(orders)
    with mp.workdps(50):
        for order, value in zip(orders, ours, strict=True):
            a, rate, variance = int(order), mp.mpf(q), mp.mpf(sigma) ** 2
            excess = mp.fsum(
                mp.binomial(a, k) * (1 - rate) ** (a - k) * rate**k * mp.expm1(k * (k - 1) / (2 * variance))
                for k in range(2, a + 1)
            )
            assert value == pytest.approx(float(mp.log1p(excess) / (a - 1)), rel=1e-11)


@pytest.mark.parametrize(
    ("q", "sigma", "order"), [(0.04, 1.5, 3.9), (0.1, 1.0, 1.2), (0.001, 0.7, 9.5), (0.5, 0.4, 1.01), (0.9, 3.0, 12.5)]
)
def test_divergences_of_any_order_agree_with_quadrature(q: float, sigma: float, order: float) -> None:
    """Also where dp-accounting's series is infinite (order 1.2, q = .1, sigma = 1)."""
    reach = 2 * order + 9 * sigma
    below = lambda x: normal(x, 0, sigma)  # noqa: E731
    up = lambda x: (1 - q) * normal(x, 0, sigma) + q * normal(x, 1, sigma)  # noqa: E731
    down = lambda x: (1 - q) * normal(x, 0, sigma) + q * normal(x, -1, sigma)  # noqa: E731
    pair, orders = SampledPair(sigma=sigma, sampling_rate=q), np.array([order])
    assert pair.renyi(orders)[0] == pytest.approx(divergence(up, below, order, sigma, reach), rel=1e-9)
    assert pair.reversed().renyi(orders)[0] == pytest.approx(divergence(below, up, order, sigma, reach), rel=1e-9)
    replaced = SampledReplacePair(sigma=sigma, sampling_rate=q)
    assert replaced.renyi(orders)[0] == pytest.approx(divergence(up, down, order, sigma, reach), rel=1e-9)


def test_unsampled_replacement_is_a_shift_of_two() -> None:
    orders = np.array([1.5, 4.0, 100.0])
    for pair in gaussian_pairs(1.0, 3.0, Relation.REPLACE_ONE):
        assert pair.renyi(orders) == pytest.approx(orders * 4 / (2 * 9.0), rel=1e-12)
    near_one = SampledReplacePair(sigma=3.0, sampling_rate=1 - 1e-12)
    assert near_one.renyi(orders[:2]) == pytest.approx(orders[:2] * 4 / (2 * 9.0), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 1.0, 3.0])
@pytest.mark.parametrize("other", [0, -1])
def test_profiles_agree_with_quadrature(epsilon: float, other: int) -> None:
    q, sigma = 0.1, 0.9
    kind = SampledReplacePair if other else SampledPair

    def positive_part(x: float) -> float:
        zero, one, third = (norm.pdf(x, mean, sigma) for mean in (0, 1, other))
        return max((1 - q) * zero + q * one - math.exp(epsilon) * ((1 - q) * zero + q * third), 0)

    delta = quad(positive_part, -8, 9, epsabs=1e-13, limit=500)[0]
    assert kind(sigma=sigma, sampling_rate=q).profile(epsilon) == pytest.approx(delta, rel=1e-6, abs=1e-12)


def test_a_mixture_of_two_is_the_sampled_pair() -> None:
    orders, edges = np.array([1.01, 2.0, 7.5, 300.0]), np.linspace(-0.2, 12, 400)
    for q in (1e-4, 0.3):
        closed = SampledPair(sigma=0.9, sampling_rate=q)
        general = MixturePair(sigma=0.9, means=(0.0, 1.0), p=(1 - q, q), q=(1.0, 0.0))
        assert general.renyi(orders) == pytest.approx(closed.renyi(orders), rel=1e-9)
        assert general.masses(edges).p == pytest.approx(closed.masses(edges).p, rel=1e-6, abs=1e-15)
        replaced = SampledReplacePair(sigma=0.9, sampling_rate=q)
        general = MixturePair(sigma=0.9, means=(-1.0, 0.0, 1.0), p=(0.0, 1 - q, q), q=(q, 1 - q, 0.0))
        assert general.renyi(orders) == pytest.approx(replaced.renyi(orders), rel=1e-9)
        assert general.masses(edges).q == pytest.approx(replaced.masses(edges).q, rel=1e-6, abs=1e-15)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    q=st.floats(1e-6, 1),
    sigma=st.floats(1e-3, 1e4),
    tilt=st.floats(1e-3, 1e3),
    relation=st.sampled_from(Relation),
)
def test_divergences_are_numbers_that_grow_with_the_order(
    q: float, sigma: float, tilt: float, relation: Relation
) -> None:
    orders = 1 + np.array([tilt, 1.5 * tilt])
    for pair in gaussian_pairs(q, sigma, relation):
        lower, higher = pair.renyi(orders)
        assert 0 <= lower <= higher * (1 + 1e-9) < math.inf


@settings(max_examples=100, deadline=None, derandomize=True)
@given(q=st.floats(1e-6, 1), sigma=st.floats(0.05, 1e3), epsilon=st.floats(0, 20))
def test_zero_out_costs_at_most_what_replacement_does(q: float, sigma: float, epsilon: float) -> None:
    out = max(pair.profile(epsilon) for pair in gaussian_pairs(q, sigma, Relation.ZERO_OUT))
    replaced = max(pair.profile(epsilon) for pair in gaussian_pairs(q, sigma, Relation.REPLACE_ONE))
    assert out <= replaced * (1 + 1e-9) + 1e-15


def test_without_noise_what_is_sampled_is_revealed() -> None:
    pairs = gaussian_pairs(0.3, 0.0, Relation.ADD_OR_REMOVE_ONE)
    assert pairs.remove.infinite_mass == pytest.approx(0.3)
    assert pairs.add.infinite_mass == 0
    assert pairs.add.greatest_loss == pytest.approx(-math.log(0.7))
    replaced = gaussian_pairs(0.3, 0.0, Relation.REPLACE_ONE)
    assert replaced.remove.profile(0.0) == replaced.add.profile(0.0) == pytest.approx(0.3)


def test_without_sampling_nothing_is_released() -> None:
    for relation in Relation:
        assert set(gaussian_pairs(0.0, 1.0, relation)) == {IDENTICAL}
    assert IDENTICAL.greatest_loss == 0
    assert IDENTICAL.renyi(np.array([2.0])) == 0


@pytest.mark.parametrize(
    "bad",
    [
        lambda: DiscretePair((0.5, 0.4), (0.5, 0.5)),
        lambda: DiscretePair((1.5, -0.5), (0.5, 0.5)),
        lambda: DiscretePair((1.0,), (0.5, 0.5)),
        lambda: MixturePair(sigma=1.0, means=(1.0, 0.0), p=(0.5, 0.5), q=(1.0, 0.0)),
        lambda: MixturePair(sigma=1.0, means=(0.0, 1.0), p=(1.0, 0.0), q=(0.5, 0.5)),
        lambda: MixturePair(sigma=1.0, means=(0.0, 1.0), p=(0.5, 0.6), q=(1.0, 0.0)),
        lambda: SampledPair(sigma=0.0),
        lambda: SampledPair(sigma=1.0, sampling_rate=0.0),
    ],
)
def test_pairs_that_are_none_are_refused(bad: object) -> None:
    assert callable(bad)
    with pytest.raises(InvalidValue):
        bad()


@pytest.mark.parametrize("epsilon", [1e-4, 0.3, 5.0, 29.0, 31.0, 600.0])
def test_randomised_response_is_its_two_atoms(epsilon: float) -> None:
    pair, tilts = ResponsePair(epsilon), np.array([1e-4, 0.5, 3.0, 200.0])
    with mp.workdps(80):
        yes = 1 / (1 + mp.e ** -mp.mpf(epsilon))
        truth = [
            mp.log(yes * mp.e ** (t * mp.mpf(epsilon)) + (1 - yes) * mp.e ** (-t * mp.mpf(epsilon))) for t in tilts
        ]
    assert pair.cumulants(tilts) == pytest.approx([float(value) for value in truth], rel=1e-10)


@pytest.mark.parametrize(
    ("records", "rate", "sigma"), [(3, 0.01, 0.1), (10, 0.1, 0.1), (100, 0.3, 0.2), (50, 0.02, 0.1)]
)
def test_a_mixture_with_little_noise_puts_losses_in_their_bins(records: int, rate: float, sigma: float) -> None:
    """Where the loss is a stair of slopes, every output is found, not only those near which it is straight."""
    pair = MultiRecordSampledGaussian(sampling_rate=rate, noise_multiplier=sigma, records=records).pairs(
        Relation.ADD_OR_REMOVE_ONE
    )
    edges = np.linspace(1e-3, min(pair.remove.loss_range(1e-12)[1], 600.0), 501)
    masses = pair.remove.masses(edges)
    p, q = masses.p[1:-1], masses.q[1:-1]
    seen = (p > 1e-250) & (q > 1e-250)
    losses = np.log(p[seen]) - np.log(q[seen])
    assert seen.sum() > 10
    assert np.all(losses >= edges[:-1][seen] - 1e-8)
    assert np.all(losses <= edges[1:][seen] + 1e-8)
