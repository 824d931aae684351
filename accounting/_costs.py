"""Costs: what each silo released, and what any exposure of the silos composes to.

Everything is kept apart by direction. What an individual leaves in one direction it enters in the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from accounting._envelope import worst_curve
from accounting._exposures import Exposure
from accounting._mechanism import Mechanism
from accounting._parts import Parts, coalesced, directed_parts
from accounting._rdp import ORDERS
from accounting._relations import Directions, Relation
from accounting._release import Law

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Costs:
    """What each silo released, and under which relation.

    Args:
        laws: what each silo released.
        relation: the relation; an individual who moves leaves and enters by add-or-remove-one.
    """

    laws: Mapping[str, Law]
    relation: Relation

    def parts(self, exposure: Exposure) -> Directions[Parts]:
        """The dominating pairs of an exposure, in each direction."""
        leaving, staying = self._relations()
        leaves = [_parts(self.laws[silo], leaving) for silo in exposure.leaves]
        enters = [_parts(self.laws[silo], leaving) for silo in exposure.enters]
        stays = [_parts(self.laws[silo], staying) for silo in exposure.stays]
        return Directions(
            remove=_joined(*(a.remove for a in leaves), *(b.add for b in enters), *(c.remove for c in stays)),
            add=_joined(*(a.add for a in leaves), *(b.remove for b in enters), *(c.add for c in stays)),
        )

    def renyi(self, exposure: Exposure) -> Directions[Array]:
        """The Renyi divergences of an exposure at `ORDERS`, in each direction."""
        leaving, staying = self._relations()
        leaves = [_renyi(self.laws[silo], leaving) for silo in exposure.leaves]
        enters = [_renyi(self.laws[silo], leaving) for silo in exposure.enters]
        stays = [_renyi(self.laws[silo], staying) for silo in exposure.stays]
        zero = np.zeros_like(ORDERS)
        return Directions(
            remove=sum([*(a.remove for a in leaves), *(b.add for b in enters), *(c.remove for c in stays)], zero),
            add=sum([*(a.add for a in leaves), *(b.remove for b in enters), *(c.add for c in stays)], zero),
        )

    def largest(self, cap: int, *, moves: bool) -> Directions[Array]:
        """At each order, a bound on every exposure of at most `cap` silos: the largest divergences, added.

        The silos of an exposure take distinct roles, so that the `cap` largest of each role bound it; where the
        individual may move, the worst split between staying, and leaving together with entering, counts.
        """
        leaving, staying = self._relations()
        silos = list(self.laws.values())
        lost = [_renyi(law, leaving) for law in silos] if moves or leaving == staying else []
        kept = [_renyi(law, staying) for law in silos] if moves or leaving != staying else []
        if not moves:
            role = kept or lost
            return Directions(*(_top([one[side] for one in role], cap) for side in (0, 1)))
        sides: list[Array] = []
        for side in (0, 1):
            splits = [
                _top([one[side] for one in kept], stay)
                + _top([one[side] for one in lost], cap - stay)
                + _top([one[1 - side] for one in lost], cap - stay)
                for stay in range(cap + 1)
            ]
            sides.append(np.max(splits, axis=0))
        return Directions(*sides)

    def dominating(self, cap: int, *, moves: bool) -> list[Parts]:
        """Compositions of which the worst dominates every exposure of at most `cap` silos, in either direction.

        Each silo is replaced by the worst curve of all silos; the more alike they are, the less is lost.

        Raises:
            Unsupported: where a silo has no pairs, or the silos are too many.
        """
        leaving, staying = self._relations()
        kept = self._worst_curves(staying)
        if not moves:
            return [_times(kept.remove, cap), _times(kept.add, cap)]
        lost = self._worst_curves(leaving)
        both = _joined(lost.remove, lost.add)
        return [
            _joined(_times(each, stay), _times(both, cap - stay))
            for each in (kept.remove, kept.add)
            for stay in range(cap + 1)
        ]

    def _worst_curves(self, relation: Relation) -> Directions[Parts]:
        each = [_parts(law, relation) for law in dict.fromkeys(self.laws.values())]
        return Directions(remove=worst_curve([one.remove for one in each]), add=worst_curve([one.add for one in each]))

    def alone(self, silo: str) -> Exposure:
        """The exposure of an individual in this silo only, who does not move."""
        if self.relation is Relation.REPLACE_ONE:
            return Exposure(stays=(silo,))
        return Exposure(leaves=(silo,))

    def _relations(self) -> tuple[Relation, Relation]:
        """The relation of silos that the individual leaves or enters, and of those where it stays."""
        if self.relation is Relation.REPLACE_ONE:
            return Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_ONE
        return self.relation, self.relation


@lru_cache(maxsize=1 << 14)
def _parts(law: Law, relation: Relation) -> Directions[Parts]:
    return directed_parts([mechanism.repeated(count) for mechanism, count in law], relation)


@lru_cache(maxsize=1 << 14)
def _renyi(law: Law, relation: Relation) -> Directions[Array]:
    remove, add = np.zeros_like(ORDERS), np.zeros_like(ORDERS)
    for mechanism, count in law:
        values = _step_renyi(mechanism, relation)
        remove, add = remove + count * values.remove, add + count * values.add
    return Directions(remove=remove, add=add)


@lru_cache(maxsize=1 << 12)
def _step_renyi(mechanism: Mechanism, relation: Relation) -> Directions[Array]:
    return mechanism.renyi(relation, ORDERS)


def _top(values: Sequence[Array], count: int) -> Array:
    """The sum of the `count` largest values at each order."""
    if count == 0:
        return np.zeros_like(ORDERS)
    return np.sort(np.stack(values), axis=0)[-count:].sum(axis=0)


def _joined(*lists: Parts) -> Parts:
    """Parts of several silos as one composition."""
    return coalesced(list(chain.from_iterable(lists)))


def _times(parts: Parts, count: int) -> Parts:
    """Parts composed with themselves."""
    return coalesced([(pair, steps * count) for pair, steps in parts])
