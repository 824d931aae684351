"""What is not licensed, each with the number that shows it: exact where finite, by a walk on a mesh for Gaussians."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from finite_systems import NOBODY, Pair, Step, Tree, World, composed, holding, pair
from stopped_gaussian import best_rule_excess, claimed_epsilons, first_crossing_excess

# The pointwise step.


@pytest.mark.parametrize("n", [2, 10, 1000])
def test_a_pointwise_inequality_does_not_bound_events(n: int):
    """M uniform on {1..n}, M' on {n+1..2n}: each outcome obeys (0, 1/n), the event {1..n} obeys nothing."""
    first, second = [1] * n + [0] * n, [0] * n + [1] * n
    assert all(Fraction(p, n) <= Fraction(q, n) + Fraction(1, n) for p, q in zip(first, second, strict=True))
    assert pair(first, second).delta(1) == 1


# Data that react to releases.

ONE_IN = 100_000
"""Each silo answers in the clear with probability 1e-5, and says beforehand whether it will."""


def flag_then_answer(silos: int) -> Tree:
    """Each silo shows a flag; the first silo whose flag is up then shows whether it holds the individual."""
    nothing = dict.fromkeys(("absent", "x"), (ONE_IN, 0))
    flag = dict.fromkeys(("absent", "x"), (ONE_IN - 1, 1))
    answer = {"absent": (ONE_IN, 0), "x": (0, ONE_IN)}
    after: Step | None = None
    for silo in reversed(range(silos)):
        in_the_clear = Step(silo, answer, (None, None))
        after = Step(silo, flag, (after or Step(silo, nothing, (None, None)), in_the_clear))
    if after is None:
        raise ValueError("At least one silo.")
    return Tree(after, ONE_IN, silos + 1)


def test_fixed_data_keep_every_silo_at_its_own_delta():
    tree = flag_then_answer(100)
    for silo in (0, 50, 99):
        shown = tree.between(holding({silo: "x"}), NOBODY)
        assert shown.delta(1) == shown.delta(10**9) <= Fraction(1, ONE_IN)
    assert tree.between(holding({0: "x"}), NOBODY).delta(1) == Fraction(1, ONE_IN)


def test_data_that_react_break_the_maximum():
    """The individual goes where the flag is up: 100 silos of delta 1e-5 each, together 1e-3."""
    wherever_asked: World = lambda _silo, history: "x" if history and history[-1] == 1 else "absent"  # noqa: E731
    shown = flag_then_answer(100).between(wherever_asked, NOBODY)
    assert shown.delta(1) == shown.delta(10**9) == 1 - (1 - Fraction(1, ONE_IN)) ** 100
    assert float(shown.delta(1)) == pytest.approx(9.995e-4, rel=1e-4)


# The m individually worst silos.

SOMETIMES_CLEAR = pair([1, 9, 0], [0, 9, 1])
"""Delta 1/10 at every epsilon."""

RANDOMISED_RESPONSE = pair([3, 1], [1, 3])
"""(ln 3, 0)."""


def test_the_two_worst_silos_are_not_the_worst_two():
    """At epsilon = ln 3 delta is 1/10 against 0 for one silo, 19/100 against 3/8 for two."""
    curves = [SOMETIMES_CLEAR, SOMETIMES_CLEAR, RANDOMISED_RESPONSE, RANDOMISED_RESPONSE]
    alone = [curve.delta(3) for curve in curves]
    assert alone == [Fraction(1, 10), Fraction(1, 10), 0, 0]
    together = {two: composed(curves[i] for i in two).delta(3) for two in combinations(range(4), 2)}
    assert together[0, 1] == Fraction(19, 100)
    assert max(together, key=lambda two: together[two]) == (2, 3)
    assert together[2, 3] == Fraction(3, 8)


def test_the_shortcut_also_fails_at_one_common_delta():
    """At delta = 1/10 the first kind has epsilon 0 alone and infinity in pairs; the other is finite in both."""

    def epsilon_is_at_most(curve: Pair, t: Fraction | int) -> bool:
        return curve.delta(t) <= Fraction(1, 10)

    assert epsilon_is_at_most(SOMETIMES_CLEAR, 1)
    assert not epsilon_is_at_most(RANDOMISED_RESPONSE, 2)
    assert not epsilon_is_at_most(composed([SOMETIMES_CLEAR] * 2), 10**9)
    assert epsilon_is_at_most(composed([RANDOMISED_RESPONSE] * 2), 9)


# An executed count chosen by looking at releases.


COIN = pair([3, 2], [2, 3])
"""Randomised response with odds 3 to 2."""


def stops_at_three(limit: int) -> Tree:
    """At most `limit` answers by randomised response; the server stops once the first three are all "yes"."""

    def after(history: tuple[int, ...]) -> Step | None:
        if history == (1, 1, 1) or len(history) == limit:
            return None
        return Step(0, {"absent": (3, 2), "x": (2, 3)}, (after((*history, 0)), after((*history, 1))))

    root = after(())
    if root is None:
        raise ValueError("At least one step.")
    return Tree(root, 5, limit)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_the_declared_maximum_prices_a_run_that_stops_when_it_likes(limit: int):
    for first, second in ((holding({0: "x"}), NOBODY), (NOBODY, holding({0: "x"}))):
        assert stops_at_three(limit).between(first, second).at_most(composed([COIN] * limit))


def test_the_executed_count_does_not_price_a_run_that_stops_when_it_likes():
    """Claims (eps_n, 1/10) are exact for fixed counts 3 and 4; quoted by executed count they leave 59/500 uncovered."""
    claims = {3: Fraction(29, 16), 4: Fraction(67, 32)}
    assert all(composed([COIN] * n).delta(t) == Fraction(1, 10) for n, t in claims.items())
    tree = stops_at_three(4)
    first, second = tree.joint(holding({0: "x"})), tree.joint(NOBODY)
    counts = [4] * (len(first) - 1) + [3]
    excess = sum(max(p - claims[n] * q, Fraction(0)) for p, q, n in zip(first, second, counts, strict=True)) / 5**4
    assert excess == Fraction(59, 500) > Fraction(1, 10)


MU, LIMIT, DELTA = 0.1, 1000, 1e-5


def test_stopping_at_the_first_crossing_has_twelve_times_the_claimed_delta():
    """Stop as soon as the loss passes the epsilon that the executed count would claim at delta."""
    coarse, fine = (first_crossing_excess(MU, LIMIT, DELTA, mesh=mesh) / DELTA for mesh in (0.02, 0.01))
    assert fine == pytest.approx(11.6, abs=0.1)
    assert coarse == pytest.approx(fine, rel=0.01)


def test_the_best_stopping_rule_has_twenty_times_the_claimed_delta():
    assert best_rule_excess(MU, LIMIT, DELTA, mesh=0.02) / DELTA == pytest.approx(19.5, abs=0.2)


def test_a_simulated_run_agrees_with_the_dynamic_programme():
    rng = np.random.default_rng(5)
    excess = first_crossing_excess(MU, 200, 1e-2, mesh=0.01)
    claims = claimed_epsilons(MU, 200, 1e-2)
    losses = np.cumsum(rng.normal(MU**2 / 2, MU, size=(20_000, 200)), axis=1)
    crossed = losses > claims
    stopped = np.where(crossed.any(axis=1), crossed.argmax(axis=1), 199)
    rows = np.arange(len(losses))
    values = np.maximum(0.0, -np.expm1(claims[stopped] - losses[rows, stopped]))
    assert values.mean() == pytest.approx(excess, abs=4 * values.std() / np.sqrt(len(values)))
