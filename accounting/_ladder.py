"""The ladder: one set of releases priced by every method that applies, the best first.

Every rung is a true statement about the same releases; they differ in what they forget. Composing each silo first and
taking the worst silo last forgets least. The classical theorems work on one (epsilon, delta) pair for each round: the
worst silo's. They must split delta, half of it evenly over the rounds and, where they need a slack to compose, half on
that; the rung says so.

| method | what it composes | what it forgets |
|---|---|---|
| parallel | each silo's curve over its rounds, then the worst | nothing (PLD) |
| parallel-rdp | the same by Renyi divergences | tightness of the conversion |
| rounds-composed | the worst curve of each round | that the worst silo changes from round to round |
| sequential | all silos as one ledger | that an individual is not in all silos |
| rounds-optimal | equal pairs (Kairouz, Oh, Viswanath 2015) | the curve of a round |
| rounds-advanced | pairs (Dwork, Rothblum, Vadhan 2010) | the same, and constants |
| rounds-basic | pairs, added | the same, and that losses average out |
| sequential-basic | pairs of every silo and round, added | everything |
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from accounting._classical import advanced, basic, optimal
from accounting._envelope import worst_curve
from accounting._errors import Unsupported
from accounting._guarantee import number_to_json
from accounting._membership import Unknown
from accounting._pairs import Pair
from accounting._parts import Parts
from accounting._pld import LossDistribution
from accounting._questions import EpsilonAt
from accounting._release import Law, Release, law_of

if TYPE_CHECKING:
    from accounting._federation import Federation

Rounds: TypeAlias = "Sequence[tuple[Federation, int]]"
"""Distinct rounds, each with how many are like it."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One method's price.

    Args:
        method: the method's name, as in the table above.
        description: what it does, in a few words.
        epsilon: its price, in [0, inf].
        split: how delta was split.
    """

    method: str
    description: str
    epsilon: float
    split: str

    def to_json(self) -> dict[str, object]:
        """Plain values; an infinite epsilon is the string ``"inf"``."""
        return {
            "method": self.method,
            "description": self.description,
            "epsilon": number_to_json(self.epsilon),
            "split": self.split,
        }


def ladder(federation: "Federation", delta: float) -> list[Rung]:
    """Price a federation by every method, the best first.

    The methods that compose round by round need the round of every release, and are left out where one is missing.
    A method that has no price for these releases is left out too.

    Args:
        federation: the releases.
        delta: of the whole, in [0, 1].
    """
    rungs: list[Rung] = []
    for name, description, split, price in (*_whole_methods(federation, delta), *_round_methods(federation, delta)):
        try:
            rungs.append(Rung(method=name, description=description, epsilon=price(), split=split))
        except Unsupported:
            if name == "parallel":
                raise
    return sorted(rungs, key=lambda rung: rung.epsilon)


_Method: TypeAlias = tuple[str, str, str, Callable[[], float]]
_WHOLE = "all of delta on the whole run"


def _whole_methods(federation: "Federation", delta: float) -> Iterable[_Method]:
    """The methods that look at whole silos."""
    everything = replace(federation, membership=Unknown())
    yield "parallel", "each silo over its rounds, then the worst", _WHOLE, lambda: federation.epsilon(delta)
    yield (
        "parallel-rdp",
        "each silo over its rounds by Renyi divergences, then the worst",
        _WHOLE,
        lambda: federation.epsilon(delta, method="rdp"),
    )
    yield "sequential", "all silos as one ledger", _WHOLE, lambda: everything.epsilon(delta)


def _round_methods(federation: "Federation", delta: float) -> Iterable[_Method]:
    """The methods that look at one round at a time."""
    rounds = _rounds(federation)
    if not rounds:
        return
    count = sum(times for _, times in rounds)
    cells = sum(times for one, times in rounds for law in one.costs.laws.values() if law)
    half = f"half of delta evenly on {count} rounds, half on composing them"
    worst = "the worst of each round, "
    yield "rounds-composed", "the worst curve of each round, composed", _WHOLE, lambda: _composed(rounds, delta)
    yield (
        "rounds-optimal",
        worst + "optimal composition of equal pairs (Kairouz, Oh, Viswanath 2015)",
        half,
        lambda: optimal(_equal(_worst_of(rounds, delta / 2 / count)), delta / 2 / count, count, delta),
    )
    yield (
        "rounds-advanced",
        worst + "advanced composition (Dwork, Rothblum, Vadhan 2010)",
        half,
        lambda: advanced(_worst_of(rounds, delta / 2 / count), delta / 2),
    )
    yield (
        "rounds-basic",
        worst + "basic composition",
        f"delta / {count} on each of {count} rounds",
        lambda: basic(_worst_of(rounds, delta / count)),
    )
    if not federation.may_move:
        yield (
            "sequential-basic",
            "every silo in every round, basic composition",
            f"delta / {cells} on each of {cells} releases",
            lambda: basic(_each_of(rounds, delta / cells)),
        )


def _rounds(federation: "Federation") -> Rounds:
    """A federation for each distinct round; none where the round of a release is not known."""
    by_round: dict[int, dict[str, list[Release]]] = {}
    for silo, releases in federation.releases().items():
        for release in releases:
            if release.round is None:
                return []
            by_round.setdefault(release.round, {}).setdefault(silo, []).append(release)
    written = Counter(
        tuple(tuple(release.mechanism for release in released.get(silo, ())) for silo in federation.silos)
        for released in by_round.values()
    )
    found: dict[tuple[Law, ...], tuple[Federation, int]] = {}
    for laws, times in written.items():
        silos = {
            silo: [Release(mechanism=mechanism) for mechanism in law]
            for silo, law in zip(federation.silos, laws, strict=True)
        }
        key = tuple(law_of(releases) for releases in silos.values())
        one, count = found.get(key) or (replace(federation, silos=silos), 0)
        found[key] = one, count + times
    return list(found.values())


def _worst_of(rounds: Rounds, delta: float) -> list[float]:
    """The epsilon of each round at one delta."""
    return [epsilon for one, times in rounds for epsilon in times * [one.epsilon(delta)]]


def _each_of(rounds: Rounds, delta: float) -> list[float]:
    """The epsilon of each silo in each round at one delta."""
    answers = [(answer.value, times) for one, times in rounds for answer in one.per_silo(EpsilonAt(delta)).values()]
    return [epsilon for value, times in answers for epsilon in times * [value]]


def _equal(epsilons: Sequence[float]) -> float:
    if max(epsilons) > min(epsilons):
        raise Unsupported("Optimal composition is known in closed form for equal epsilons only.")
    return epsilons[0]


def _composed(rounds: Rounds, delta: float) -> float:
    """The worst curve of each round, composed over the rounds, in the worse direction."""
    answers: list[float] = []
    for side in (0, 1):
        parts: list[tuple[Pair, int]] = []
        for one, times in rounds:
            parts += [(pair, steps * times) for pair, steps in worst_curve(_candidates(one, side))]
        answers.append(LossDistribution(parts).epsilon(delta))
    return max(answers)


def _candidates(federation: "Federation", side: int) -> list[Parts]:
    """The compositions of which the worst counts, in one direction; in both where a move may go either way."""
    exposures = federation.exposures()
    if exposures is None:
        raise Unsupported("Too many exposures to read off the worst curve.")
    both = [federation.costs.parts(exposure) for exposure in exposures]
    return [parts for each in both for parts in each] if federation.may_move else [each[side] for each in both]
