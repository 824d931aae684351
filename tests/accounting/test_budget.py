"""A budget: what it lets through, and that whatever it lets through meets it."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting._budget import Budget, shared_epsilon
from accounting._claims import NonPrivate
from accounting._errors import BudgetExhausted, InvalidValue, LedgerConflict, Unsupported
from accounting._gaussian import Gaussian, SampledGaussian
from accounting._ledger import Ledger
from accounting._mechanism import Mechanism
from accounting._rdp import ORDERS
from accounting._relations import Relation, Unit
from accounting._responses import RandomisedResponse

RELATION = Relation.ADD_OR_REMOVE_ONE
STEP = SampledGaussian(sampling_rate=0.01, noise_multiplier=1.5, steps=20)

unhurried = settings(deadline=None, derandomize=True)
epsilons = st.floats(0.1, 20)
deltas = st.floats(1e-12, 0.1)


def budget(epsilon: float = 1.0, delta: float = 1e-5, **rest) -> Budget:
    return Budget(epsilon=epsilon, delta=delta, relation=rest.pop("relation", RELATION), **rest)


def admitted(filter: Budget, mechanism: Mechanism) -> int:
    """How many times in a row the budget lets a mechanism through; at most 400."""
    times = 0
    while times < 400:
        try:
            filter.check([mechanism] * times, mechanism)
        except BudgetExhausted:
            break
        times += 1
    return times


@unhurried
@given(epsilons, deltas)
def test_the_total_converts_to_the_budget_and_no_more(epsilon: float, delta: float):
    made = budget(epsilon, delta)
    with mpmath.workdps(40):
        order = mpmath.mpf(made.order)
        # Canonne, Kamath, Steinke 2020, Proposition 12.
        converted = made.total + mpmath.log((order - 1) / order) - (mpmath.log(delta) + mpmath.log(order)) / (order - 1)
        assert epsilon * (1 - 1e-9) <= converted <= epsilon


@unhurried
@given(epsilons, deltas)
def test_no_order_of_the_grid_lets_more_gaussian_noise_through(epsilon: float, delta: float):
    made = budget(epsilon, delta)
    for order in ORDERS[::10]:
        try:
            other = budget(epsilon, delta, order=float(order))
        except InvalidValue:
            continue
        assert other.total / order <= made.total / made.order * (1 + 1e-9)


def test_an_order_that_suits_the_plan_lets_more_of_it_through():
    noisy = SampledGaussian(sampling_rate=0.01, noise_multiplier=0.7, steps=5)
    assert admitted(budget(4, suits=[noisy]), noisy) > 1.5 * admitted(budget(4), noisy)


@unhurried
@given(epsilons, st.integers(1, 300), st.floats(0.01, 0.99))
def test_gaussian_noise_is_let_through_as_often_as_its_closed_form_says(epsilon: float, times: int, more: float):
    made = budget(epsilon)
    # Renyi divergence of N(0, s^2) from N(1, s^2) at order a: a / (2 s^2) (Mironov 2017, Proposition 7).
    noise = Gaussian(noise_multiplier=math.sqrt((times + more) * made.order / (2 * made.total)))
    made.check([noise] * (times - 1), noise)
    with pytest.raises(BudgetExhausted):
        made.check([noise] * times, noise)


def _below(x: float) -> float:
    """The standard normal distribution function."""
    return math.erfc(-x / math.sqrt(2)) / 2


def _true_epsilon(mu: float, delta: float) -> float:
    """Exact epsilon of a Gaussian with sensitivity over sigma mu (Balle, Wang 2018, Theorem 8), by bisection."""
    low, high = 0.0, 200.0
    for _ in range(100):
        epsilon = (low + high) / 2
        exact = _below(mu / 2 - epsilon / mu) - math.exp(epsilon) * _below(-mu / 2 - epsilon / mu)
        low, high = (epsilon, high) if exact > delta else (low, epsilon)
    return high


@unhurried
@given(epsilons)
def test_a_budget_used_up_by_gaussian_noise_holds_and_is_not_far_from_the_truth(epsilon: float):
    made = budget(epsilon)
    # All of it: order * mu^2 / 2 = total.
    truth = _true_epsilon(math.sqrt(2 * made.total / made.order), 1e-5)
    assert 0.75 * epsilon < truth <= epsilon


def _joint(
    filter: Budget, choose: Callable[[tuple[int, ...]], RandomisedResponse], history=(), seen=()
) -> list[tuple[float, float]]:
    """Every transcript's probability under both neighbours, where each release is chosen from what was seen."""
    proposed = choose(seen)
    try:
        filter.check(history, proposed)
    except BudgetExhausted:
        return [(1.0, 1.0)]
    outcomes = []
    for bit, (p, q) in enumerate(
        [(1 - proposed.noise / 2, proposed.noise / 2), (proposed.noise / 2, 1 - proposed.noise / 2)]
    ):
        rest = _joint(filter, choose, (*history, proposed), (*seen, bit))
        outcomes += [(p * later_p, q * later_q) for later_p, later_q in rest]
    return outcomes


@pytest.mark.parametrize("seed", range(20))
def test_releases_chosen_from_earlier_outputs_meet_the_whole_budget(seed: int):
    chance = np.random.default_rng(seed)
    made = budget(chance.uniform(1.5, 2.5), chance.choice([0.01, 0.05]), relation=Relation.REPLACE_ONE)
    noises = chance.uniform(0.7, 0.9, size=1000)
    chosen: dict[tuple[int, ...], RandomisedResponse] = {}

    def choose(seen: tuple[int, ...]) -> RandomisedResponse:
        return chosen.setdefault(seen, RandomisedResponse(noise=noises[len(chosen) % 1000]))

    outcomes = np.array(_joint(made, choose))
    assert len(outcomes) > 8
    np.testing.assert_allclose(outcomes.sum(axis=0), 1)
    for p, q in (outcomes.T, outcomes.T[::-1]):
        assert np.maximum(p - math.exp(made.epsilon) * q, 0).sum() <= made.delta
        divergence = math.log((p**made.order * q ** (1 - made.order)).sum()) / (made.order - 1)
        assert divergence <= made.total * (1 + 1e-9)


@pytest.mark.parametrize("relation", list(Relation))
def test_each_relation_is_charged_its_own_price(relation: Relation):
    made = budget(relation=relation)
    sensitivity = 2 if relation is Relation.REPLACE_ONE else 1
    expected = made.order * (sensitivity / 5) ** 2 / 2
    assert made.spent([Gaussian(noise_multiplier=5)]) == pytest.approx(expected, rel=1e-9)


def test_directions_stay_apart_until_the_end():
    made = budget(epsilon=10, order=4.0)
    costs = STEP.renyi(RELATION, np.array([4.0]))
    assert costs.remove[0] != costs.add[0]
    assert made.spent([STEP, STEP]) == pytest.approx(40 * max(costs.remove[0], costs.add[0]), rel=1e-12)


def test_a_budget_of_zero_admits_only_what_costs_nothing():
    made = budget(epsilon=0)
    assert made.total == made.remaining([]) == 0
    made.check([], STEP.repeated(0))
    made.check([], SampledGaussian(sampling_rate=0, noise_multiplier=1, steps=100))
    with pytest.raises(BudgetExhausted):
        made.check([], SampledGaussian(sampling_rate=1e-6, noise_multiplier=100))
    assert shared_epsilon([made, made], delta=1e-5) == 0


def test_a_release_without_noise_is_refused_by_every_finite_budget():
    bare = NonPrivate()
    with pytest.raises(BudgetExhausted) as refused:
        budget(epsilon=1000).check([], bare)
    assert refused.value.requested == math.inf
    budget(epsilon=math.inf).check([bare], bare)
    assert budget().spent([bare.repeated(0)]) == 0


def test_a_refusal_carries_what_was_asked_and_what_is_left():
    made = budget(suits=[STEP])
    before = [STEP] * admitted(made, STEP)
    with pytest.raises(BudgetExhausted, match="the budget is epsilon=1, delta=1e-05") as refused:
        made.check(before, STEP)
    assert refused.value.requested == pytest.approx(made.spent([STEP]))
    assert refused.value.remaining == made.remaining(before) == pytest.approx(made.total - made.spent(before))
    assert refused.value.requested > refused.value.remaining >= 0


def test_remaining_is_never_negative_and_falls_with_every_release():
    made = budget(suits=[STEP])
    left = [made.remaining([STEP] * times) for times in range(60)]
    assert left[0] == made.total
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0


def test_asking_changes_nothing():
    made = budget(suits=[STEP])
    releases = [STEP] * 3
    answers = {(made.spent(releases), made.remaining(releases), made.total, made.order) for _ in range(3)}
    assert len(answers) == 1
    assert releases == [STEP] * 3


@pytest.mark.parametrize(
    ("field", "value"),
    [("epsilon", -1), ("epsilon", math.nan), ("delta", 0), ("delta", 1), ("order", 1), ("order", math.inf)],
)
def test_a_value_out_of_range_is_named(field: str, value: float):
    with pytest.raises(InvalidValue, match=f"Expected {field}"):
        budget(**{field: value})


def test_a_budget_that_no_order_converts_to_is_refused_instead_of_being_nothing():
    with pytest.raises(InvalidValue, match=r"to be at least 0\.00575"):
        budget(epsilon=0.001, delta=1e-6)


def test_a_unit_that_a_mechanism_does_not_cover_has_no_price():
    individual = budget(unit=Unit(individual=True, records=2))
    with pytest.raises(Unsupported, match="individual with at most 2 records"):
        individual.check([], STEP)
    individual.check([], Gaussian(noise_multiplier=100, by_individual=True))


def test_a_budget_read_back_is_the_same():
    for made in (budget(suits=[STEP]), budget(math.inf), budget(unit=Unit(individual=True, records=3), order=30)):
        assert Budget.from_json(json.loads(json.dumps(made.to_json()))) == made
    with pytest.raises(InvalidValue, match="'order' is missing"):
        Budget.from_json({key: value for key, value in budget().to_json().items() if key != "order"})
    for field, value in (("relation", "closest"), ("epsilon", "much"), ("records", "2"), ("delta", None)):
        with pytest.raises(InvalidValue):
            Budget.from_json(budget().to_json() | {field: value})


def test_the_sentence_quotes_the_whole_budget():
    assert "(1, 1e-05)-differentially private for one record, add-or-remove-one" in budget().sentence()


def _charge(ledger: Ledger, round: int, made: Budget, run: str = "a"):
    return ledger.charge(
        silo="north", run=run, round=round, attempt=0, item="update", mechanism=STEP, request="r", admit=made.check
    )


def test_a_ledger_stops_a_budget_over_all_its_runs_and_counts_unused_steps(tmp_path: Path):
    made = budget(suits=[STEP])
    most = admitted(made, STEP)
    with Ledger.open(tmp_path / "ledger.db", create=True) as ledger:
        for round in range(most):
            ledger.release(_charge(ledger, round, made, run="ab"[round % 2]), executed=0, output="hash")
        head = ledger.head("north")
        with pytest.raises(BudgetExhausted):
            _charge(ledger, most, made, run="c")
        assert ledger.head("north") == head
        assert _charge(ledger, 0, made).state == "released"


def test_a_budget_kept_in_its_ledger_cannot_be_changed(tmp_path: Path):
    with Ledger.open(tmp_path / "ledger.db", create=True) as ledger:
        ledger.fix("north", "budget", json.dumps(budget().to_json()))
        assert Budget.from_json(json.loads(ledger.fixed("north", "budget") or "")) == budget()
        with pytest.raises(LedgerConflict):
            ledger.fix("north", "budget", json.dumps(budget(epsilon=2).to_json()))


def test_one_silo_alone_shares_its_own_budget():
    assert shared_epsilon([budget(3)], delta=1e-5) == pytest.approx(3, rel=1e-9)


@unhurried
@given(st.lists(epsilons, min_size=2, max_size=4))
def test_silos_that_share_individuals_hold_together_what_is_shared(epsilons: list[float]):
    budgets = [budget(epsilon) for epsilon in epsilons]
    together = shared_epsilon(budgets, delta=1e-5)
    used_up = sum(2 * each.total / each.order for each in budgets)
    assert _true_epsilon(math.sqrt(used_up), 1e-5) <= together
    assert max(epsilons) <= together * (1 + 1e-9)
    with mpmath.workdps(40):
        order, total = mpmath.mpf(min(each.order for each in budgets)), sum(each.total for each in budgets)
        converted = total + mpmath.log((order - 1) / order) - (mpmath.log(1e-5) + mpmath.log(order)) / (order - 1)
    assert together == pytest.approx(float(converted), rel=1e-9)


def test_only_budgets_of_one_relation_and_unit_are_shared():
    for budgets in ([], [budget(), budget(relation=Relation.ZERO_OUT)], [budget(), budget(unit=Unit(individual=True))]):
        with pytest.raises(InvalidValue, match="under the same relation and unit"):
            shared_epsilon(budgets, delta=1e-5)
