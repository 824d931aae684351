"""Weights of the silos' models in the average: public numbers, from the plan alone.

By size, a silo weighs as its public number of records does. By inverse variance, it weighs as one over the variance
that its noise adds to a weight of its model in one round, the choice that leaves the average with the least noise:

    (learning_rate * noise_multiplier * clip_norm / expected_batch)^2 * sum over k = 1..steps of g(k)^2,
    g(k) = 1 + m + ... + m^(k - 1), m the momentum

This is the noise of the local steps added up, as if gradients did not answer to it. Silos that share a noise multiplier
weigh as the squares of their expected batches do: large silos count for more than by size.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from scenarios.spec._scenario import Scenario
from silos import Schedule

if TYPE_CHECKING:
    from scenarios._plan_parts import SiloPlan


def weighted(scenario: Scenario, parts: Sequence["SiloPlan"]) -> "tuple[SiloPlan, ...]":
    """The parts with their weights, which add to 1.

    Raises:
        ScenarioError: for weights by inverse variance where some silos add noise and others none.
    """
    if scenario.training.weights == "size":
        weights = [float(part.size) for part in parts]
    else:
        weights = _inverse_variances(scenario, parts)
    total = math.fsum(weights)
    return tuple(
        replace(part, schedule=replace(part.schedule, weight=weight / total))
        for part, weight in zip(parts, weights, strict=True)
    )


def noise_variance(schedule: Schedule) -> float:
    """What a round's noise adds to the variance of one weight of a silo's model; the formula is the module's."""
    gains, gain = 0.0, 0.0
    for _ in range(schedule.steps):
        gain = 1 + schedule.momentum * gain
        gains += gain**2
    scale = schedule.learning_rate * schedule.noise_multiplier * schedule.clip_norm / schedule.expected_batch
    return scale**2 * gains


def _inverse_variances(scenario: Scenario, parts: Sequence["SiloPlan"]) -> list[float]:
    silent = [part.silo for part in parts if part.schedule.noise_multiplier == 0]
    if 0 < len(silent) < len(parts):
        raise scenario.error(
            "training.weights",
            f'= "inverse-variance": silo {silent[0]!r} adds no noise and others do, so that it alone would count',
        )
    # Without any noise, the limit of as little in all silos: their common factor does not matter.
    schedules = [replace(part.schedule, noise_multiplier=1.0) if silent else part.schedule for part in parts]
    return [1 / noise_variance(schedule) for schedule in schedules]
