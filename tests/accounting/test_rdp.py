"""Conversions from Renyi divergences, against numbers of others and against the laws they must obey."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting._errors import InvalidValue
from accounting._gaussian import SampledGaussian
from accounting._rdp import ORDERS, OrderGridWarning, delta_from_renyi, epsilon_from_renyi
from accounting._relations import Relation

OPACUS_ORDERS = np.array([1 + x / 10 for x in range(1, 100)] + [*range(12, 64)], dtype=float)


def step(q: float, sigma: float, orders: np.ndarray) -> np.ndarray:
    return SampledGaussian(sampling_rate=q, noise_multiplier=sigma).renyi(Relation.ADD_OR_REMOVE_ONE, orders).remove


@pytest.mark.parametrize("orders", [OPACUS_ORDERS, ORDERS], ids=["opacus", "ours"])
def test_an_optimum_at_a_fractional_order_is_exact(orders: np.ndarray) -> None:
    """Opacus, test_rdp_accountant: best order 3.9, where dp-accounting's series gives 7.32933."""
    assert epsilon_from_renyi(orders, 2250 * step(0.04, 1.5, orders), 1e-5) == pytest.approx(7.32911117143, abs=1e-7)


def test_an_optimum_at_a_whole_order_is_exact() -> None:
    """TensorFlow Privacy, compute_dp_sgd_privacy_test, Test1: best order 13."""
    assert epsilon_from_renyi(ORDERS, 30_000 * step(0.001, 1.0, ORDERS), 1e-7) == pytest.approx(
        1.4154988495444842, abs=1e-7
    )


def test_the_grid_is_what_it_claims() -> None:
    assert np.all(np.diff(ORDERS) > 0)
    assert ORDERS[0] > 1
    assert ORDERS[-1] == 1024
    assert np.all(ORDERS[ORDERS >= 11] % 1 == 0)
    assert set(OPACUS_ORDERS) <= set(ORDERS)


@settings(derandomize=True, deadline=None)
@given(rho=st.floats(1e-4, 50), delta=st.floats(1e-12, 0.5))
def test_conversion_improves_on_the_plain_one_and_inverts(rho: float, delta: float) -> None:
    """Between the exact Gaussian, whose divergences these are, and Mironov 2017, Proposition 3."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OrderGridWarning)
        epsilon = epsilon_from_renyi(ORDERS, rho * ORDERS, delta)
    plain = float(np.min(rho * ORDERS + math.log(1 / delta) / (ORDERS - 1)))
    mu = math.sqrt(2 * rho)
    cdf = lambda x: math.erfc(-x / math.sqrt(2)) / 2  # noqa: E731
    exact = cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * cdf(-mu / 2 - epsilon / mu) if epsilon < 300 else 0.0
    assert epsilon <= plain
    assert exact <= delta * (1 + 1e-9)
    assert delta_from_renyi(ORDERS, rho * ORDERS, epsilon) <= delta * (1 + 1e-9)


@pytest.mark.parametrize(
    ("values", "delta", "expected"),
    [
        (np.zeros_like(ORDERS), 1e-6, 0.0),
        (np.zeros_like(ORDERS), 0.0, 0.0),
        (np.full_like(ORDERS, np.inf), 1e-6, math.inf),
        (np.full_like(ORDERS, np.inf), 1.0, 0.0),
        (ORDERS, 0.0, math.inf),
        (ORDERS, 1.0, 0.0),
        (1e-9 * ORDERS, 0.9, 0.0),
    ],
)
def test_edges_have_their_values(values: np.ndarray, delta: float, expected: float) -> None:
    assert epsilon_from_renyi(ORDERS, values, delta) == expected


def test_edges_of_delta_have_their_values() -> None:
    assert delta_from_renyi(ORDERS, np.zeros_like(ORDERS), 0.0) == 0
    assert delta_from_renyi(ORDERS, np.full_like(ORDERS, np.inf), 5.0) == 1
    assert delta_from_renyi(ORDERS, np.full_like(ORDERS, np.inf), math.inf) == 1
    assert delta_from_renyi(ORDERS, ORDERS, math.inf) == 0
    assert delta_from_renyi(ORDERS, ORDERS, 0.0) <= 1


@pytest.mark.parametrize("rho", [1e-8, 1e8])
def test_the_edge_of_the_grid_is_told(rho: float) -> None:
    with pytest.warns(OrderGridWarning, match="edge of the grid"):
        epsilon_from_renyi(ORDERS, rho * ORDERS, 1e-6)


@pytest.mark.parametrize("delta", [-0.1, 1.1, math.nan])
def test_a_delta_that_is_none_is_refused(delta: float) -> None:
    with pytest.raises(InvalidValue, match="delta"):
        epsilon_from_renyi(ORDERS, ORDERS, delta)
