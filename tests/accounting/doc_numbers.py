"""The numbers of docs/parallel-composition.md without the library: dp-accounting, closed forms, exact fractions."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant
from finite_systems import Pair, composed, pair
from scipy.optimize import brentq
from scipy.stats import binom
from stopped_gaussian import best_rule_excess, claimed_epsilons, first_crossing_excess, gaussian_delta

DELTA = 1e-5
FINE, COARSE = 2e-4, 1e-3
"""Discretisation intervals of dp-accounting, chosen so that the printed digits do not depend on them."""

SLOW = ("records.three",)
"""Independent routes that take seconds."""

ADD_OR_REMOVE, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
Route = Callable[[], float]


def gaussian(shift: float, delta: float = DELTA) -> float:
    """Epsilon of one Gaussian shift, from its closed form."""
    return float(brentq(lambda e: float(gaussian_delta(np.float64(shift), e)) - delta, 0, shift**2 / 2 + 40 * shift))


@cache
def sampled(
    rate: float, noise: float, steps: int, relation: NeighboringRelation = ADD_OR_REMOVE, interval: float = FINE
):
    one = pld.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=interval, neighboring_relation=relation
    )
    return one.self_compose(steps)


def epsilon(losses: pld.PrivacyLossDistribution, delta: float = DELTA) -> float:
    return float(losses.get_epsilon_for_delta(delta))


def of_sampled(
    rate: float, noise: float, steps: int, delta: float = DELTA, relation=ADD_OR_REMOVE, interval: float = COARSE
) -> Route:
    return lambda: epsilon(sampled(rate, noise, steps, relation, interval), delta)


def silo_a() -> pld.PrivacyLossDistribution:
    return sampled(0.01, 1.0, 2000)


def silo_b() -> pld.PrivacyLossDistribution:
    return sampled(0.1, 2.0, 500)


def silo_c() -> pld.PrivacyLossDistribution:
    return pld.from_gaussian_mechanism(20.0, value_discretization_interval=FINE).self_compose(100)


def worst_two() -> float:
    a, b, c = silo_a(), silo_b(), silo_c()
    return max(epsilon(a.compose(b)), epsilon(a.compose(c)), epsilon(b.compose(c)))


def several_records(records: int) -> float:
    weights = binom.pmf(range(records + 1), records, 0.01)
    one = pld.from_mixture_gaussian_mechanism(
        1.0, list(range(records + 1)), list(weights), value_discretization_interval=COARSE
    )
    return epsilon(one.self_compose(500))


def noise_for(rate: float) -> float:
    """Noise multiplier at which 200 steps meet (1.9, DELTA)."""
    return float(
        brentq(lambda s: epsilon(sampled.__wrapped__(rate, s, 200, interval=COARSE)) - 1.9, 1.2, 2.6, xtol=1e-4)
    )


def renyi(rate: float, noise: float, steps: int) -> float:
    accountant = RdpAccountant(orders=list(np.arange(1.1, 40, 0.1)))
    accountant.compose(SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), steps))
    return float(accountant.get_epsilon(DELTA))


def converted(order: float, budget: float) -> float:
    """Canonne, Kamath, Steinke 2020, Proposition 12."""
    return budget + math.log1p(-1 / order) - (math.log(DELTA) + math.log(order)) / (order - 1)


def gaussian_renyi(shift: float, delta: float) -> float:
    orders = np.linspace(2, 30, 200_001)
    bounds = orders * shift**2 / 2 + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return float(bounds.min())


ROUNDS = 20


def round_epsilon(share: float) -> float:
    """Epsilon of the larger silo's 50 steps at a share of delta."""
    return epsilon(sampled(0.02, 1.0, 50), DELTA * share)


def advanced() -> float:
    """Dwork, Rothblum, Vadhan 2010, Theorem III.3, half of delta on the rounds and half as the slack."""
    one = round_epsilon(0.5 / ROUNDS)
    return ROUNDS * one * math.expm1(one) + math.sqrt(2 * ROUNDS * math.log(2 / DELTA)) * one


def optimal() -> float:
    """Kairouz, Oh, Viswanath 2015, Theorem 3.3, half of delta on the rounds."""
    one, share = round_epsilon(0.5 / ROUNDS), DELTA / 2 / ROUNDS
    losses = (2 * np.arange(ROUNDS + 1) - ROUNDS) * one
    weights = binom.pmf(np.arange(ROUNDS + 1), ROUNDS, 1 / (1 + math.exp(-one)))
    leaked = 1 - (1 - share) ** ROUNDS

    def excess(total: float) -> float:
        covered = np.maximum(0.0, -np.expm1(np.minimum(0.0, total - losses)))
        return leaked + (1 - leaked) * float(weights @ covered) - DELTA

    return float(brentq(excess, 0.0, ROUNDS * one))


CLEAR = pair([1, 9, 0], [0, 9, 1])
RESPONSE = pair([3, 1], [1, 3])
COIN = pair([3, 2], [2, 3])


def exactly(value: Fraction | Pair) -> Route:
    """A fraction, or the delta of a finite pair at epsilon = ln 3."""
    return lambda: float(value.delta(3) if isinstance(value, Pair) else value)


def stopped_exactly() -> float:
    """Stop after three answers if all are yes: each transcript against the claim of its own count."""
    claims = {3: Fraction(29, 16), 4: Fraction(67, 32)}
    if any(composed([COIN] * n).delta(t) != Fraction(1, 10) for n, t in claims.items()):
        raise ValueError("The claims are not exact at delta = 1/10.")
    excess = max(Fraction(27, 125) - claims[3] * Fraction(8, 125), Fraction(0))
    for yes in range(4):
        ways = math.comb(4, yes) - (yes == 3)
        p, q = Fraction(3**yes * 2 ** (4 - yes), 5**4), Fraction(2**yes * 3 ** (4 - yes), 5**4)
        excess += ways * max(p - claims[4] * q, Fraction(0))
    return float(excess)


INDEPENDENT: dict[str, Route] = {
    "pointwise.claimed": exactly(Fraction(1, 1000)),
    "pointwise.true": exactly(pair([1] * 1000 + [0] * 1000, [0] * 1000 + [1] * 1000)),
    "reacting.true": lambda: -math.expm1(100 * math.log1p(-1e-5)),
    "reacting.claimed": lambda: 1e-5,
    "stopping.first": lambda: first_crossing_excess(0.1, 1000, DELTA, mesh=0.01) / DELTA,
    "stopping.best": lambda: best_rule_excess(0.1, 1000, DELTA, mesh=0.01) / DELTA,
    "stopping.exact": stopped_exactly,
    "stopping.declared": lambda: float(claimed_epsilons(0.1, 1000, DELTA)[999]),
    "stopping.executed": lambda: float(claimed_epsilons(0.1, 1000, DELTA)[249]),
    "crossing.clear-one": exactly(CLEAR),
    "crossing.clear-two": exactly(CLEAR.then(CLEAR)),
    "crossing.response-one": exactly(RESPONSE),
    "crossing.response-two": exactly(RESPONSE.then(RESPONSE)),
    "crossing.mixed": exactly(CLEAR.then(RESPONSE)),
    "disjoint.max": of_sampled(0.02, 1.0, 550),
    "sets.both": of_sampled(0.02, 1.0, 1100, interval=FINE),
    "cap.a": lambda: epsilon(silo_a()),
    "cap.b": lambda: epsilon(silo_b()),
    "cap.c": lambda: gaussian(0.5),
    "cap.two": worst_two,
    "unknown.all": lambda: epsilon(silo_a().compose(silo_b()).compose(silo_c())),
    "replace.own": of_sampled(0.01, 1.0, 1000, relation=REPLACE, interval=FINE),
    "replace.doubled": of_sampled(0.01, 0.5, 1000),
    "replace.add-or-remove": of_sampled(0.01, 1.0, 1000, interval=FINE),
    "move.gaussian": lambda: gaussian(math.sqrt(1.25)),
    "move.stay": lambda: gaussian(2.0),
    "move.count-stay": lambda: 0.0,
    "move.count": lambda: 2 * (1 / 2),
    "records.one": of_sampled(0.01, 1.0, 500),
    "records.three": lambda: several_records(3),
    "unit.individuals": of_sampled(0.01, 1.0, 500),
    "unit.rate": lambda: 1 - 0.99**20,
    "unit.records": of_sampled(1 - 0.99**20, 1.0, 500),
    "participation.joined": of_sampled(1 / 6, 4.0, 64 * 6, 9e-6),
    "participation.all": of_sampled(1 / 6, 4.0, 640 * 6, 9e-6),
    "participation.wrong": of_sampled(1 / 60, 4.0, 640 * 6, 9e-6, interval=FINE),
    "filter.whole": lambda: converted(20, 1.0),
    "filter.spent": lambda: converted(20, 0.5),
    "count.thousand": lambda: noise_for(50 / 1000),
    "count.eight-hundred": lambda: noise_for(50 / 800),
    "count.total": lambda: 1 / 10 + 1.9,
    "shuffled.zero-out": lambda: gaussian(math.sqrt(10) / 4),
    "shuffled.replace": lambda: gaussian(2 * math.sqrt(10) / 4),
    "shuffled.add-or-remove": lambda: gaussian(math.sqrt(5 * 10) / 4),
    "best.five": of_sampled(0.02, 1.0, 5 * 550, interval=FINE),
    "best.one": of_sampled(0.02, 1.0, 550),
    "runs.two": of_sampled(0.02, 1.0, 2 * 550, interval=FINE),
    "silo.unit": lambda: gaussian(100.0),
    "ladder.parallel": of_sampled(0.02, 1.0, 550),
    "ladder.parallel-rdp": lambda: renyi(0.02, 1.0, 550),
    "ladder.rounds-composed": of_sampled(0.02, 1.0, 1000),
    "ladder.sequential": of_sampled(0.02, 1.0, 1100, interval=FINE),
    "ladder.rounds-optimal": optimal,
    "ladder.rounds-advanced": advanced,
    "ladder.rounds-basic": lambda: ROUNDS * round_epsilon(1 / ROUNDS),
    "range.truth": lambda: gaussian(1.0, 1e-13),
    "range.renyi": lambda: gaussian_renyi(1.0, 1e-13),
}
