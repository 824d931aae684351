"""Small interleaved systems of silos, enumerated exactly: an independent referee for composition.

Nothing here imports the product, and nothing here rounds: masses are integers over one common denominator.

A pair (P, Q) is kept as its trade-off (ROC) curve: likelihood ratios in falling order, equal ones merged. Two pairs
with equal curves have equal privacy profiles delta(t) = sum (P - t Q)_+ at every t = e^epsilon >= 0, and one profile
lies below another everywhere exactly when its curve does (Neyman and Pearson; Dong, Roth, Su 2022, Proposition 2.12).
So "never above" is decided for all epsilon at once, not on a grid.

A system is a tree: the server asks one silo at a time, and what it asks next, of whom, and whether it stops depend on
every output so far. The truth is the joint law of all outputs; the bound sees only the declared pair of each step.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cmp_to_key, reduce
from itertools import accumulate, pairwise
from math import gcd, lcm

Law = tuple[int, ...]
"""Masses of the outputs, in units of 1/whole."""

History = tuple[int, ...]
"""The outputs so far."""

State = str
"""What a silo holds of the individual: "absent", "x" or "y" (two different contributions)."""

World = Callable[[int, History], State]
"""The state of a silo; it ignores the history where data are fixed before the first round."""


@dataclass(frozen=True)
class Pair:
    """Two laws up to relabelling of outcomes.

    Args:
        atoms: (P-mass, Q-mass) by strictly falling ratio, in lowest terms.
        whole: the total of either column.
    """

    atoms: tuple[tuple[int, int], ...]
    whole: int

    def delta(self, t: Fraction | int) -> Fraction:
        """The hockey-stick divergence sum (P - t Q)_+ at t = e^epsilon."""
        return sum((max(p - t * q, Fraction(0)) for p, q in self.atoms), Fraction(0)) / self.whole

    def then(self, other: "Pair") -> "Pair":
        """The product pair: independent composition."""
        products = ((a * c, b * d) for a, b in self.atoms for c, d in other.atoms)
        return _merged(products, self.whole * other.whole)

    def reversed(self) -> "Pair":
        """The pair (Q, P)."""
        return _merged(((q, p) for p, q in self.atoms), self.whole)

    def curve(self) -> list[tuple[int, int]]:
        """Corners (Q-mass, P-mass) of the best tests, without the origin."""
        return list(accumulate(((q, p) for p, q in self.atoms), lambda a, b: (a[0] + b[0], a[1] + b[1])))

    def at_most(self, other: "Pair") -> bool:
        """Whether this profile is nowhere above the other's, at any t."""
        return worst([self, other]) == other


def pair(p: Sequence[int], q: Sequence[int]) -> Pair:
    """The pair of two laws over one outcome space, given in units of one common total."""
    if sum(p) != sum(q):
        raise ValueError(f"Totals differ: {sum(p)} and {sum(q)}.")
    return _merged(zip(p, q, strict=True), sum(p))


_FALLING = cmp_to_key(lambda one, other: one[1] * other[0] - one[0] * other[1])
"""Orders ratios (p, q) by falling p / q, without rounding."""


def _merged(atoms: Iterable[tuple[int, int]], whole: int) -> Pair:
    """Add up outcomes of equal likelihood ratio; reduce; sort."""
    columns: dict[tuple[int, int], tuple[int, int]] = {}
    for p, q in atoms:
        common = gcd(p, q)
        if common:
            ratio = (p // common, q // common)
            before = columns.get(ratio, (0, 0))
            columns[ratio] = (before[0] + p, before[1] + q)
    common = reduce(gcd, (value for atom in columns.values() for value in atom), whole)
    by_ratio = sorted(columns, key=_FALLING)
    return Pair(tuple((columns[r][0] // common, columns[r][1] // common) for r in by_ratio), whole // common)


NOTHING = pair([1], [1])
"""The pair of a release that does not depend on the individual."""


def composed(pairs: Iterable[Pair]) -> Pair:
    """The product of all, in any order."""
    return reduce(Pair.then, pairs, NOTHING)


def worst(pairs: Sequence[Pair]) -> Pair:
    """The smallest pair that dominates all: the concave hull of their trade-off curves."""
    whole = lcm(*(p.whole for p in pairs))
    corners = {(q * (whole // one.whole), p * (whole // one.whole)) for one in pairs for q, p in one.curve()}
    hull = [(0, 0)]
    for corner in sorted(corners):
        while len(hull) > 1 and _turns_up(hull[-2], hull[-1], corner):
            hull.pop()
        hull.append(corner)
    return _merged(((b[1] - a[1], b[0] - a[0]) for a, b in pairwise(hull)), whole)


def _turns_up(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> bool:
    """Whether b lies on or under the chord from a to c."""
    return (b[0] - a[0]) * (c[1] - a[1]) >= (b[1] - a[1]) * (c[0] - a[0])


@dataclass(frozen=True)
class Step:
    """One question to one silo.

    Args:
        silo: who answers.
        laws: the law of the answer, by what the silo holds of the individual.
        then: what follows each answer; None where the server stops.
    """

    silo: int
    laws: Mapping[State, Law]
    then: tuple["Step | None", ...]


@dataclass(frozen=True)
class Tree:
    """A whole interaction; every law totals `whole`, and no path is longer than `turns`."""

    root: Step
    whole: int
    turns: int

    def joint(self, world: World) -> list[int]:
        """Law of the complete transcript, in units of whole**-turns, transcripts in a fixed order."""
        leaves: list[int] = []
        self._collect(leaves, self.root, world, (), self.whole**self.turns)
        return leaves

    def _collect(self, leaves: list[int], step: Step | None, world: World, history: History, mass: int) -> None:
        if step is None:
            leaves.append(mass)
            return
        law = step.laws[world(step.silo, history)]
        for output, (weight, then) in enumerate(zip(law, step.then, strict=True)):
            self._collect(leaves, then, world, (*history, output), mass * weight // self.whole)

    def between(self, first: World, second: World) -> Pair:
        """The exact pair of the transcript's two laws."""
        return pair(self.joint(first), self.joint(second))


def holding(states: Mapping[int, State]) -> World:
    """Data fixed before the first round: the individual is in the named silos only."""
    return lambda silo, _history: states.get(silo, "absent")


NOBODY = holding({})
