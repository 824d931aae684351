"""The plan: every public number of a run, fixed before round 1.

A silo's sampling rate, divisor, steps, noise multiplier and weight follow from the scenario and from public sizes
alone. Nothing in a plan depends on what a shard holds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache

import pandas as pd

from accounting import (
    Federation,
    Price,
    Relation,
    Release,
    SampledGaussian,
    calibrate_noise_multiplier,
    calibrate_rounds,
    epsilon,
    number_to_json,
)
from scenarios._price import budget_of, membership_of, shown_rounds, unit_of
from scenarios._spec import Scenario
from silos import Schedule


@dataclass(frozen=True, kw_only=True)
class SiloPlan:
    """One silo's part.

    Attributes:
        silo: its name.
        size: its public number of records, declared or true by the relation.
        schedule: what each round asks of it.
        rounds: how many rounds it is asked to train.
        price: what all its rounds cost together, at the scenario's delta.
    """

    silo: str
    size: int
    schedule: Schedule
    rounds: int
    price: Price

    @property
    def steps(self) -> int:
        """Steps over the whole run."""
        return self.rounds * self.schedule.steps


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The silos' parts, in the order of the dataset, and what to know before the run."""

    silos: tuple[SiloPlan, ...]
    relation: Relation
    delta: float
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The plan as plain values."""
        silos = [
            {"silo": part.silo, "size": part.size, "rounds": part.rounds, "schedule": asdict(part.schedule)}
            | {"epsilon": number_to_json(part.price.epsilon), "method": part.price.method}
            for part in self.silos
        ]
        return {
            "relation": str(self.relation),
            "delta": self.delta,
            "epsilon": number_to_json(self.worst.price.epsilon),
            "silos": silos,
            "warnings": list(self.warnings),
        }

    @property
    def worst(self) -> SiloPlan:
        """The silo that pays most: under disjoint membership its price is the run's."""
        return max(self.silos, key=lambda part: part.price.epsilon)


def make_plan(scenario: Scenario, sizes: Mapping[str, int]) -> Plan:
    """The plan for a scenario over silos of the given public sizes.

    Args:
        scenario: the scenario.
        sizes: public number of records of each silo, each at least 1; their order is kept.

    Raises:
        ScenarioError: where a silo's sampling rate would pass 1 or a target cannot be met.
    """
    total, smallest = sum(sizes.values()), min(sizes, key=sizes.__getitem__)
    batch = scenario.training.expected_batch
    if batch is not None and batch > sizes[smallest]:
        raise scenario.error(
            "training.expected_batch",
            f"= {batch:g} is more than the {sizes[smallest]} records of the smallest silo, {smallest!r}: its sampling "
            f"rate would be above 1. Use at most {sizes[smallest]}, or give training.sampling_rate",
        )
    parts = tuple(
        _silo_plan(scenario, silo, replace(_schedule(scenario, silo, size), weight=size / total), size)
        for silo, size in sizes.items()
    )
    return Plan(
        silos=parts,
        relation=scenario.privacy.relation,
        delta=scenario.privacy.delta,
        warnings=(*_warnings(scenario, sizes), *_exhausted(scenario, parts)),
    )


def planned_federation(scenario: Scenario, plan: Plan, rounds: int) -> Federation:
    """What the run will have released after so many rounds if every silo trains in each."""
    silos = {
        part.silo: [Release(mechanism=part.schedule.mechanism(), round=number) for number in range(1, rounds + 1)]
        for part in plan.silos
    }
    return Federation(silos, membership_of(scenario), plan.relation, unit_of(scenario))


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
    return min(
        _affordable(part.schedule.mechanism(), target, plan.delta, plan.relation)
        for part in plan.silos
        if part.silo not in scenario.privacy.silos
    )


@cache
def _affordable(mechanism: SampledGaussian, target: float, delta: float, relation: Relation) -> int:
    def releases(rounds: int) -> list[SampledGaussian]:
        return [mechanism.repeated(rounds * mechanism.steps)]

    return calibrate_rounds(releases, epsilon=target, delta=delta, relation=relation)


def _schedule(scenario: Scenario, silo: str, size: int) -> Schedule:
    training = scenario.training
    rate = training.sampling_rate or 0.0
    if training.expected_batch is not None:
        rate = training.expected_batch / size
    return Schedule(
        sampling_rate=rate,
        steps=training.local_steps,
        noise_multiplier=scenario.privacy.noise_multiplier_for(silo) or 0.0,
        clip_norm=training.clip_norm,
        expected_batch=rate * size,
        learning_rate=training.learning_rate,
        momentum=training.momentum,
    )


def _silo_plan(scenario: Scenario, silo: str, schedule: Schedule, size: int) -> SiloPlan:
    rounds, privacy = scenario.training.rounds, scenario.privacy
    steps = rounds * schedule.steps
    target = privacy.epsilon_for(silo)
    if target is not None and target < float("inf"):
        sigma = _calibrated(schedule.sampling_rate, steps, target, privacy.delta, privacy.relation)
        schedule = replace(schedule, noise_multiplier=sigma)
    price = _price(schedule.sampling_rate, schedule.noise_multiplier, steps, privacy.delta, privacy.relation)
    return SiloPlan(silo=silo, size=size, schedule=schedule, rounds=rounds, price=price)


@cache
def _calibrated(rate: float, steps: int, target: float, delta: float, relation: Relation) -> float:
    def releases(sigma: float) -> list[SampledGaussian]:
        return [SampledGaussian(sampling_rate=rate, noise_multiplier=sigma, steps=steps)]

    return calibrate_noise_multiplier(releases, epsilon=target, delta=delta, relation=relation)


@cache
def _price(rate: float, sigma: float, steps: int, delta: float, relation: Relation) -> Price:
    releases = [SampledGaussian(sampling_rate=rate, noise_multiplier=sigma, steps=steps)]
    return epsilon(releases, delta=delta, relation=relation)


def _exhausted(scenario: Scenario, parts: Sequence[SiloPlan]) -> list[str]:
    """Silos whose budgets end before their rounds do."""
    told: list[str] = []
    for part in parts:
        round = part.schedule.mechanism()
        budget = budget_of(scenario, part.silo, round)
        if budget is not None and (cost := budget.spent([round])) * part.rounds > budget.total:
            told.append(
                f"The budget of silo {part.silo!r}, epsilon = {budget.epsilon:g}, admits {int(budget.total / cost)} of "
                f"its {part.rounds} rounds (as a Renyi filter at order {budget.order:g}); it declines the others."
            )
    return told


def _warnings(scenario: Scenario, sizes: Mapping[str, int]) -> tuple[str, ...]:
    delta = scenario.privacy.delta
    small = [silo for silo, size in sizes.items() if delta >= 1 / size]
    if not small:
        return ()
    return (
        f"delta = {delta:g} is at least 1/n in {len(small)} of {len(sizes)} silos (such as {small[0]!r}): publishing "
        "one random record would meet it. Choose a delta well below one over the size of the smallest silo.",
    )
