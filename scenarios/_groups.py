"""Groups of silos with a target of their own: who is in which, and what each group spends.

A group names its silos, or takes a share of all silos that have no target by name. Which ones is drawn from the seed
and from their names alone, so that it says nothing of what a silo holds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from scenarios.spec._privacy import Group, SiloTarget
from scenarios.spec._scenario import Scenario

_STREAM = 4

OTHERS = "the others"
"""What silos in no group are called beside those in one."""


def grouped(scenario: Scenario, silos: Iterable[str]) -> Scenario:
    """The scenario with each group's target written to its silos, in `privacy.silos`.

    Args:
        scenario: with or without groups; one without is returned as it is.
        silos: names of all silos, in the order of the dataset.
    """
    groups, own = scenario.privacy.groups, dict(scenario.privacy.silos)
    if not groups:
        return scenario
    chosen = {silo: name for name, group in groups.items() for silo in group.silos or ()}
    rest = [silo for silo in silos if silo not in own and silo not in chosen]
    generator = np.random.default_rng(np.random.SeedSequence(scenario.seed, spawn_key=(_STREAM,)))
    order = [rest[place] for place in generator.permutation(len(rest))]
    share, start = 0.0, 0
    for name, group in groups.items():
        share += group.share or 0.0
        # The cumulated shares are rounded, so that each group is within one silo of its share and none is left over.
        end = round(share * len(rest))
        chosen |= dict.fromkeys(order[start:end], name)
        start = end
    own |= {silo: _target(groups[name], name) for silo in silos if (name := chosen.get(silo))}
    return scenario.model_copy(
        update={"privacy": scenario.privacy.model_copy(update={"silos": own, "groups": {}})},
    )


def _target(group: Group, name: str) -> SiloTarget:
    return SiloTarget(epsilon=group.epsilon, noise_multiplier=group.noise_multiplier, budget=group.budget, group=name)


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """What a group's silos spend: the most that any one of them does."""

    group: str
    silos: int
    epsilon: float


def group_rows(groups: Mapping[str, str], prices: Mapping[str, float]) -> list[GroupRow]:
    """A row for each group, in the order of first appearance, then one for the silos in none; empty without groups.

    Args:
        groups: the group of each silo that is in one.
        prices: epsilon of each silo, by name.
    """
    if not groups:
        return []
    members: dict[str, list[float]] = {name: [] for name in [*groups.values(), OTHERS]}
    for silo, price in prices.items():
        members[groups.get(silo, OTHERS)].append(price)
    return [
        GroupRow(group=name, silos=len(found), epsilon=max(found)) for name, found in members.items() if len(found) > 0
    ]
