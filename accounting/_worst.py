"""Find the worst exposure: compose what its silos released, in each direction, and keep the largest answer.

An exposure is composed as curves, never from numbers at one delta. PLD composition costs milliseconds and a Renyi
bound microseconds, so the candidates are ordered by their Renyi bound and composed from the top until the next bound
is below the best answer: what is left cannot be worse.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from accounting._errors import InvalidValue, Unsupported
from accounting._exposures import Exposure
from accounting._mechanism import Mechanism
from accounting._parts import Parts, coalesced, directed_parts, greatest_loss
from accounting._pld import LossDistribution
from accounting._questions import Question
from accounting._rdp import ORDERS
from accounting._relations import Directions, Relation
from accounting._release import Law

Array = NDArray[np.float64]
Method: TypeAlias = Literal["auto", "pld", "rdp"]

MAX_COMPOSED = 500
"""How many candidates of a combinatorial family are composed by PLD before the Renyi bound answers for the rest."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The worst answer, which exposure gives it, and how it was computed."""

    value: float
    exposure: Exposure
    method: Literal["pld", "rdp"]


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


def worst(costs: Costs, exposures: Iterable[Exposure], question: Question, method: Method, limit: int | None) -> Answer:
    """The worst answer over exposures, tight by PLD as far as the method allows.

    Args:
        costs: prices of the silos.
        exposures: the candidates, at least one.
        question: what is asked.
        method: ``pld``, ``rdp``, or ``auto`` for PLD where it can be trusted and Renyi elsewhere.
        limit: how many PLD compositions may be tried, None for as many as it takes.

    Raises:
        Unsupported: where a mechanism has no price under the relation, or no pair and `method` is ``pld``.
    """
    if method not in ("auto", "pld", "rdp"):
        raise InvalidValue(f"Expected method={method!r} to be one of auto, pld, rdp.")
    candidates = list(exposures)
    if len(candidates) == 1:
        return _price(costs, candidates[0], question, method)
    bounded = sorted(_bounds(costs, candidates, question), reverse=True)
    if method == "rdp":
        return _by_renyi(costs, candidates[-bounded[0][1]], question)
    best: Answer | None = None
    for tried, (value, place) in enumerate(bounded):
        if best is not None and value <= best.value:
            break
        if limit is not None and tried >= limit:
            return _by_renyi(costs, candidates[-place], question)
        answer = _price(costs, candidates[-place], question, method)
        if best is None or answer.value > best.value:
            best = answer
    if best is None:
        raise InvalidValue("Expected at least one exposure.")
    return best


def _bounds(costs: Costs, candidates: Sequence[Exposure], question: Question) -> list[tuple[float, int]]:
    """A Renyi bound of each candidate with minus its place, so that of equal bounds the first sorts as the largest.

    They only rule candidates out, so that how loose they are is nobody's concern.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [(_renyi_bound(costs, one, question), -place) for place, one in enumerate(candidates)]


def _renyi_bound(costs: Costs, exposure: Exposure, question: Question) -> float:
    return max(map(question.of_renyi, costs.renyi(exposure)))


def _by_renyi(costs: Costs, exposure: Exposure, question: Question) -> Answer:
    return Answer(value=_renyi_bound(costs, exposure, question), exposure=exposure, method="rdp")


def bound(costs: Costs, cap: int, question: Question, *, moves: bool) -> Answer:
    """A Renyi bound on every exposure of at most `cap` silos; it names those that are worst alone."""
    value = max(map(question.of_renyi, costs.largest(cap, moves=moves)))
    alone = dict(zip(costs.laws, _bounds(costs, [costs.alone(silo) for silo in costs.laws], question), strict=True))
    named = sorted(alone, key=lambda silo: alone[silo], reverse=True)[:cap]
    return Answer(value=value, exposure=Exposure(stays=tuple(named)), method="rdp")


def _price(costs: Costs, exposure: Exposure, question: Question, method: Method) -> Answer:
    """One exposure by PLD, or by Renyi where PLD cannot be trusted and the method leaves the choice."""
    if method == "rdp":
        return _by_renyi(costs, exposure, question)
    try:
        parts = costs.parts(exposure)
    except Unsupported:
        if method == "pld":
            raise
        return _by_renyi(costs, exposure, question)
    trusted = all(pair.suits_pld for pair, _ in parts.remove + parts.add)
    if method == "pld" or (trusted and question.in_range(1.0)):
        value = max(_ask(direction, question) for direction in parts)
        if method == "pld" or question.in_range(value):
            return Answer(value=value, exposure=exposure, method="pld")
    answer = _by_renyi(costs, exposure, question)
    pure = max(question.of_pure(greatest_loss(direction)) for direction in parts)
    return replace(answer, value=pure, method="pld") if pure < answer.value else answer


@lru_cache(maxsize=1 << 14)
def _ask(parts: Parts, question: Question) -> float:
    if not parts:
        return question.of_nothing
    return question.of_losses(LossDistribution(parts))


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
