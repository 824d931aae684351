"""The plan: every public number of a run, fixed before round 1.

A silo's sampling rate, divisor, steps, noise multiplier and weight follow from the scenario and from public sizes
alone: declared ones, true ones where the relation makes them public, or noisy counts that the silos were charged for.
Nothing else in a plan depends on what a shard holds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from accounting import (
    Allowance,
    Federation,
    Mechanism,
    Price,
    Relation,
    calibrate_noise_multiplier,
    epsilon,
)
from scenarios._asked import HELD_OUT, allowance_of, asked_of_silos, bought, left_for_training, training_bought
from scenarios._groups import grouped
from scenarios._plan_parts import Plan, Share, SiloPlan
from scenarios._price import budget_of, membership_of, unit_of
from scenarios._weights import weighted
from scenarios.spec._scenario import Scenario
from scenarios.spec._strategies import FedProx, Krum
from silos import Schedule
from silos._public import not_covered


def make_plan(scenario: Scenario, sizes: Mapping[str, int]) -> Plan:
    """The plan for a scenario over silos of the given public sizes.

    Args:
        scenario: the scenario.
        sizes: public number of records of each silo, each at least 1; their order is kept.

    Raises:
        ScenarioError: where a silo's sampling rate would pass 1 or a target cannot be met.
    """
    scenario = grouped(scenario, sizes)
    smallest = min(sizes, key=sizes.__getitem__)
    batch = scenario.training.expected_batch
    if batch is not None and batch > sizes[smallest] and scenario.privacy.size_epsilon is None:
        raise scenario.error(
            "training.expected_batch",
            f"= {batch:g} is more than the {sizes[smallest]} records of the smallest silo, {smallest!r}: its sampling "
            f"rate would be above 1. Use at most {sizes[smallest]}, or give training.sampling_rate",
        )
    _check_count(scenario, len(sizes))
    parts = tuple(
        _silo_plan(
            scenario,
            silo,
            _schedule(scenario, silo, size),
            size,
            allowance_of(scenario, silo, membership_of(scenario).cap(len(sizes))),
            membership_of(scenario).cap(len(sizes)),
        )
        for silo, size in sizes.items()
    )
    parts, price = _together(scenario, parts)
    return Plan(
        silos=weighted(scenario, parts),
        relation=scenario.privacy.relation,
        delta=scenario.privacy.delta,
        epsilon=price,
        sizes=_kind_of_sizes(scenario),
        budget=_budget(max(parts, key=lambda part: part.price.epsilon), scenario),
        warnings=(*_warnings(scenario, sizes), *_exhausted(scenario, parts)),
        groups={silo: own.group for silo, own in scenario.privacy.silos.items() if own.group is not None},
    )


def _check_count(scenario: Scenario, silos: int) -> None:
    strategy = scenario.training.strategy
    if isinstance(strategy, Krum) and not scenario.silos.pooled and silos < (least := 2 * strategy.malicious + 3):
        raise scenario.error(
            "training.strategy.malicious", f"= {strategy.malicious} needs at least {least} silos; there are {silos}"
        )


def federation_of(scenario: Scenario, parts: Sequence[SiloPlan], rounds: int) -> Federation:
    """What the parts will have released after so many rounds if every silo trains in each."""
    silos = {part.silo: part.releases(rounds) for part in parts}
    silos |= {part.silo + HELD_OUT: apart for part in parts if (apart := part.apart())}
    return Federation(silos, membership_of(scenario), scenario.privacy.relation, unit_of(scenario))


def _together(scenario: Scenario, parts: tuple[SiloPlan, ...]) -> tuple[tuple[SiloPlan, ...], float]:
    """The parts, and the price of the worst set of silos that one unit may be in.

    Each silo was calibrated as if the others of a set were like it. Sets of unlike silos may cost a little more; then
    all of them get a little more noise.
    """
    privacy, rounds = scenario.privacy, scenario.training.rounds
    if membership_of(scenario).cap(len(parts)) == 1:
        return parts, max(part.price.epsilon for part in parts)
    price = federation_of(scenario, parts, rounds).epsilon(privacy.delta)
    calibrated = privacy.epsilon is not None and privacy.epsilon < math.inf and not privacy.silos
    while calibrated and price > (privacy.epsilon or 0.0) and all(part.allowance is None for part in parts):
        more = max(1.001, price / (privacy.epsilon or price))
        parts = tuple(_priced(scenario, _with_noise(part, part.schedule.noise_multiplier * more)) for part in parts)
        price = federation_of(scenario, parts, rounds).epsilon(privacy.delta)
    return parts, price


def _schedule(scenario: Scenario, silo: str, size: int) -> Schedule:
    training = scenario.training
    shared = training.contribution == "shared" and not scenario.silos.pooled
    share = 1.0 / (scenario.silos.max_silos or 1) if shared else 1.0
    rate = training.sampling_rate or 0.0
    if training.expected_batch is not None:
        rate = min(1.0, training.expected_batch / size)
    return Schedule(
        sampling_rate=rate,
        steps=training.local_steps,
        # Relative to what the silo clips to: the noise is that of the whole clip norm.
        noise_multiplier=(scenario.privacy.noise_multiplier_for(silo) or 0.0) / share,
        clip_norm=training.clip_norm * share,
        expected_batch=rate * size,
        learning_rate=training.learning_rate,
        momentum=training.momentum,
        pull=training.strategy.pull if isinstance(training.strategy, FedProx) else 0.0,
        records=unit_of(scenario).records,
        by_individual=training.sampling == "individuals",
    )


def _silo_plan(
    scenario: Scenario, silo: str, schedule: Schedule, size: int, allowance: Allowance | None, together: int
) -> SiloPlan:
    """One silo's part, its noise calibrated for a unit that is in so many silos like it."""
    rounds, privacy = scenario.training.rounds, scenario.privacy
    part = SiloPlan(
        silo=silo,
        size=size,
        schedule=schedule,
        rounds=rounds,
        twice=scenario.training.twice,
        price=Price(epsilon=math.inf, delta=privacy.delta, method="pld"),
        asked=asked_of_silos(scenario),
        allowance=allowance,
    )
    target = privacy.epsilon_for(silo)
    if target is not None and target < math.inf:
        left_for_training(scenario, silo, together)
        law = replace(schedule, noise_multiplier=1.0).mechanism().repeated(part.steps)
        if allowance is not None:
            sigma = _calibrated(law, (), allowance.epsilon, allowance.delta, privacy.relation, 1)
        else:
            sigma = _calibrated(law, part.fixed_costs(), target, privacy.delta, privacy.relation, together)
        part = _with_noise(part, sigma)
    return _priced(scenario, part)


def _with_noise(part: SiloPlan, sigma: float) -> SiloPlan:
    return replace(part, schedule=replace(part.schedule, noise_multiplier=sigma))


def _priced(scenario: Scenario, part: SiloPlan) -> SiloPlan:
    """The part with the price of what it is asked, to those it trains on or to those held out, whoever pays more."""
    training = part.allowance or part.schedule.mechanism().repeated(part.steps)
    sides = [tuple(one.mechanism for one in part.asked if one.apart is side) for side in (False, True)]
    prices = [
        _price(side, scenario.privacy.delta, scenario.privacy.relation) for side in ((*sides[0], training), sides[1])
    ]
    return replace(part, price=max(prices, key=lambda price: price.epsilon))


@cache
def _calibrated(
    law: Mechanism, others: tuple[Mechanism, ...], target: float, delta: float, relation: Relation, together: int
) -> float:
    def releases(sigma: float) -> list[Mechanism]:
        noisy: Mechanism = replace(law, noise_multiplier=sigma)  # pyright: ignore  # every law of a step has this field
        return [*others, noisy] * together

    return calibrate_noise_multiplier(releases, epsilon=target, delta=delta, relation=relation)


@cache
def _price(releases: tuple[Mechanism, ...], delta: float, relation: Relation) -> Price:
    return epsilon(releases, delta=delta, relation=relation)


def _kind_of_sizes(scenario: Scenario) -> str:
    if scenario.privacy.size_epsilon is not None:
        return f"noisy counts (epsilon = {scenario.privacy.size_epsilon:g})"
    if scenario.sizes_declared_public:
        return "true, declared public: outside the guarantee"
    return "true" if scenario.silos.declared_size is None else "declared"


def _budget(part: SiloPlan, scenario: Scenario) -> tuple[Share, ...]:
    """What a silo's budget is spent on; the parts may add to more than the whole, which composes them at one delta."""
    privacy = scenario.privacy
    law = part.schedule.mechanism().repeated(part.steps)
    price = part.allowance.epsilon if part.allowance else _price((law,), privacy.delta, privacy.relation).epsilon
    training = Share(item="update", epsilon=price, buys=training_bought(law, part.steps))
    others = (
        Share(item=one.item + " (held out)" * one.apart, epsilon=one.epsilon, buys=bought(one)) for one in part.asked
    )
    return (*others, training)


def _exhausted(scenario: Scenario, parts: Sequence[SiloPlan]) -> list[str]:
    """Silos whose budgets end before their rounds do."""
    told: list[str] = []
    for part in parts:
        round = part.schedule.mechanism()
        budget = budget_of(scenario, part.silo, round)
        if budget is None:
            continue
        # What is left for training is rounded down: the filter adds up exactly.
        left, cost = budget.remaining(part.fixed_costs()), budget.spent([round])
        if cost * part.models > left:
            kind = "models" if part.twice else "rounds"
            told.append(
                f"The budget of silo {part.silo!r}, epsilon = {budget.epsilon:g}, admits {int(left / cost)} of its "
                f"{part.models} {kind} (as a Renyi filter at order {budget.order:g}); it declines the others."
            )
    return told


def _warnings(scenario: Scenario, sizes: Mapping[str, int]) -> tuple[str, ...]:
    told = [f"The guarantee does not cover {line}." for line in not_covered(frozenset(scenario.silos.public))]
    delta = scenario.privacy.delta
    small = [silo for silo, size in sizes.items() if delta >= 1 / size]
    if not small:
        return tuple(told)
    return (
        *told,
        f"delta = {delta:g} is at least 1/n in {len(small)} of {len(sizes)} silos (such as {small[0]!r}): publishing "
        "one random record would meet it. Choose a delta well below one over the size of the smallest silo.",
    )
