"""Questions to a plan: what each method says of it, how many rounds the budget affords, which sampling is cheaper."""

import math
from dataclasses import replace
from functools import cache

import pandas as pd

from accounting import Federation, Mechanism, Relation, calibrate_rounds, epsilon
from scenarios._groups import grouped
from scenarios._plan import federation_of
from scenarios._plan_parts import Plan
from scenarios._price import membership_of, shown_rounds
from scenarios.spec._scenario import Scenario


def planned_federation(scenario: Scenario, plan: Plan, rounds: int) -> Federation:
    """What the run will have released after so many rounds if every silo trains in each."""
    return federation_of(scenario, plan.silos, rounds)


def methods_by_round(scenario: Scenario, plan: Plan) -> pd.DataFrame:
    """What the methods of the ladder will say after each round, at the scenario's delta.

    Returns:
        Rows with columns round, method, epsilon; at most `MOST_POINTS` rounds or so.
    """
    rows = [
        (last, rung.method, rung.epsilon)
        for last in shown_rounds(scenario.training.rounds)
        for rung in planned_federation(scenario, plan, last).ladder(plan.delta)
    ]
    return pd.DataFrame(rows, columns=["round", "method", "epsilon"])


def affordable_rounds(scenario: Scenario, plan: Plan) -> int | None:
    """The most rounds that the scenario's epsilon affords at the plan's noise; None where it names no finite one."""
    target = scenario.privacy.epsilon
    if target is None or math.isinf(target):
        return None
    together = membership_of(scenario).cap(len(plan.silos))
    own = grouped(scenario, [part.silo for part in plan.silos]).privacy.silos
    counts = (
        _affordable(
            part.schedule.mechanism(),
            part.fixed_costs() if part.allowance is None else (),
            target if part.allowance is None else part.allowance.epsilon,
            plan.delta if part.allowance is None else part.allowance.delta,
            plan.relation,
            together,
            scenario.training.fine_tune_rounds if part.twice else None,
        )
        for part in plan.silos
        if part.silo not in own
    )
    return min(counts, default=None)


@cache
def _affordable(
    law: Mechanism,
    others: tuple[Mechanism, ...],
    target: float,
    delta: float,
    relation: Relation,
    together: int,
    once: int | None,
) -> int:
    """`once`: rounds at the end that ask for one model, where those before ask for two; None where all ask for one."""

    def releases(rounds: int) -> list[Mechanism]:
        models = rounds if once is None else rounds + max(0, rounds - once)
        return [*others, law.repeated(models * law.steps)] * together

    return calibrate_rounds(releases, epsilon=target, delta=delta, relation=relation)


def sampling_compared(plan: Plan) -> str | None:
    """What sampling individuals and sampling records cost at the plan's rate, and which is cheaper.

    None where no individual may have several records. A sampled individual is clipped as one; sampled records are
    clipped one by one, so that an individual's may add up.
    """
    part = plan.worst
    if part.schedule.records == 1:
        return None
    prices = {
        name: epsilon(
            [replace(part.schedule, by_individual=flag).mechanism().repeated(part.steps)],
            delta=plan.delta,
            relation=plan.relation,
        ).epsilon
        for name, flag in (("individuals", True), ("records", False))
    }
    cheaper = min(prices, key=prices.__getitem__)
    told = ", ".join(f"{name} {price:.4g}" for name, price in prices.items())
    return (
        f"For an individual with at most {part.schedule.records} records, at q = {part.schedule.sampling_rate:.4g} and "
        f"sigma = {part.schedule.noise_multiplier:.4g}, epsilon by what is sampled: {told}. Sampling {cheaper} is "
        "cheaper."
    )
