"""Find the worst exposure: compose what its silos released, in each direction, and keep the largest answer.

An exposure is composed as curves, never from numbers at one delta. PLD composition costs milliseconds and a Renyi
bound microseconds, so the candidates are ordered by their Renyi bound and composed from the top until the next bound
is below the best answer: what is left cannot be worse.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias

from accounting._costs import Costs
from accounting._errors import InvalidValue, Unsupported
from accounting._exposures import Exposure
from accounting._parts import Parts, greatest_loss
from accounting._pld import LossDistribution
from accounting._questions import Question

Method: TypeAlias = Literal["auto", "pld", "rdp"]

MAX_COMPOSED = 100
"""How many candidates of a combinatorial family are composed by PLD before a bound answers for the rest."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The worst answer.

    Args:
        value: the answer.
        exposure: what gives it; the worst that is known, where the value is an upper bound.
        method: how it was computed.
        upper_bound: whether the value may be well above what the same releases really give.
    """

    value: float
    exposure: Exposure
    method: Literal["pld", "rdp"]
    upper_bound: bool


def worst(
    costs: Costs,
    exposures: Iterable[Exposure],
    question: Question,
    method: Method = "auto",
    otherwise: Callable[[], Answer] | None = None,
) -> Answer:
    """The worst answer over exposures, tight by PLD as far as the method allows.

    Args:
        costs: what the silos released.
        exposures: the candidates, at least one.
        question: what is asked.
        method: ``pld``, ``rdp``, or ``auto`` for PLD where it can be trusted and Renyi elsewhere.
        otherwise: an upper bound, for when `MAX_COMPOSED` compositions do not decide; None for no such limit.

    Raises:
        Unsupported: where a mechanism has no price under the relation, or no pair and `method` is ``pld``.
    """
    if method not in ("auto", "pld", "rdp"):
        raise InvalidValue(f"Expected method={method!r} to be one of auto, pld, rdp.")
    candidates = list(exposures)
    if len(candidates) == 1:
        return _price(costs, candidates[0], question, method)
    bounded = sorted(_bounds(costs, candidates, question), reverse=True)
    best: Answer | None = None
    for tried, (value, place) in enumerate(bounded):
        if best is not None and value <= best.value:
            break
        if otherwise is not None and best is not None and tried >= MAX_COMPOSED:
            found = otherwise()
            least = replace(found, value=value, method="rdp") if value < found.value and method == "auto" else found
            return replace(least, value=max(least.value, best.value), exposure=best.exposure)
        answer = _price(costs, candidates[-place], question, method)
        if best is None or answer.value > best.value:
            best = answer
    if best is None:
        raise InvalidValue("Expected at least one exposure.")
    return best


def bound(costs: Costs, cap: int, question: Question, method: Method, *, moves: bool) -> Answer:
    """An upper bound on every exposure of at most `cap` silos; it names those that are worst alone.

    At each Renyi order the `cap` largest divergences are added. By PLD, the worst curve of all silos is composed `cap`
    times, which is the tighter the more alike they are. The smaller one is taken.
    """
    alone = sorted(_bounds(costs, [costs.alone(silo) for silo in costs.laws], question), reverse=True)
    names = list(costs.laws)
    exposure = Exposure(stays=tuple(names[-place] for _, place in alone[:cap]))
    answers: list[Answer] = []
    if method != "pld":
        value = max(map(question.of_renyi, costs.largest(cap, moves=moves)))
        answers.append(Answer(value=value, exposure=exposure, method="rdp", upper_bound=True))
    if method != "rdp":
        try:
            value = _worst_by_pld(costs.dominating(cap, moves=moves), question, trust=method == "pld")
        except Unsupported:
            if method == "pld":
                raise
            value = None
        if value is not None:
            value = value if method == "pld" else max(value, question.least_believed)
            answers.append(Answer(value=value, exposure=exposure, method="pld", upper_bound=True))
    return min(answers, key=lambda answer: answer.value)


def _bounds(costs: Costs, candidates: Sequence[Exposure], question: Question) -> list[tuple[float, int]]:
    """A Renyi bound of each candidate with minus its place, so that of equal bounds the first sorts as the largest.

    They only rule candidates out, so that how loose they are is nobody's concern.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [(_renyi_bound(costs, one, question), -place) for place, one in enumerate(candidates)]


def _renyi_bound(costs: Costs, exposure: Exposure, question: Question) -> float:
    """The larger bound of the two directions; the other's warnings are nobody's concern."""
    bounds: list[tuple[float, Sequence[warnings.WarningMessage]]] = []
    for values in costs.renyi(exposure):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            bounds.append((question.of_renyi(values), seen))
    value, told = max(bounds, key=lambda bound: bound[0])
    for each in told:
        warnings.warn(each.message, stacklevel=2)
    return value


def _by_renyi(costs: Costs, exposure: Exposure, question: Question) -> Answer:
    value = _renyi_bound(costs, exposure, question)
    return Answer(value=value, exposure=exposure, method="rdp", upper_bound=True)


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
    sure = method == "pld" or (question.closed_form_rounds_up and all(map(_in_closed_form, parts)))
    value = _worst_by_pld(parts, question, trust=sure)
    if value is not None and (sure or question.in_range(value)):
        return Answer(value=value, exposure=exposure, method="pld", upper_bound=False)
    renyi = _bounds(costs, [exposure], question)[0][0]
    pure = max(question.of_pure(greatest_loss(direction)) for direction in parts)
    if pure < renyi:
        return Answer(value=pure, exposure=exposure, method="pld", upper_bound=False)
    if value is not None and question.least_believed < renyi:
        return Answer(value=question.least_believed, exposure=exposure, method="pld", upper_bound=True)
    return _by_renyi(costs, exposure, question)


def _worst_by_pld(compositions: Sequence[Parts], question: Question, *, trust: bool = False) -> float | None:
    """The worst answer over compositions by PLD; None where it is not to be asked, unless it is to be all the same.

    An answer that is not in the question's range only says that the truth is not in it either.
    """
    suits = question.in_range(1.0) and all(map(_suit_pld, compositions))
    return max(_ask(parts, question) for parts in compositions) if suits or trust else None


def _suit_pld(parts: Parts) -> bool:
    """Whether PLD is known to be tight: on a grid, or in closed form for plain Gaussians of any noise."""
    return all(pair.suits_pld for pair, _ in parts) or _in_closed_form(parts)


def _in_closed_form(parts: Parts) -> bool:
    """Whether only plain Gaussians are composed, which are one: no transform rounds their delta."""
    return all(pair.squared_shift > 0 for pair, _ in parts)


@lru_cache(maxsize=1 << 14)
def _ask(parts: Parts, question: Question) -> float:
    if not parts:
        return question.of_nothing
    return question.of_losses(LossDistribution(parts))
