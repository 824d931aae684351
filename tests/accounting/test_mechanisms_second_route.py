"""Each mechanism's price against a second route that shares no code with it: another library, a closed form, or an
integral over outputs instead of losses."""

import math
from collections.abc import Callable, Sequence

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import PLDAccountant, common
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import binom, dlaplace, norm

from accounting import (
    ApproximateEpsilon,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    FixedBatchGaussian,
    Gaussian,
    Laplace,
    Mechanism,
    MultiRecordSampledGaussian,
    NonPrivate,
    PureEpsilon,
    RandomisedResponse,
    Relation,
    RepeatAndSelect,
    SampledGaussian,
    SampledLaplace,
    ShuffledGaussian,
    TruncatedSampledGaussian,
    ZeroConcentrated,
)
from accounting._accountant import delta, epsilon
from accounting._rdp import ORDERS

ADD, ZERO, REPLACE = Relation.ADD_OR_REMOVE_ONE, Relation.ZERO_OUT, Relation.REPLACE_ONE
TARGET = 1e-5
STEPS = 12
ORDER_GRID = np.array([1.25, 2.0, 4.5, 16.0, 64.0])


def price(mechanism: Mechanism, relation: Relation) -> float:
    return epsilon([mechanism.repeated(STEPS)], relation=relation, delta=TARGET).epsilon


def library_price(event: dp_accounting.DpEvent, relation: NeighboringRelation) -> float:
    accountant = PLDAccountant(relation, value_discretization_interval=4e-4)
    return accountant.compose(dp_accounting.SelfComposedDpEvent(event, STEPS)).get_epsilon(TARGET)


ADD_OR_REMOVE, REPLACED = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE


def sampled(rate: float, event: dp_accounting.DpEvent) -> dp_accounting.DpEvent:
    return dp_accounting.PoissonSampledDpEvent(rate, event)


@pytest.mark.parametrize(
    ("mechanism", "relation", "event", "library_relation"),
    [
        (Gaussian(noise_multiplier=5), ADD, dp_accounting.GaussianDpEvent(5), ADD_OR_REMOVE),
        (Gaussian(noise_multiplier=5), REPLACE, dp_accounting.GaussianDpEvent(2.5), ADD_OR_REMOVE),
        (
            SampledGaussian(sampling_rate=0.1, noise_multiplier=1.1),
            ADD,
            sampled(0.1, dp_accounting.GaussianDpEvent(1.1)),
            ADD_OR_REMOVE,
        ),
        (
            SampledGaussian(sampling_rate=0.1, noise_multiplier=1.1),
            REPLACE,
            sampled(0.1, dp_accounting.GaussianDpEvent(1.1)),
            REPLACED,
        ),
        (Laplace(scale=6), ADD, dp_accounting.LaplaceDpEvent(6), ADD_OR_REMOVE),
        (Laplace(scale=6), REPLACE, dp_accounting.LaplaceDpEvent(3), ADD_OR_REMOVE),
        (
            SampledLaplace(sampling_rate=0.2, scale=1.5),
            ADD,
            sampled(0.2, dp_accounting.LaplaceDpEvent(1.5)),
            ADD_OR_REMOVE,
        ),
        (
            DiscreteLaplace(scale=8, sensitivity=3),
            ADD,
            dp_accounting.dp_event.DiscreteLaplaceDpEvent(1 / 8, 3),
            ADD_OR_REMOVE,
        ),
        (
            DiscreteLaplace(scale=8, replace_sensitivity=1),
            REPLACE,
            dp_accounting.dp_event.DiscreteLaplaceDpEvent(1 / 8, 1),
            ADD_OR_REMOVE,
        ),
        (ShuffledGaussian(noise_multiplier=8), ADD, dp_accounting.GaussianDpEvent(8 / math.sqrt(5)), ADD_OR_REMOVE),
        (ShuffledGaussian(noise_multiplier=8), REPLACE, dp_accounting.GaussianDpEvent(4), ADD_OR_REMOVE),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_pld_is_that_of_another_library(
    mechanism: Mechanism, relation: Relation, event: dp_accounting.DpEvent, library_relation: NeighboringRelation
) -> None:
    assert price(mechanism, relation) == pytest.approx(library_price(event, library_relation), rel=2e-3)


def test_discrete_gaussian_is_that_of_another_library() -> None:
    theirs = pld.from_discrete_gaussian_mechanism(4.0, sensitivity=2, value_discretization_interval=1e-4)
    expected = theirs.self_compose(STEPS).get_epsilon_for_delta(TARGET)
    assert price(DiscreteGaussian(scale=4, sensitivity=2), ADD) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("claim", [PureEpsilon(epsilon=0.2), ApproximateEpsilon(epsilon=0.2, delta=1e-7)])
def test_claim_is_its_worst_mechanism(claim: PureEpsilon | ApproximateEpsilon) -> None:
    parameters = common.DifferentialPrivacyParameters(0.2, getattr(claim, "delta", 0.0))
    theirs = pld.from_privacy_parameters(parameters, value_discretization_interval=1e-4)
    expected = theirs.self_compose(STEPS).get_epsilon_for_delta(TARGET)
    assert price(claim, ADD) == pytest.approx(expected, rel=2e-3)


def test_group_of_two_is_bounded_by_the_claim_of_two_steps() -> None:
    """A replacement is a removal and an addition: 2 epsilon, (1 + e^epsilon) delta, and 4 rho."""
    assert price(PureEpsilon(epsilon=0.2), REPLACE) == price(PureEpsilon(epsilon=0.4), ADD)
    pair = ApproximateEpsilon(epsilon=0.5, delta=1e-6).pairs(REPLACE).remove
    assert (pair.greatest_loss, pair.infinite_mass) == (math.inf, pytest.approx(1e-6 * (1 + math.exp(0.5))))
    assert np.all(ZeroConcentrated(rho=0.1).renyi(REPLACE, ORDER_GRID).add == 0.4 * ORDER_GRID)
    assert np.all(
        Exponential(epsilon=0.2).renyi(REPLACE, ORDER_GRID).add == Exponential(epsilon=0.4).renyi(ADD, ORDER_GRID).add
    )


def test_zero_concentration_is_that_of_another_library() -> None:
    theirs = RdpAccountant(ORDER_GRID).compose(dp_accounting.ZCDpEvent(0.1, 0.02)).rdp
    np.testing.assert_allclose(ZeroConcentrated(rho=0.1, xi=0.02).renyi(ADD, ORDER_GRID).remove, theirs)


@pytest.mark.parametrize("relation", [ZERO, REPLACE])
@pytest.mark.parametrize(("noise", "categories"), [(0.8, 2), (0.9, 7), (0.05, 3)])
def test_randomised_response_is_enumerated(relation: Relation, noise: float, categories: int) -> None:
    """Every sequence of answers of 6 repetitions, one by one, for one unit's own category and the other law."""
    own = np.full(categories, noise / categories)
    own[0] += 1 - noise
    other = np.roll(own, 1) if relation is REPLACE else np.full(categories, 1 / categories)
    ours = RandomisedResponse(noise=noise, categories=categories, steps=6)
    p, q = (np.array([1.0]), np.array([1.0]))
    for _ in range(6):
        p, q = np.outer(p, own).ravel(), np.outer(q, other).ravel()
    for at in (0.0, 0.3, 1.5):
        expected = max(np.sum(np.maximum(a - math.exp(at) * b, 0)) for a, b in ((p, q), (q, p)))
        assert expected - 1e-12 <= delta([ours], relation=relation, epsilon=at).delta <= 1.02 * expected + 1e-9


def test_discrete_laplace_profile_is_summed_over_integers() -> None:
    x = np.arange(-400, 401)
    p, q = dlaplace.pmf(x, 0.3), dlaplace.pmf(x - 3, 0.3)
    pair = DiscreteLaplace(scale=1 / 0.3, sensitivity=3).pairs(ADD).remove
    for at in (0.0, 0.2, 0.5, 0.89):
        assert pair.profile(at) == pytest.approx(np.sum(np.maximum(p - math.exp(at) * q, 0)), rel=1e-9)


@pytest.mark.parametrize("scale", [0.4, 1.0, 7.5])
def test_discrete_gaussian_divergence_is_summed_over_integers(scale: float) -> None:
    x = np.arange(-600, 601)
    log_weight = -(x**2) / (2 * scale**2)
    log_p = log_weight - np.logaddexp.reduce(log_weight)
    log_q = -((x + 2) ** 2) / (2 * scale**2) - np.logaddexp.reduce(log_weight)
    pair = DiscreteGaussian(scale=scale, sensitivity=2).pairs(ADD).remove
    for order in (1.3, 2.0, 7.7):
        expected = np.logaddexp.reduce(order * log_p + (1 - order) * log_q) / (order - 1)
        assert pair.renyi(np.array([order]))[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("ratio", [1e-4, 0.3, 2.0, 20.0])
def test_laplace_divergence_is_the_closed_form(ratio: float) -> None:
    """Mironov 2017, Proposition 6, through dp-accounting; its cancellation costs digits at small ratios."""
    theirs = RdpAccountant(ORDER_GRID).compose(dp_accounting.LaplaceDpEvent(1 / ratio)).rdp
    ours = Laplace(scale=1 / ratio).pairs(ADD).remove.renyi(ORDER_GRID)
    np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-14)


def test_laplace_at_no_delta_is_its_epsilon() -> None:
    assert epsilon([Laplace(scale=10, steps=7)], relation=ADD, delta=0).epsilon == pytest.approx(0.7, rel=1e-12)
    sampled_loss = math.log(1 + 0.2 * math.expm1(2))
    answer = epsilon([SampledLaplace(sampling_rate=0.2, scale=0.5, steps=3)], relation=ADD, delta=0)
    assert answer.epsilon == pytest.approx(3 * sampled_loss, rel=1e-12)


@pytest.mark.parametrize("width", [1e-3, 0.5, 3.0])
def test_exponential_mechanism_is_the_worst_range(width: float) -> None:
    """Dong, Durfee, Rogers 2020: two outcomes with losses t and t - width; the worst t, found numerically."""

    def laws(t: float) -> tuple[np.ndarray, np.ndarray]:
        q = np.array([(math.exp(-t) - math.exp(-width)) / -math.expm1(-width), 0.0])
        q[1] = 1 - q[0]
        return q * np.exp([t, t - width]), q

    def worst(answer: Callable[[np.ndarray, np.ndarray], float]) -> float:
        found = minimize_scalar(lambda t: -answer(*laws(t)), bounds=(1e-12, width - 1e-12), method="bounded")
        return -found.fun

    mechanism = Exponential(epsilon=width)
    for order in (1.5, 3.0, 40.0):
        expected = worst(lambda p, q, a=order: float(np.log(np.sum(p**a * q ** (1 - a))) / (a - 1)))
        assert mechanism.renyi(ADD, np.array([order])).remove[0] == pytest.approx(expected, rel=1e-5)
    for at in (0.0, 0.3 * width, 0.9 * width):
        expected = worst(lambda p, q, x=at: float(np.sum(np.maximum(p - math.exp(x) * q, 0))))
        assert mechanism.pairs(ADD).remove.profile(at) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("law", "shape"), [("poisson", math.inf), ("geometric", 1.0), ("logarithmic", 0.0), (0.5, 0.5), (4.0, 4.0)]
)
@pytest.mark.parametrize("mean", [1.0, 3.0, 200.0])
def test_repeat_and_select_is_that_of_another_library(law: str | float, shape: float, mean: float) -> None:
    theirs = RdpAccountant(ORDERS)
    theirs.compose(dp_accounting.dp_event.RepeatAndSelectDpEvent(dp_accounting.GaussianDpEvent(6.0), mean, shape))
    ours = RepeatAndSelect(run=(Gaussian(noise_multiplier=6.0),), mean_runs=mean, runs=law).renyi(ADD, ORDERS).remove
    # Below the least value ours takes the bound of a larger order, and theirs one that vanishes with the divergence.
    beyond = slice(int(np.argmin(theirs.rdp)), None)
    np.testing.assert_allclose(ours[beyond], theirs.rdp[beyond], rtol=1e-5)


def hockey_stick(p: np.ndarray, q: np.ndarray, at: float, cell: float) -> float:
    return float(np.sum(np.maximum(p - math.exp(at) * q, 0)) * cell)


EPSILONS = (0.0, 0.5, 2.0)


def full_batch_laws(
    points: Sequence[np.ndarray], rate: float, sigma: float, x: Sequence[float], y: Sequence[float], z: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """A place in a full batch that holds x (or its substitute z) with probability `rate`, else y."""

    def density(centre: Sequence[float]) -> np.ndarray:
        axes = zip(points, centre, strict=True)
        return math.prod((norm.pdf(point, at, sigma) for point, at in axes), start=np.array(1.0))

    return (1 - rate) * density(y) + rate * density(x), (1 - rate) * density(y) + rate * density(z)


@pytest.mark.parametrize(("rate", "sigma"), [(0.5, 0.6), (0.05, 1.0), (0.9, 2.0)])
def test_fixed_batches_are_attained_by_the_worst_gradients_on_a_line(rate: float, sigma: float) -> None:
    x = np.linspace(-12 * sigma - 2, 12 * sigma + 2, 16_001)
    cell = float(x[1] - x[0])
    mechanism = FixedBatchGaussian(batch_size=round(rate * 20), shard_size=20, noise_multiplier=sigma)
    for relation, substitutes in ((REPLACE, (1.0, -1.0, 0.3)), (ZERO, (0.0,))):
        pairs = mechanism.pairs(relation)
        for at in EPSILONS:
            there, back = [], []
            for own in (-1.0, 0.4, 1.0):
                for other in (-1.0, -0.5, 0.0, 1.0):
                    for substitute in substitutes:
                        p, q = full_batch_laws([x], rate, sigma, [own], [other], [substitute])
                        there.append(hockey_stick(p, q, at, cell))
                        back.append(hockey_stick(q, p, at, cell))
            assert pairs.remove.profile(at) == pytest.approx(max(there), rel=1e-5, abs=1e-7)
            assert pairs.add.profile(at) == pytest.approx(max(back), rel=1e-5, abs=1e-7)


def test_fixed_batches_dominate_gradients_in_the_plane() -> None:
    """What the lemma about collinear worst cases says, on random gradients of two dimensions."""
    rate, sigma = 0.3, 0.8
    axis = np.linspace(-6.5, 6.5, 261)
    points, cell = np.meshgrid(axis, axis), float(axis[1] - axis[0]) ** 2
    mechanism = FixedBatchGaussian(batch_size=3, shard_size=10, noise_multiplier=sigma)
    angles = np.random.default_rng(5).uniform(0, 2 * math.pi, (8, 3))
    for own, other, substitute in np.stack([np.cos(angles), np.sin(angles)], axis=-1):
        for relation, instead in ((REPLACE, substitute), (ZERO, np.zeros(2))):
            p, q = full_batch_laws(points, rate, sigma, own, other, instead)
            pairs = mechanism.pairs(relation)
            for at in EPSILONS:
                assert hockey_stick(p, q, at, cell) <= pairs.remove.profile(at) + 3e-5
                assert hockey_stick(q, p, at, cell) <= pairs.add.profile(at) + 3e-5


@pytest.mark.parametrize(("batch", "sigma"), [(3, 0.8), (1, 3.0)])
def test_fixed_batch_divergence_is_its_integral_in_extended_precision(batch: int, sigma: float) -> None:
    """E_Q[r^a - 1 - a (r - 1)] over outputs, the positive losses of removal and the mirrored ones of addition."""
    rate = mpmath.mpf(batch) / 10
    pair = FixedBatchGaussian(batch_size=batch, shard_size=10, noise_multiplier=sigma).pairs(ZERO).remove

    def half(u: int, v: int, order: float, swapped: bool) -> mpmath.mpf:
        def integrand(x: mpmath.mpf) -> mpmath.mpf:
            p, q = ((1 - rate) * mpmath.npdf(x, 0, sigma) + rate * mpmath.npdf(x, mean, sigma) for mean in (u, v))
            p, q = (q, p) if swapped else (p, q)
            return q * ((p / q) ** order - 1 - order * (p / q - 1))

        start, peaks = mpmath.mpf(u + v) / 2, (0, u, v, order * u - (order - 1) * v, order * u)
        spots = {peak + k * mpmath.mpf(sigma) for peak in peaks for k in range(-12, 13, 4)}
        return mpmath.quad(integrand, [start, *sorted(spot for spot in spots if spot > start)])

    with mpmath.workdps(20):
        for order in (1.25, 7.0):
            total = half(2, 1, order, swapped=False) + half(1, 0, order, swapped=True)
            expected = float(mpmath.log1p(total) / (order - 1))
            assert pair.renyi(np.array([order]))[0] == pytest.approx(expected, rel=1e-10)


def test_sampled_laplace_divergence_is_its_integral_in_extended_precision() -> None:
    pairs = SampledLaplace(sampling_rate=0.1, scale=0.2).pairs(ADD)

    def laplace(x: mpmath.mpf, centre: int) -> mpmath.mpf:
        return mpmath.exp(-abs(x - centre) * 5) * mpmath.mpf(5) / 2

    with mpmath.workdps(20):
        for order in (1.25, 60.0):
            for pair, (a, b) in zip(pairs, ((order, 1 - order), (1 - order, order)), strict=True):
                total = mpmath.quad(
                    lambda x, a=a, b=b: (
                        (mpmath.mpf("0.9") * laplace(x, 0) + laplace(x, 1) / 10) ** a * laplace(x, 0) ** b
                    ),
                    [-30, -5, *(mpmath.mpf(k) / 8 for k in range(9)), 6, 30],
                )
                expected = float(mpmath.log(total) / (order - 1))
                assert pair.renyi(np.array([order]))[0] == pytest.approx(expected, rel=1e-9)


def test_full_batch_is_the_plain_gaussian() -> None:
    for relation in (ZERO, REPLACE):
        whole = FixedBatchGaussian(batch_size=9, shard_size=9, noise_multiplier=5)
        assert price(whole, relation) == price(Gaussian(noise_multiplier=5), relation)


def test_fixed_batch_replacement_is_the_sampled_gaussian_of_twice_the_sensitivity() -> None:
    """Zhu, Dong, Wang 2022, Theorem 11: at epsilon >= 0 its curve is that of sampled removal with shift 2."""
    theirs = sampled(0.05, dp_accounting.GaussianDpEvent(1.5 / 2))
    accountant = PLDAccountant(value_discretization_interval=1e-4).compose(theirs)
    pair = FixedBatchGaussian(batch_size=5, shard_size=100, noise_multiplier=1.5).pairs(REPLACE).remove
    for at in (0.1, 0.5, 1.0):
        assert pair.profile(at) == pytest.approx(accountant.get_delta(at), rel=1e-3)


def test_truncation_that_never_happens_is_the_sampled_gaussian() -> None:
    for relation in (ZERO, REPLACE):
        capped = TruncatedSampledGaussian(sampling_rate=0.1, batch_cap=50, shard_size=50, noise_multiplier=1.2)
        assert price(capped, relation) == price(SampledGaussian(sampling_rate=0.1, noise_multiplier=1.2), relation)
    none = TruncatedSampledGaussian(sampling_rate=0.1, batch_cap=0, shard_size=50, noise_multiplier=1.2)
    assert price(none, ZERO) == 0


def test_truncation_of_certain_records_is_a_fixed_batch() -> None:
    for relation in (ZERO, REPLACE):
        capped = TruncatedSampledGaussian(sampling_rate=1, batch_cap=5, shard_size=50, noise_multiplier=1.2)
        assert price(capped, relation) == price(
            FixedBatchGaussian(batch_size=5, shard_size=50, noise_multiplier=1.2), relation
        )


@pytest.mark.parametrize("cap", [4, 12])
def test_truncation_is_at_most_that_of_another_library(cap: int) -> None:
    """Theirs is replace-one at 2C wherever the batch is full, ours the worst pair that the batch allows."""
    capped = TruncatedSampledGaussian(sampling_rate=0.1, batch_cap=cap, shard_size=80, noise_multiplier=1.4)
    event = dp_accounting.TruncatedSubsampledGaussianDpEvent(80, 0.1, cap, 1.4)
    theirs = library_price(event, REPLACED)
    assert price(capped, ZERO) < price(capped, REPLACE) < theirs * 1.001
    assert price(capped, REPLACE) > 0.5 * theirs


def test_truncation_is_attained_by_the_whole_sampler() -> None:
    """Every sample of a tiny shard and every cut of it, against zeroing a record among equal opposite ones."""
    size, cap, rate, sigma = 5, 2, 0.5, 1.0
    x = np.linspace(-14, 14, 40_001)
    mechanism = TruncatedSampledGaussian(sampling_rate=rate, batch_cap=cap, shard_size=size, noise_multiplier=sigma)

    def output(gradient: float) -> np.ndarray:
        """The record has this gradient and all others -1; they differ only in their number and its place."""
        total = np.zeros_like(x)
        for others in range(size):
            chance = binom.pmf(others, size - 1, rate)
            place = rate * min(1.0, cap / (others + 1))
            without = rate * (1 - min(1.0, cap / (others + 1))) + (1 - rate)
            total += chance * place * norm.pdf(x, gradient - min(others, cap - 1), sigma)
            total += chance * without * norm.pdf(x, -min(others, cap), sigma)
        return total

    p, q, cell = output(1.0), output(0.0), float(x[1] - x[0])
    pairs = mechanism.pairs(ZERO)
    for at in EPSILONS:
        assert hockey_stick(p, q, at, cell) <= pairs.remove.profile(at)
        assert hockey_stick(q, p, at, cell) <= pairs.add.profile(at)
    assert hockey_stick(p, q, 1.0, cell) > 0.6 * pairs.remove.profile(1.0)


def test_several_records_are_attained_by_equal_gradients() -> None:
    x = np.linspace(-15, 20, 60_001)
    weights = binom.pmf(range(4), 3, 0.3)
    mixture = sum(w * norm.pdf(x, j, 1.3) for j, w in enumerate(weights))
    pairs = MultiRecordSampledGaussian(sampling_rate=0.3, noise_multiplier=1.3, records=3).pairs(ADD)
    cell = float(x[1] - x[0])
    for at in EPSILONS:
        assert pairs.remove.profile(at) == pytest.approx(hockey_stick(mixture, norm.pdf(x, 0, 1.3), at, cell), rel=1e-6)
        expected = hockey_stick(norm.pdf(x, 0, 1.3), mixture, at, cell)
        assert pairs.add.profile(at) == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_several_certain_records_are_one_gaussian_of_their_number() -> None:
    whole = MultiRecordSampledGaussian(sampling_rate=1, noise_multiplier=9, records=3)
    for relation in (ADD, ZERO, REPLACE):
        assert price(whole, relation) == price(Gaussian(noise_multiplier=3), relation)
    assert price(replaced_by_one(whole), REPLACE) == price(
        SampledGaussian(sampling_rate=0.1, noise_multiplier=9), REPLACE
    )


def replaced_by_one(mechanism: MultiRecordSampledGaussian) -> MultiRecordSampledGaussian:
    return MultiRecordSampledGaussian(sampling_rate=0.1, noise_multiplier=mechanism.noise_multiplier, records=1)


def test_shuffled_epochs_are_gaussians_of_their_sensitivity() -> None:
    """The exact Gaussian (Balle, Wang 2018) at the sensitivity of one epoch, over 12 epochs."""
    for relation, sensitivity in ((ZERO, 1.0), (REPLACE, 2.0), (ADD, math.sqrt(5))):
        mu = sensitivity * math.sqrt(STEPS) / 8

        def excess(at: float, mu: float = mu) -> float:
            return norm.cdf(mu / 2 - at / mu) - math.exp(at) * norm.cdf(-mu / 2 - at / mu) - TARGET

        assert price(ShuffledGaussian(noise_multiplier=8), relation) == pytest.approx(brentq(excess, 0, 30), rel=1e-6)


def test_nothing_prices_a_release_without_protection() -> None:
    for relation in Relation:
        assert epsilon([NonPrivate()], relation=relation, delta=0.999).epsilon == math.inf
        assert delta([NonPrivate()], relation=relation, epsilon=1e6).delta == 1
        assert epsilon([NonPrivate(steps=0)], relation=relation, delta=0).epsilon == 0
