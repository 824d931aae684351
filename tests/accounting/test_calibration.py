"""Calibration: the answer meets the target, barely, by any accountant's word."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting._accountant import epsilon
from accounting._calibration import _largest, calibrate_noise_multiplier, calibrate_rounds, calibrate_sampling_rate
from accounting._errors import InvalidValue
from accounting._gaussian import Gaussian, SampledGaussian
from accounting._relations import Relation

REMOVE = Relation.ADD_OR_REMOVE_ONE


def spent(releases: list[SampledGaussian | Gaussian], relation: Relation, delta: float, method: str = "auto") -> float:
    return epsilon(releases, relation=relation, delta=delta, method=method).epsilon


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    q=st.floats(0.002, 0.5),
    steps=st.integers(100, 20_000),
    target=st.sampled_from([0.2, 2.0, 10.0]),
    relation=st.sampled_from(Relation),
)
def test_noise_meets_the_target_within_a_thousandth(q: float, steps: int, target: float, relation: Relation) -> None:
    make = lambda sigma: [SampledGaussian(sampling_rate=q, noise_multiplier=sigma, steps=steps)]  # noqa: E731
    sigma = calibrate_noise_multiplier(make, epsilon=target, delta=1e-6, relation=relation)
    assert 0.999 * target <= spent(make(sigma), relation, 1e-6) <= target


@pytest.mark.parametrize("method", ["pld", "rdp"])
def test_either_accountant_calibrates(method: str) -> None:
    make = lambda sigma: [SampledGaussian(sampling_rate=0.01, noise_multiplier=sigma, steps=1000)]  # noqa: E731
    sigma = calibrate_noise_multiplier(make, epsilon=1.0, delta=1e-5, relation=REMOVE, method=method)
    assert 0.999 <= spent(make(sigma), REMOVE, 1e-5, method) <= 1.0


def test_the_gaussian_needs_its_analytic_noise() -> None:
    """Balle, Wang 2018, Algorithm 1: sigma = 3.7304 C at (1, 1e-5)."""
    sigma = calibrate_noise_multiplier(
        lambda sigma: [Gaussian(noise_multiplier=sigma)], epsilon=1.0, delta=1e-5, relation=REMOVE
    )
    assert 3.7303 <= sigma <= 3.7304 * 1.001


def test_a_start_changes_no_promise() -> None:
    make = lambda sigma: [SampledGaussian(sampling_rate=0.02, noise_multiplier=sigma, steps=500)]  # noqa: E731
    for start in (0.01, 1.0, 500.0):
        sigma = calibrate_noise_multiplier(make, epsilon=2.0, delta=1e-6, relation=REMOVE, start=start)
        assert 1.998 <= spent(make(sigma), REMOVE, 1e-6) <= 2.0


def test_free_releases_need_the_least_noise() -> None:
    make = lambda sigma: [SampledGaussian(sampling_rate=0.0, noise_multiplier=sigma)]  # noqa: E731
    assert calibrate_noise_multiplier(make, epsilon=1.0, delta=1e-6, relation=REMOVE) == pytest.approx(1e-3)


def test_a_target_out_of_reach_is_refused() -> None:
    with pytest.raises(InvalidValue, match="reach"):
        calibrate_noise_multiplier(lambda _: [Gaussian(noise_multiplier=1.0)], epsilon=0.5, delta=1e-6, relation=REMOVE)


@pytest.mark.parametrize(
    ("field", "value"), [("epsilon", 0.0), ("epsilon", math.inf), ("delta", 2.0), ("accuracy", 0.0)]
)
def test_targets_that_are_none_are_refused(field: str, value: float) -> None:
    target = {"epsilon": 1.0, "delta": 1e-6, "accuracy": 1e-3} | {field: value}
    with pytest.raises(InvalidValue, match=field):
        calibrate_noise_multiplier(lambda sigma: [Gaussian(noise_multiplier=sigma)], relation=REMOVE, **target)


def test_rounds_are_the_most_that_fit() -> None:
    make = lambda rounds: [SampledGaussian(sampling_rate=0.01, noise_multiplier=1.0, steps=10 * rounds)]  # noqa: E731
    rounds = calibrate_rounds(make, epsilon=1.5, delta=1e-5, relation=REMOVE)
    assert spent(make(rounds), REMOVE, 1e-5) <= 1.5 < spent(make(rounds + 1), REMOVE, 1e-5)
    assert calibrate_rounds(make, epsilon=1.5, delta=1e-5, relation=REMOVE, most=7) == 7
    assert calibrate_rounds(make, epsilon=0.01, delta=1e-5, relation=REMOVE) == 0


def test_the_sampling_rate_is_the_largest_that_fits() -> None:
    make = lambda q: [SampledGaussian(sampling_rate=q, noise_multiplier=2.0, steps=300)]  # noqa: E731
    rate = calibrate_sampling_rate(make, epsilon=1.0, delta=1e-6, relation=REMOVE)
    assert 0 < rate < 1
    assert 0.999 <= spent(make(rate), REMOVE, 1e-6) <= 1.0
    assert calibrate_sampling_rate(make, epsilon=1e3, delta=1e-6, relation=REMOVE) == 1.0
    bare = lambda _: [Gaussian(noise_multiplier=0.0)]  # noqa: E731
    assert calibrate_sampling_rate(bare, epsilon=1.0, delta=1e-6, relation=REMOVE) == 0.0


@pytest.mark.parametrize("start", [1e-6, 1.0, 1e3])
def test_no_value_is_found_where_none_is_affordable(start: float) -> None:
    """However little too much every value costs: an untested value is no answer."""
    assert _largest(lambda _: 1 + 1e-13, 1.0, 1e-6, 1e3, start, 5e-4) is None
    assert _largest(lambda value: 1 + 1e-13 + 1e-15 * value, 1.0, 1e-6, 1e3, start, 5e-4) is None


@pytest.mark.parametrize("least", [1e-6, 2e-6, 1.0])
def test_every_value_found_was_priced(least: float) -> None:
    prices: dict[float, float] = {}

    def cost(value: float) -> float:
        prices[value] = 0.5 if value <= least else 1 + 1e-13
        return prices[value]

    found = _largest(cost, 1.0, 1e-6, 1e3, 1e3, 5e-4)
    assert found is not None
    assert prices[found] <= 1
