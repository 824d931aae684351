"""A law chosen by an earlier output: what the ledger charges bounds it, what was executed does not.

The exact route: a noisy count takes each integer with a known probability and each count names one Gaussian law, so the
delta of the pair is a sum over counts of hockey-stick divergences in closed form.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

from accounting import (
    Allowance,
    ApproximateEpsilon,
    Budget,
    BudgetExhausted,
    Charge,
    DiscreteLaplace,
    Disjoint,
    Federation,
    Ledger,
    LedgerConflict,
    LedgerCorrupt,
    Mechanism,
    PureEpsilon,
    Relation,
    SampledGaussian,
    calibrate_noise_multiplier,
    epsilon,
)
from accounting._ledger import Admit
from accounting._ledger_exports import read_json, write_json
from accounting._ledger_files import LedgerFile
from accounting._ledger_log import replay
from accounting._ledger_rows import GENESIS, Row

ADD_OR_REMOVE = Relation.ADD_OR_REMOVE_ONE
SIZE_EPSILON, EPSILON, DELTA = 0.3, 0.7, 1e-5
RECORDS, BATCH = 12, 6.0
COUNTS = range(RECORDS - 200, RECORDS + 200)
COUNT = DiscreteLaplace(scale=1 / SIZE_EPSILON, replace_sensitivity=0)
ALLOWANCE = Allowance(item="update", epsilon=EPSILON, delta=DELTA)


def probability(count: int, records: int) -> float:
    """Of a noisy count, by its closed form (Ghosh, Roughgarden, Sundararajan 2012)."""
    return math.tanh(SIZE_EPSILON / 2) * math.exp(-SIZE_EPSILON * abs(count - records))


def divergence(loss: float, rate: float, sigma: float) -> float:
    """E[(P - e^loss Q)+] for P = (1-q) N(0, s^2) + q N(1, s^2) and Q = N(0, s^2), in closed form."""
    if loss <= math.log1p(-rate) if rate < 1 else False:
        return 1 - math.exp(loss)
    edge = sigma**2 * math.log((math.exp(loss) - 1 + rate) / rate) + 0.5
    kept = (1 - rate) * ndtr(-edge / sigma) + rate * ndtr((1 - edge) / sigma)
    return float(kept - math.exp(loss) * ndtr(-edge / sigma))


def true_delta(claim: float, law: Callable[[int], tuple[float, float]]) -> float:
    """Exact delta at a claimed epsilon, removing a record: the count, and one step under the law that it names."""
    total = 0.0
    for count in COUNTS:
        with_record, without = probability(count, RECORDS), probability(count, RECORDS - 1)
        total += with_record * divergence(claim - math.log(with_record / without), *law(count))
    return total


def rate_of(count: int) -> float:
    return min(1.0, BATCH / max(1, count))


def calibrated(count: int) -> tuple[float, float]:
    """The rate that a count names, and the noise that then meets (epsilon, delta), by the closed form alone."""
    rate = rate_of(count)
    return rate, float(brentq(lambda sigma: divergence(EPSILON, rate, sigma) - DELTA, 0.2, 50))


def fixed(count: int) -> tuple[float, float]:
    """The rate that a count names, at the noise of the true count."""
    return rate_of(count), calibrated(RECORDS)[1]


def naive(count: int, law: Callable[[int], tuple[float, float]]) -> float:
    """The price of what was executed: the count, and the law it happened to name."""
    rate, sigma = law(count)
    step = SampledGaussian(sampling_rate=rate, noise_multiplier=sigma)
    return epsilon([COUNT, step], relation=ADD_OR_REMOVE, delta=DELTA).epsilon


def test_calibrating_after_the_count_costs_at_most_the_sum() -> None:
    assert true_delta(SIZE_EPSILON + EPSILON, calibrated) <= DELTA
    price = epsilon([COUNT, ALLOWANCE], relation=ADD_OR_REMOVE, delta=1.001 * DELTA).epsilon
    assert price == pytest.approx(SIZE_EPSILON + EPSILON, rel=1e-4)


def test_pricing_the_executed_law_of_a_large_count_is_far_too_small() -> None:
    # At fixed noise a large count looks cheap, although small ones were as likely before it was drawn.
    claim = naive(RECORDS + 12, fixed)
    assert true_delta(claim, fixed) > 3 * DELTA
    assert claim < 0.8 * (SIZE_EPSILON + EPSILON)


def test_pricing_the_executed_law_is_too_small_even_when_noise_was_calibrated_after_the_count() -> None:
    claims = {count: naive(count, calibrated) for count in range(RECORDS - 8, RECORDS + 9, 4)}
    assert any(true_delta(claim, calibrated) > DELTA for claim in claims.values())
    assert all(claim <= SIZE_EPSILON + EPSILON for claim in claims.values())


def test_every_count_meets_the_same_target_by_the_library_too() -> None:
    for count in (-3, 5, 12, 40):
        rate = rate_of(count)

        def one(sigma: float, rate: float = rate) -> list[SampledGaussian]:
            return [SampledGaussian(sampling_rate=rate, noise_multiplier=sigma)]

        sigma = calibrate_noise_multiplier(one, epsilon=EPSILON, delta=DELTA, relation=ADD_OR_REMOVE)
        assert divergence(EPSILON, rate, sigma) <= DELTA
        assert ALLOWANCE.affords(one(sigma))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.db", create=True) as opened:
        yield opened


STEP = SampledGaussian(sampling_rate=0.1, noise_multiplier=6.0, steps=4)


def charge(
    ledger: Ledger, round: int, item: str = "update", mechanism: Mechanism = STEP, admit: Admit | None = None
) -> Charge:
    return ledger.charge(
        silo="north", run="run", round=round, attempt=0, item=item, mechanism=mechanism, request="r", admit=admit
    )


def begin(ledger: Ledger) -> None:
    ledger.declare("north", "run", 1, COUNT, item="size")
    ledger.release(charge(ledger, 0, "size", COUNT), executed=1, output="o")
    ledger.declare("north", "run", 1, ALLOWANCE, item="training")
    charge(ledger, 0, "training", ALLOWANCE)
    ledger.declare("north", "run", 5, STEP)


def price(ledger: Ledger, *, participation_reacts: bool = False) -> float:
    federation = Federation.from_ledger(ledger, Disjoint(), ADD_OR_REMOVE, participation_reacts=participation_reacts)
    return federation.epsilon(1.001 * DELTA)


def test_a_run_costs_its_allowance_however_little_of_it_is_executed(ledger: Ledger) -> None:
    begin(ledger)
    before = price(ledger)
    assert before == pytest.approx(SIZE_EPSILON + EPSILON, rel=1e-4)
    ledger.release(charge(ledger, 1), executed=3, output="o")
    ledger.fail(charge(ledger, 2), "crashed")
    assert price(ledger) == before == price(ledger, participation_reacts=True)
    assert ledger.charged("north") == [COUNT, STEP, STEP]
    assert [each.executed for each in ledger.charges("north")] == [1, None, 3, None]


def test_an_allowance_costs_all_of_itself_whatever_becomes_of_its_row(ledger: Ledger) -> None:
    begin(ledger)
    before = price(ledger)
    ledger.release(ledger.charges("north")[1], executed=0, output="o")
    assert price(ledger) == before


def test_a_run_may_not_declare_more_than_its_allowance(ledger: Ledger) -> None:
    ledger.declare("north", "run", 1, ALLOWANCE, item="training")
    for rounds, step in ((10_000, STEP), (1, SampledGaussian(sampling_rate=0.5, noise_multiplier=0.5))):
        with pytest.raises(LedgerConflict, match="more than its allowance"):
            ledger.declare("north", "run", rounds, step)
    ledger.declare("north", "run", 5, STEP)
    with pytest.raises(LedgerConflict, match="more than its allowance"):
        ledger.declare("north", "run", 10_000, STEP.repeated(3))


def test_nothing_is_free_before_its_allowance_was_charged(ledger: Ledger) -> None:
    ledger.declare("north", "run", 1, ALLOWANCE, item="training")
    ledger.declare("north", "run", 5, STEP)
    with pytest.raises(LedgerConflict, match="comes before the allowance"):
        charge(ledger, 1)
    assert ledger.releases("north") == []


def test_an_allowance_comes_before_its_item_and_once(ledger: Ledger) -> None:
    with pytest.raises(LedgerConflict, match="did not declare the allowance"):
        charge(ledger, 0, "training", ALLOWANCE)
    ledger.declare("north", "late", 5, STEP)
    with pytest.raises(LedgerConflict, match="before it declares that item"):
        ledger.declare("north", "late", 1, ALLOWANCE, item="training")
    ledger.declare("north", "run", 1, ALLOWANCE, item="training")
    other = Allowance(item="update", epsilon=5.0, delta=DELTA)
    with pytest.raises(LedgerConflict, match="one allowance"):
        ledger.declare("north", "run", 1, other, item="second")


def test_an_allowance_of_one_run_pays_for_no_other(ledger: Ledger) -> None:
    begin(ledger)
    mechanism = SampledGaussian(sampling_rate=1.0, noise_multiplier=0.5)
    ledger.charge(silo="north", run="other", round=1, attempt=0, item="update", mechanism=mechanism, request="r")
    assert ledger.releases("north")[-1] == mechanism


def test_a_budget_counts_each_law_that_a_count_chose_and_never_the_allowance(ledger: Ledger) -> None:
    # A filter licenses laws that react to releases (Feldman, Zrnic 2021), so that it adds up what was asked for.
    seen: list[tuple[list[Mechanism], Mechanism]] = []

    def admit(spent: Sequence[Mechanism], asked: Mechanism) -> None:
        seen.append((list(spent), asked))

    ledger.declare("north", "run", 1, ALLOWANCE, item="training")
    charge(ledger, 0, "training", ALLOWANCE, admit=admit)
    ledger.declare("north", "run", 5, STEP)
    charge(ledger, 1, admit=admit)
    charge(ledger, 2, admit=admit)
    assert seen == [([], STEP), ([STEP], STEP)]


def test_a_budget_stops_training_under_an_allowance_before_it_is_passed(ledger: Ledger) -> None:
    begin(ledger)
    held, wide = 3, Budget(epsilon=2.0, delta=DELTA, relation=ADD_OR_REMOVE, order=30.0)
    needed = wide.spent([COUNT, *[STEP] * held]) + wide.spent([STEP]) / 2
    budget = Budget(epsilon=2.0 - wide.total + needed, delta=DELTA, relation=ADD_OR_REMOVE, order=30.0)
    for number in range(1, held + 1):
        charge(ledger, number, admit=budget.check)
    head = ledger.head("north")
    with pytest.raises(BudgetExhausted):
        charge(ledger, held + 1, admit=budget.check)
    assert ledger.head("north") == head
    assert budget.spent(ledger.charged("north")) <= budget.total < budget.spent([*ledger.charged("north"), STEP])


# A law chosen after the item's own first output: both courses fit the allowance, the strategy does not.
FIRST = PureEpsilon(epsilon=0.2)
SECOND = (PureEpsilon(epsilon=1.2), ApproximateEpsilon(epsilon=0.0, delta=0.0765973))
NARROW = Allowance(item="update", epsilon=1.2, delta=0.0767)


def response(epsilon: float, delta: float) -> list[tuple[float, float]]:
    """The (epsilon, delta)-DP mechanism that gives most away, as atoms under P and Q (Kairouz, Oh, Viswanath 2015)."""
    yes = (1 - delta) / (1 + math.exp(-epsilon))
    no = 1 - delta - yes
    return [(delta, 0.0), (yes, no), (no, yes), (0.0, delta)]


def excess(atoms: Sequence[tuple[float, float]], factor: float) -> float:
    return sum(max(one - factor * other, 0.0) for one, other in atoms)


def narrow(ledger: Ledger) -> None:
    ledger.declare("north", "run", 1, NARROW, item="training")
    charge(ledger, 0, "training", NARROW)
    ledger.declare("north", "run", 1, FIRST)


def test_a_law_chosen_after_an_output_of_its_item_would_cost_more_than_each_course() -> None:
    courses = [
        [(p * each, q * other) for p, q in response(0.2, 0) for each, other in response(epsilon, delta)]
        for epsilon, delta in ((1.2, 0.0), (0.0, 0.0765973))
    ]
    factor = math.exp(NARROW.epsilon)
    assert all(excess(course, factor) <= NARROW.delta for course in courses)
    chosen = sum(
        p * max(excess(response(1.2, 0), factor * q / p), excess(response(0, 0.0765973), factor * q / p))
        for p, q in response(0.2, 0)
        if p > 0
    )
    assert chosen == pytest.approx(0.1111, abs=1e-4)


@pytest.mark.parametrize("law", SECOND)
def test_no_law_is_declared_under_an_allowance_after_the_first_charge_of_its_item(
    ledger: Ledger, law: Mechanism
) -> None:
    narrow(ledger)
    first = charge(ledger, 1, mechanism=FIRST)
    for end in (lambda: None, lambda: ledger.release(first, executed=1, output="o")):
        end()
        head = ledger.head("north")
        with pytest.raises(LedgerConflict, match="declared before the first charge"):
            ledger.declare("north", "run", 1, law)
        assert ledger.head("north") == head
    ledger.declare("north", "run", 1, FIRST)
    ledger.declare("north", "run", 1, law, item="other")
    assert ledger.verify() == {"north": ledger.head("north")}


@pytest.mark.parametrize("law", SECOND)
def test_both_laws_may_be_declared_before_the_first_charge_where_they_fit(ledger: Ledger, law: Mechanism) -> None:
    narrow(ledger)
    ledger.declare("north", "run", 1, law)
    charge(ledger, 1, mechanism=FIRST)
    charge(ledger, 2, mechanism=law)
    assert ledger.charged("north") == [FIRST, law]


def forged(ledger: Ledger, tmp_path: Path, event: str, change: Callable[[Row], Row]) -> Path:
    """An export whose rows after one of some event are as a ledger without rules would have sealed them."""
    source = tmp_path / "forged.json"
    ledger.export_json(source)
    rows, head = [], GENESIS
    for row in read_json(source):
        row = (change(row) if row.event == event else row)._replace(previous=head)
        rows.append(row._replace(hash=row.digest()))
        head = rows[-1].hash
    write_json(source, rows)
    return source


def test_an_import_refuses_a_chain_that_declared_a_law_after_the_first_charge(ledger: Ledger, tmp_path: Path) -> None:
    narrow(ledger)
    charge(ledger, 1, mechanism=FIRST)
    ledger.declare("north", "run", 1, SECOND[0], item="other")
    source = forged(
        ledger, tmp_path, "declared", lambda row: row._replace(item="update") if row.item == "other" else row
    )
    with pytest.raises(LedgerCorrupt, match="declared before the first charge"):
        Ledger.import_json(source, tmp_path / "new.db")


def test_a_chain_that_declared_more_than_its_allowance_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    narrow(ledger)
    assert replay(tmp_path, read_json(forged(ledger, tmp_path, "declared", lambda row: row)))
    source = forged(ledger, tmp_path, "declared", lambda row: row._replace(rounds=30) if row.item == "update" else row)
    with pytest.raises(LedgerCorrupt, match="more than its allowance"):
        Ledger.import_json(source, tmp_path / "new.db")
    file = LedgerFile.open(tmp_path / "new.db", create=True, read_only=False)
    with file.transaction():
        file.append(1, read_json(source))
    file.close()
    with Ledger.open(tmp_path / "new.db") as other, pytest.raises(LedgerCorrupt, match="more than its allowance"):
        other.verify()
