"""Each mechanism's price against a second route that shares no code with it: another library, a closed form, or an
integral over outputs instead of losses."""

import math
from collections.abc import Callable

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import PLDAccountant, common
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import dlaplace, norm

from accounting import (
    ApproximateEpsilon,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    Laplace,
    Mechanism,
    NonPrivate,
    PureEpsilon,
    RandomisedResponse,
    Relation,
    RepeatAndSelect,
    SampledGaussian,
    SampledLaplace,
    ShuffledGaussian,
    Unsupported,
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
        (
            ShuffledGaussian(noise_multiplier=8, batches=4),
            ADD,
            dp_accounting.GaussianDpEvent(8 / math.sqrt(5)),
            ADD_OR_REMOVE,
        ),
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


def test_shuffled_epochs_are_gaussians_of_their_sensitivity() -> None:
    """The exact Gaussian (Balle, Wang 2018) at the sensitivity of one epoch, over 12 epochs."""
    for relation, sensitivity in ((ZERO, 1.0), (REPLACE, 2.0), (ADD, math.sqrt(5))):
        mu = sensitivity * math.sqrt(STEPS) / 8

        def excess(at: float, mu: float = mu) -> float:
            return norm.cdf(mu / 2 - at / mu) - math.exp(at) * norm.cdf(-mu / 2 - at / mu) - TARGET

        assert price(ShuffledGaussian(noise_multiplier=8, batches=4), relation) == pytest.approx(
            brentq(excess, 0, 30), rel=1e-6
        )


def test_shuffled_batches_whose_number_follows_from_the_size_have_no_price_under_add_or_remove() -> None:
    """Four records in batches of two are two releases, five are three: the count alone tells them apart."""
    with pytest.raises(Unsupported, match="public number of batches"):
        price(ShuffledGaussian(noise_multiplier=8), ADD)
    assert price(ShuffledGaussian(noise_multiplier=8), ZERO) == price(
        ShuffledGaussian(noise_multiplier=8, batches=4), ZERO
    )


def test_nothing_prices_a_release_without_protection() -> None:
    for relation in Relation:
        assert epsilon([NonPrivate()], relation=relation, delta=0.999).epsilon == math.inf
        assert delta([NonPrivate()], relation=relation, epsilon=1e6).delta == 1
        assert epsilon([NonPrivate(steps=0)], relation=relation, delta=0).epsilon == 0


@pytest.mark.parametrize("width", [1e-9, 1e-7, 1e-6, 1e-5, 1e-3, 1.0, 20.0])
@pytest.mark.parametrize("order", [1.001, 1.25, 2.0, 64.0, 1000.0])
def test_the_exponential_mechanism_never_costs_less_than_its_worst_range(width: float, order: float) -> None:
    """The divergence of the two-point laws of every range of this width (Dong, Durfee, Rogers 2020), in 50 digits."""
    with mpmath.workdps(50):
        w, a = mpmath.mpf(width), mpmath.mpf(order)

        def divergence(share: mpmath.mpf) -> mpmath.mpf:
            top = w * share
            chance = -mpmath.expm1(top - w) / (mpmath.exp(top) - mpmath.exp(top - w))
            return mpmath.log(chance * mpmath.exp(a * top) + (1 - chance) * mpmath.exp(a * (top - w))) / (a - 1)

        truth = float(max(divergence(mpmath.mpf(place) / 200) for place in range(1, 200)))
    ours = float(Exponential(epsilon=width).renyi(ADD, np.array([order])).remove[0])
    assert truth * (1 - 1e-12) <= ours <= order * width**2 / 8 * (1 + 1e-12)
    assert ours <= max(truth, width) * 1.2
