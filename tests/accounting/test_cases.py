"""Other people's numbers: every row of `accounting_cases.json`, by the method that its `quantity` names.

The rows come from the test suites of other libraries and from closed forms; each says where it is from. A copy of the
table beside a checkout of the project, where there is one, must be the same as the copy kept here.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path

import dp_accounting
import mpmath
import numpy as np
import pytest
from case_releases import ADD_OR_REMOVE, ORDERS, REPLACE, Row, relation_of, steps_of
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, logsumexp
from scipy.stats import norm

from accounting._accountant import delta, epsilon
from accounting._batches import FixedBatchGaussian
from accounting._claims import ZeroConcentrated
from accounting._federation import Federation
from accounting._gaussian import Gaussian, SampledGaussian
from accounting._mechanism import Mechanism
from accounting._membership import Disjoint
from accounting._parts import directed_parts
from accounting._pld import LossDistribution
from accounting._rdp import OrderGridWarning, delta_from_renyi, epsilon_from_renyi
from accounting._relations import Relation

TABLE = Path(__file__).with_name("accounting_cases.json")
ROWS: list[Row] = json.loads(TABLE.read_text())
COUNT = 99
NOT_RUN: dict[str, str] = {}
"""Rows that cannot be run, each with the reason."""


def renyi(releases: list[Mechanism], relation: Relation, orders: list[float]) -> np.ndarray:
    """Renyi divergence of a composition, the larger direction at each order."""
    values = np.zeros((2, len(orders)))
    for release in releases:
        values += release.steps * np.array(release.renyi(relation, np.array(orders, dtype=float)))
    return values.max(axis=0)


def converted(row: Row, orders: list[float], values: np.ndarray) -> float:
    """Epsilon from divergences; a warning is due exactly where the row's best order is the last of its grid."""
    grid = np.array(orders, dtype=float)
    if row["id"] in AT_EDGE:
        with pytest.warns(OrderGridWarning):
            return epsilon_from_renyi(grid, values, row["delta"])
    return epsilon_from_renyi(grid, values, row["delta"])


AT_EDGE = {"042", "156"}


def near(row: Row, ours: float) -> None:
    expected = float(str(row["expected_epsilon"]))
    assert ours == expected or abs(ours - expected) <= max(row["tolerance"], 1e-12 * abs(expected))


def by_renyi(row: Row) -> None:
    orders = ORDERS[GRIDS.get(str(row["id"]), row.get("orders"))]
    ours = converted(row, orders, renyi(steps_of(row), relation_of(row), orders))
    if row["id"] in LOOSE:
        series = RdpAccountant(orders).compose(unsigned_series(row)).get_epsilon(row["delta"])
        near(row, series)
        assert 0.95 * series < ours < series
    else:
        near(row, ours)


def unsigned_series(row: Row) -> dp_accounting.DpEvent:
    step = dp_accounting.PoissonSampledDpEvent(row["q"], dp_accounting.GaussianDpEvent(row["sigma"]))
    return dp_accounting.SelfComposedDpEvent(step, row["steps"])


LOOSE = {"008", "030", "031", "045"}
"""Rows from dp-accounting's series at a fractional order, which leaves out its signs and is too large."""

GRIDS = {"043": "thousandths", "044": "2..32"}
"""Rows whose note names an order grid."""


def by_renyi_of_constant(row: Row) -> None:
    near(row, converted(row, ORDERS["2..32"], np.full(31, 1.1)))


def by_fixed_batch_bound(row: Row) -> None:
    """The row is the bound of Wang, Balle, Kasiviswanathan 2019, Theorem 27; ours is exact, so it must be below."""
    orders = list(range(2, 257))
    bound = np.array([fixed_batch_bound(row["q"], row["sigma"], order) for order in orders]) * row["steps"]
    near(row, converted(row, orders, bound))
    batch, shard = round(row["q"] * 10**6), 10**6
    ours = FixedBatchGaussian(batch_size=batch, shard_size=shard, noise_multiplier=2 * row["sigma"], steps=row["steps"])
    few = [2, 3, 4, 5, 6, 8, 10, 12, 16]
    assert converted(row, few, renyi([ours], REPLACE, few)) < row["expected_epsilon"]
    exact = ours.renyi(REPLACE, np.array(few, dtype=float)).remove
    assert np.all(exact <= bound[np.array(few) - 2] / row["steps"])


def fixed_batch_bound(q: float, sigma: float, order: int) -> float:
    """Theorem 27 for Gaussian noise, with the two-fold bound of each term beyond the second."""
    j = np.arange(3, order + 1)
    choose = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
    gap = 2 / (2 * sigma**2)
    second = math.log(order * (order - 1) / 2) + 2 * math.log(q) + math.log(min(4 * math.expm1(gap), 2 * math.exp(gap)))
    rest = math.log(2) + j * math.log(q) + choose + j * (j - 1) / (2 * sigma**2)
    return float(logsumexp([0.0, second, *rest])) / (order - 1)


def by_renyi_at_order(row: Row) -> None:
    order = float(str(row["order"]))
    if row["id"] in LOOSE:
        near(row, RdpAccountant([order]).compose(unsigned_series(row)).rdp[0])
        exact = row["steps"] * mixture_divergence(row["q"], row["sigma"], order)
        assert renyi(steps_of(row), ADD_OR_REMOVE, [order])[0] == pytest.approx(exact, rel=1e-9)
    elif math.isinf(order):
        losses = [p.greatest_loss for p in steps_of(row)[0].pairs(relation_of(row))]
        near(row, max(losses))
    else:
        # Order 1 is a limit; the divergence moves by less than 1e-7 up to here.
        near(row, float(renyi(steps_of(row), relation_of(row), [max(order, 1 + 1e-7)])[0]))


def mixture_divergence(q: float, sigma: float, order: float) -> float:
    """Renyi divergence of (1-q) N(0) + q N(1) from N(0), by quadrature in 30 digits."""
    with mpmath.workdps(30):
        ratio = lambda x: 1 - q + q * mpmath.exp((2 * x - 1) / (2 * mpmath.mpf(sigma) ** 2))  # noqa: E731
        spots = [mpmath.mpf(sigma) * k + c for c in (0, order) for k in (-12, -6, 0, 6, 12)]
        moment = mpmath.quad(lambda x: mpmath.npdf(x, 0, sigma) * ratio(x) ** order, sorted(spots))
        return float(mpmath.log(moment) / (order - 1))


def fine_pld(row: Row) -> float:
    """Epsilon by PLD with the grid as fine as the tightest rows want, in the worse direction."""
    parts = directed_parts(steps_of(row), relation_of(row))
    return max(LossDistribution(side).epsilon(row["delta"], accuracy=1e-7) for side in parts)


def by_pld(row: Row) -> None:
    near(row, fine_pld(row))


def by_default(row: Row) -> None:
    """By the method that is taken when none is named."""
    near(row, epsilon(steps_of(row), relation=relation_of(row), delta=row["delta"]).epsilon)


def below_prv(row: Row) -> None:
    """PRV's upper end is its estimate plus 0.01, so ours lies below it and by at most the tolerance."""
    ours = fine_pld(row)
    assert row["expected_epsilon"] - row["tolerance"] <= ours <= row["expected_epsilon"]


def above_central_limit(row: Row) -> None:
    """The row is the central limit's number, which is too small; a guarantee must be above it."""
    mu = row["q"] * math.sqrt(row["steps"] * math.expm1(1 / row["sigma"] ** 2))
    limit = Gaussian(noise_multiplier=1 / mu).pairs(ADD_OR_REMOVE).remove
    near(row, epsilon([Gaussian(noise_multiplier=1 / mu)], relation=ADD_OR_REMOVE, delta=row["delta"]).epsilon)
    assert limit.profile(row["expected_epsilon"]) == pytest.approx(row["delta"], rel=0.02)
    truth = 6.7672  # dp-accounting's PLD, from the row's note
    assert fine_pld(row) == pytest.approx(truth, abs=1e-3)


def by_accountant_of_calibration(row: Row) -> None:
    """Opacus' own accountant chose sigma so that its epsilon is in [7.97, 8]; the note names the accountant."""
    if "accountant rdp" in str(row["note"]):
        near(row, converted(row, ORDERS["opacus"], renyi(steps_of(row), ADD_OR_REMOVE, ORDERS["opacus"])))
    else:
        near(row, epsilon(steps_of(row), relation=ADD_OR_REMOVE, delta=row["delta"], method="pld").epsilon)


def losses_of(row: Row) -> LossDistribution:
    return LossDistribution(directed_parts(steps_of(row), relation_of(row)).remove)


def by_power(row: Row) -> None:
    near(row, losses_of(row).true_positive_rate(row["fpr"]))


def by_smallest_gaussian(row: Row) -> None:
    """The mu of the least Gaussian trade-off below ours: the largest gap of normal scores, up to the corner."""
    losses, corner = losses_of(row), min(steps_of(row)[0].pairs(REPLACE).remove.p[:2])
    rates = np.array([0.05, 0.2, corner])
    powers = np.array([losses.true_positive_rate(float(rate)) for rate in rates])
    near(row, float(np.max(norm.ppf(powers) - norm.ppf(rates))))


def at_best_order(releases: list[Mechanism], answer: Callable[[np.ndarray, np.ndarray], float]) -> float:
    """The minimum over all real orders of an answer from one order."""

    def at(log_tilt: float) -> float:
        orders = [1 + math.exp(log_tilt)]
        return answer(np.array(orders), renyi(releases, ADD_OR_REMOVE, orders))

    return minimize_scalar(at, bounds=(-4, 6), method="bounded", options={"xatol": 1e-9}).fun


def by_basic_composition(row: Row) -> None:
    releases = steps_of(row)
    each = row["delta"] / len(releases)
    near(row, sum(at_best_order([r], lambda o, v: epsilon_from_renyi(o, v, each)) for r in releases))


def by_concentration(row: Row) -> None:
    """rho of a sum is the sum of each one's largest divergence per order; Laplace is priced by its pure epsilon."""
    first, second = steps_of(row)
    largest = first.pairs(ADD_OR_REMOVE).remove.greatest_loss
    claim = ZeroConcentrated(rho=largest**2 / 2)
    near(row, float(renyi([claim, second], ADD_OR_REMOVE, [2.0])[0]) / 2)
    orders = [1.01, 1.5, 2, 5, 20, 100]
    assert np.all(renyi([first], ADD_OR_REMOVE, orders) <= renyi([claim], ADD_OR_REMOVE, orders))


def by_delta_of_renyi(row: Row) -> None:
    ours = at_best_order(steps_of(row), lambda o, v: delta_from_renyi(o, v, row["expected_epsilon"]))
    assert ours == pytest.approx(row["delta"], abs=row["tolerance"])


def by_delta(row: Row) -> None:
    ours = delta(steps_of(row), relation=ADD_OR_REMOVE, epsilon=row["expected_epsilon"]).delta
    assert ours == pytest.approx(row["delta"], abs=row["tolerance"])


def by_lattice_of_losses(row: Row) -> None:
    """Theorem 3.3 of Kairouz, Oh, Viswanath 2015 knows the curve at (k - 2i) epsilon only; ours is smaller between."""
    lattice = [(row["steps"] - 2 * i) * 0.25 for i in range(row["steps"] // 2)]
    deltas = [delta(steps_of(row), relation=ADD_OR_REMOVE, epsilon=value).delta for value in lattice]
    near(row, min(value for value, reached in zip(lattice, deltas, strict=True) if reached <= row["delta"]))
    assert epsilon(steps_of(row), relation=ADD_OR_REMOVE, delta=row["delta"]).epsilon <= row["expected_epsilon"]


def by_pure_epsilon(row: Row) -> None:
    """The row is the pure epsilon, kept at any delta; ours falls below it as delta grows."""
    near(row, epsilon(steps_of(row), relation=ADD_OR_REMOVE, delta=0).epsilon)
    ours = epsilon(steps_of(row), relation=ADD_OR_REMOVE, delta=row["delta"]).epsilon
    assert ours == pytest.approx(row["expected_epsilon"], abs=4 * row["delta"])
    assert ours <= row["expected_epsilon"]


def federation_epsilon(silos: dict[str, list[Mechanism]], row: Row, **options: bool) -> float:
    return Federation(silos, Disjoint(), relation_of(row), **options).epsilon(row["delta"])


def by_disjoint_silos(row: Row) -> None:
    step = SampledGaussian(sampling_rate=row["q"], noise_multiplier=row["sigma"])
    near(
        row,
        federation_epsilon(
            {"A": [step.repeated(50), step.repeated(5)] * 10, "B": [step.repeated(5), step.repeated(50)] * 10}, row
        ),
    )


def by_rounds_first(row: Row) -> None:
    """The largest silo of each round, composed over the rounds: looser than composing each silo first."""
    step = SampledGaussian(sampling_rate=row["q"], noise_multiplier=row["sigma"])
    near(row, epsilon([step.repeated(50)] * 20, relation=ADD_OR_REMOVE, delta=row["delta"]).epsilon)


def by_one_silo(row: Row) -> None:
    near(row, federation_epsilon({"A": steps_of(row)}, row))


def by_unequal_silos(row: Row) -> None:
    near(row, federation_epsilon({name: [step] for name, step in zip("ABC", steps_of(row), strict=True)}, row))


def by_moving_record(row: Row) -> None:
    silos: dict[str, list[Mechanism]] = {"A": [Gaussian(noise_multiplier=1)], "B": [Gaussian(noise_multiplier=2)]}
    moved = Federation({"A+B": [*silos["A"], *silos["B"]]}, Disjoint(), ADD_OR_REMOVE).epsilon(row["delta"])
    near(row, moved)
    within = Federation(silos, Disjoint(), REPLACE).epsilon(row["delta"])
    assert Federation(silos, Disjoint(), REPLACE, may_move=True).epsilon(row["delta"]) == max(within, moved)


QUANTITIES: dict[str, Callable[[Row], None]] = {
    "epsilon (RDP bound)": by_renyi,
    "epsilon (RDP)": by_renyi,
    "renyi epsilon": by_renyi_at_order,
    "epsilon": by_default,
    "epsilon (PLD)": by_pld,
    "epsilon (PLD, pessimistic)": by_pld,
    "epsilon (PLD), calibrated": by_pld,
    "epsilon at given delta": by_default,
    "per-query epsilon": by_lattice_of_losses,
    "epsilon, realised participation": by_default,
    "epsilon upper (PRV, includes +eps_error)": below_prv,
    "epsilon (GDP CLT, can UNDERESTIMATE)": above_central_limit,
    "epsilon, calibrated": by_accountant_of_calibration,
    "true positive rate": by_power,
    "GDP mu": by_smallest_gaussian,
    "epsilon (basic composition of two fixed-delta)": by_basic_composition,
    "zCDP rho": by_concentration,
    "delta of zCDP": by_delta_of_renyi,
    "total delta": by_delta,
    "delta at eps=4": by_delta,
    "epsilon, disjoint silos": by_disjoint_silos,
    "epsilon, round-wise parallel then sequential (looser, must be >= previous)": by_rounds_first,
    "epsilon, one silo alone": by_one_silo,
    "epsilon, heterogeneous silos": by_unequal_silos,
    "epsilon, replace-one record that moves silo": by_moving_record,
}
EXCEPTIONS = {
    ("epsilon", "Laplace b=10"): by_pure_epsilon,
    ("epsilon (RDP bound)", "constant RDP 1.1 at orders 2..32"): by_renyi_of_constant,
    ("epsilon (RDP bound)", "Gaussian on fixed-size sample"): by_fixed_batch_bound,
}
"""Mechanisms for which the quantity is had in another way."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['id']}-{row['quantity']}")
def test_outside_number_is_met(row: Row) -> None:
    if row["id"] in NOT_RUN:
        pytest.skip(NOT_RUN[str(row["id"])])
    quantity = str(row["quantity"])
    EXCEPTIONS.get((quantity, str(row["mechanism"])), QUANTITIES[quantity])(row)


def test_every_row_is_run() -> None:
    assert len(ROWS) == COUNT
    assert {str(row["quantity"]) for row in ROWS} == set(QUANTITIES)
    assert len({row["id"] for row in ROWS} - set(NOT_RUN)) == COUNT


def test_table_is_the_shared_one() -> None:
    shared = Path(__file__).parents[2].parent / "shared" / TABLE.name
    if not shared.exists():
        pytest.skip("no shared table beside this checkout")
    assert json.loads(shared.read_text()) == ROWS
