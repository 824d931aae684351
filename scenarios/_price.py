"""Prices of a run: the guarantee, and what each silo has spent after each round."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from accounting import (
    AtMost,
    Budget,
    Disjoint,
    Federation,
    Guarantee,
    InvalidValue,
    Ledger,
    Mechanism,
    Membership,
    Unit,
    Unknown,
    epsilon,
)
from accounting._guarantee import ORACLE
from scenarios._account import FACTS, FIXED, PUBLIC, REACTS, membership_text
from scenarios.spec._scenario import Scenario
from silos._public import not_covered

MOST_POINTS = 20
"""Rounds of a run that are priced for its curve."""


def membership_of(scenario: Scenario) -> Membership:
    """Who may be in which silos, as the scenario declares and the loader enforces."""
    if scenario.silos.pooled:
        return Disjoint()
    if scenario.silos.membership == "at-most":
        return AtMost(scenario.silos.max_silos or 1)
    return Disjoint() if scenario.silos.membership == "disjoint" else Unknown()


def unit_of(scenario: Scenario) -> Unit:
    """An individual where the scenario names individuals and does not say otherwise, else a record."""
    if not scenario.protects_individuals:
        return Unit()
    pooled = (scenario.silos.max_silos or 1) if scenario.silos.pooled else 1
    return Unit(individual=True, records=pooled * scenario.data.records_per_individual)


def participation_reacts(scenario: Scenario) -> bool:
    """Whether the run may end by what it sees: then all of its declared rounds are the price."""
    return scenario.training.stop_at is not None


def spent_in_words(scenario: Scenario) -> str:
    """What the price of the rounds so far is: no guarantee where the run may end by what it sees."""
    return "epsilon, had these rounds been fixed" if participation_reacts(scenario) else "epsilon so far"


def count_chooses_law(scenario: Scenario) -> bool:
    """Whether a silo's sampling rate, and the noise calibrated to it, follow from a noisy count of its shard."""
    return scenario.privacy.size_epsilon is not None and scenario.training.expected_batch is not None


def budget_of(scenario: Scenario, silo: str, round: Mechanism) -> Budget | None:
    """The limit of a silo's ledger, set for many releases like one round; None where there is none.

    Its order is fixed before the first release. So where a count is to choose the round's law, it may not depend on
    that law: it is then the one for Gaussian noise. The filter itself allows laws that react to releases.

    Raises:
        ScenarioError: for a budget below what no release can be priced at.
    """
    limit, privacy = scenario.privacy.budget_for(silo), scenario.privacy
    if limit is None:
        return None
    suits = [] if count_chooses_law(scenario) else [round]
    try:
        return Budget(
            epsilon=limit, delta=privacy.delta, relation=privacy.relation, unit=unit_of(scenario), suits=suits
        )
    except InvalidValue as error:
        raise scenario.error("privacy.budget", f"= {limit:g} for silo {silo!r}: {error}") from None


def terms(scenario: Scenario) -> dict[str, str]:
    """What a run fixes in the ledger of every silo, so that it cannot be priced under other terms later."""
    participation = REACTS if participation_reacts(scenario) else FIXED
    values = (scenario.privacy.relation, membership_text(membership_of(scenario)), unit_of(scenario), participation)
    fixed = dict(zip(FACTS, map(str, values), strict=True))
    return fixed | ({PUBLIC: " ".join(sorted(scenario.silos.public))} if scenario.silos.public else {})


def price_run(scenario: Scenario, ledger: Ledger) -> Guarantee:
    """The guarantee for everything that the ledger holds, at the scenario's delta."""
    federation = Federation.from_ledger(
        ledger,
        membership_of(scenario),
        scenario.privacy.relation,
        unit_of(scenario),
        participation_reacts=participation_reacts(scenario),
    )
    guarantee = federation.guarantee(delta=scenario.privacy.delta)
    lines = (line for line in guarantee.not_covered if line != ORACLE or uses_oracle(scenario))
    return replace(guarantee, not_covered=(*lines, *not_covered(frozenset(scenario.silos.public))))


def uses_oracle(scenario: Scenario) -> bool:
    """Whether the simulator evaluates on held-out records, which nobody could in a deployment."""
    return scenario.evaluation.oracle and scenario.evaluation.test_fraction != 0


def epsilons_by_round(
    scenario: Scenario, rounds: int, released: Mapping[str, Sequence[tuple[int, Mechanism]]]
) -> pd.DataFrame:
    """What each silo has spent after each round, at the scenario's delta.

    Args:
        scenario: whose relation and delta.
        rounds: number of the last round.
        released: each silo's releases with their rounds.

    Returns:
        Rows with columns round, silo, epsilon, for the rounds of `shown_rounds`.
    """
    shown = shown_rounds(rounds)
    known: dict[tuple[tuple[int, Mechanism], ...], dict[int, float]] = {}
    for releases in map(tuple, released.values()):
        if releases not in known:
            known[releases] = {last: _spent(scenario, releases, last) for last in shown}
    rows = [
        (last, silo, price) for silo, releases in released.items() for last, price in known[tuple(releases)].items()
    ]
    return pd.DataFrame(rows, columns=["round", "silo", "epsilon"])


def shown_rounds(rounds: int) -> list[int]:
    """About `MOST_POINTS` rounds of so many, evenly spaced, the first and the last among them."""
    stride = max(1, -(-rounds // MOST_POINTS))
    return sorted({1, rounds, *range(stride, rounds + 1, stride)})


def executed(ledger: Ledger) -> dict[str, list[tuple[int, Mechanism]]]:
    """Each silo's releases with their rounds, as the ledger holds them."""
    return {
        silo: [(charge.key.round, charge.priced()) for charge in charges]
        for silo in ledger.silos()
        if (charges := ledger.charges(silo))
    }


def _spent(scenario: Scenario, releases: Sequence[tuple[int, Mechanism]], last: int) -> float:
    privacy = scenario.privacy
    until = [mechanism for number, mechanism in releases if number <= last]
    return epsilon(until, relation=privacy.relation, delta=privacy.delta).epsilon
