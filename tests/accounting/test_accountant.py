"""The price of one silo's releases: which accountant answers, and both against outside numbers."""

import math
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import PRVAccountant

from accounting._accountant import delta, epsilon
from accounting._gaussian import Gaussian, SampledGaussian
from accounting._rdp import OrderGridWarning
from accounting._relations import Relation

REMOVE = Relation.ADD_OR_REMOVE_ONE


@pytest.mark.parametrize(
    ("releases", "target", "method"),
    [
        ([SampledGaussian(sampling_rate=0.1, noise_multiplier=1.0)], 1e-9, "pld"),
        ([SampledGaussian(sampling_rate=0.1, noise_multiplier=1.0)], 9e-10, "rdp"),
        ([SampledGaussian(sampling_rate=0.1, noise_multiplier=0.05)], 1e-6, "pld"),
        ([SampledGaussian(sampling_rate=0.1, noise_multiplier=0.049)], 1e-6, "rdp"),
    ],
)
def test_pld_answers_in_its_range_and_renyi_elsewhere(
    releases: list[SampledGaussian], target: float, method: str
) -> None:
    price = epsilon(releases, relation=REMOVE, delta=target)
    assert (price.method, price.delta) == (method, target)
    assert price == epsilon(releases, relation=REMOVE, delta=target, method=method)


def test_steps_and_order_of_releases_do_not_matter() -> None:
    a = SampledGaussian(sampling_rate=0.05, noise_multiplier=2.0)
    b = Gaussian(noise_multiplier=30.0)
    whole = epsilon([a.repeated(90), b.repeated(7)], relation=REMOVE, delta=1e-6).epsilon
    split = epsilon([b.repeated(3), a.repeated(40), b.repeated(4), *[a] * 50], relation=REMOVE, delta=1e-6).epsilon
    assert split == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("releases", [[], [SampledGaussian(sampling_rate=0.1, noise_multiplier=0.0, steps=0)]])
def test_nothing_released_costs_nothing(releases: list[SampledGaussian]) -> None:
    assert epsilon(releases, relation=REMOVE, delta=0.0).epsilon == 0
    assert delta(releases, relation=REMOVE, epsilon=0.0).delta == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("q", "sigma", "steps", "target"),
    [(0.01, 1.0, 500, 1e-5), (0.04, 1.5, 2250, 1e-5), (0.1, 2.0, 1000, 1e-6), (0.002, 0.8, 5000, 1e-6)],
)
def test_opacus_prv_agrees_within_a_percent(q: float, sigma: float, steps: int, target: float) -> None:
    """PRV's answer includes its own error, .01 by default, and is an upper bound."""
    rival = PRVAccountant()
    rival.history = [(sigma, q, steps)]
    bound = rival.get_epsilon(target, eps_error=0.01)
    ours = epsilon(
        [SampledGaussian(sampling_rate=q, noise_multiplier=sigma, steps=steps)], relation=REMOVE, delta=target
    )
    assert (bound - 0.02) * 0.999 <= ours.epsilon <= bound * 1.01


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    q=st.sampled_from([0.0, 1e-6, 0.003, 0.5, 1.0]),
    sigma=st.sampled_from([0.0, 1e-3, 0.05, 1.0, 1e4]),
    steps=st.sampled_from([0, 1, 700, 100_000]),
    target=st.sampled_from([0.0, 1e-15, 1e-9, 1e-5, 0.5, 1.0]),
    relation=st.sampled_from(Relation),
)
def test_prices_are_numbers_and_infinite_where_the_truth_is(
    q: float, sigma: float, steps: int, target: float, relation: Relation
) -> None:
    releases = [SampledGaussian(sampling_rate=q, noise_multiplier=sigma, steps=steps)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OrderGridWarning)
        price = epsilon(releases, relation=relation, delta=target).epsilon
        weaker = epsilon(releases, relation=Relation.REPLACE_ONE, delta=target).epsilon
    revealed = 1.0 if q == 1 and steps else -math.expm1(steps * math.log1p(-min(q, 0.9)))
    assert price >= 0
    assert price <= weaker * (1 + 1e-3) + 1e-6
    if q == 0 or steps == 0 or target == 1:
        assert price == 0
    elif target == 0 or (sigma == 0 and target < revealed):
        assert price == math.inf
