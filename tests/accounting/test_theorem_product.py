"""The library's own composition against exhaustive enumeration of random interleaved systems.

Each silo declares its steps as mechanisms that know nothing but their dominating pairs. What `Federation` answers must
never be below the truth, and where every step shows its pair it must meet the truth up to the error of its grid.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product as choices

import pytest
from finite_systems import Pair as ExactPair
from finite_systems import worst
from random_systems import Change, System, draw

from accounting import (
    ApproximateEpsilon,
    AtMost,
    Directions,
    DiscretePair,
    Disjoint,
    Federation,
    Mechanism,
    Membership,
    Pair,
    PureEpsilon,
    Relation,
    Sets,
    Unknown,
)

ADD_OR_REMOVE, REPLACE = Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_ONE

EPSILONS = (0.0, 0.1, 0.5, 1.0, 1.7, 3.0)
DELTAS = (0.3, 0.1, 0.013, 1e-4)

EPSILON_ERROR, DELTA_ERROR = 0.01, 0.03
"""How far above the truth the library may be, relatively. Few steps, with atoms between the points of its grid, are the
hardest case for a discretisation that is made for many."""


class _Named:
    """Keeps the mechanism below out of the registry that events files are read with."""

    name = "declared-pairs"


@dataclass(frozen=True, kw_only=True)
class DeclaredPairs(_Named, Mechanism):
    """A step known by its pairs alone."""

    remove: DiscretePair
    add: DiscretePair
    replace: DiscretePair

    def pairs(self, relation: Relation) -> Directions[Pair]:
        if relation is REPLACE:
            return Directions(remove=self.replace, add=self.replace)
        return Directions(remove=self.remove, add=self.add)


def as_floats(exact: ExactPair) -> DiscretePair:
    return DiscretePair(tuple(p / exact.whole for p, _ in exact.atoms), tuple(q / exact.whole for _, q in exact.atoms))


def declared(system: System) -> dict[str, list[Mechanism]]:
    def step(silo: int, k: int) -> Mechanism:
        changes: list[Change] = [("x", "absent"), ("absent", "x"), ("x", "y")]
        remove, add, replace = (as_floats(system.declared(silo, k, change)) for change in changes)
        return DeclaredPairs(remove=remove, add=add, replace=replace)

    return {str(silo): [step(silo, k) for k in range(system.steps)] for silo in system.silos}


def memberships(system: System) -> list[tuple[Membership, list[tuple[int, ...]]]]:
    """Each membership with every set of silos that it lets an individual be in, the empty one left out."""
    silos = tuple(system.silos)
    subsets = [
        tuple(s for s, chosen in zip(silos, mask, strict=True) if chosen) for mask in choices((0, 1), repeat=len(silos))
    ]
    family = [("0", "1"), *((str(silo),) for silo in silos[2:])]
    return [
        (Disjoint(), [one for one in subsets if len(one) == 1]),
        (AtMost(2), [one for one in subsets if 1 <= len(one) <= 2]),
        (Sets(family), [(0,), (1,), (0, 1), *((silo,) for silo in silos[2:])]),
        (Unknown(), [one for one in subsets if one]),
    ]


def neighbours(sets: list[tuple[int, ...]], relation: Relation, may_move: bool) -> Iterator[dict[int, Change]]:
    """What each silo holds in one dataset and in its neighbour, for every pair of neighbours, both ways round."""
    for before in sets:
        if relation is ADD_OR_REMOVE:
            yield dict.fromkeys(before, ("x", "absent"))
            yield dict.fromkeys(before, ("absent", "x"))
        for after in sets if may_move else [before]:
            if relation is REPLACE:
                yield {
                    silo: ("x" if silo in before else "absent", "y" if silo in after else "absent")
                    for silo in {*before, *after}
                }


QUESTIONS = [(ADD_OR_REMOVE, False), (REPLACE, False), (REPLACE, True)]


def compare(system: System, which: int, answers: int) -> None:
    """One membership, relation and a few questions, chosen by number, against the worst exact truth."""
    rng = random.Random(which)
    relation, may_move = QUESTIONS[which % 3]
    membership, sets = memberships(system)[which // 3 % 4]
    truth = worst([system.truth(changes) for changes in neighbours(sets, relation, may_move)])
    federation = Federation(declared(system), membership, relation, may_move=may_move)
    for epsilon in rng.sample(EPSILONS, answers):
        exact = float(truth.delta(Fraction(math.exp(epsilon))))
        answer = federation.delta(epsilon)
        assert answer >= exact * (1 - 1e-12)
        if system.attaining:
            assert answer <= exact * (1 + DELTA_ERROR) + 1e-9
    for delta in rng.sample(DELTAS, answers):
        exact = exact_epsilon(truth, delta)
        answer = federation.epsilon(delta)
        assert answer >= exact - 1e-9
        if system.attaining:
            assert answer <= exact * (1 + EPSILON_ERROR) + 1e-4


def exact_epsilon(truth: ExactPair, delta: float) -> float:
    """ln of the smallest t >= 1 with delta(t) <= delta; the profile is a maximum of lines P - t Q."""
    target = Fraction(delta) * truth.whole
    corners = truth.curve()
    if any(q == 0 and p > target for q, p in corners):
        return math.inf
    return max([0.0, *(math.log((p - target) / q) for q, p in corners if q and p - target > q)])


SHAPES = [(2, 2, 2), (2, 3, 2), (3, 2, 2), (2, 2, 3)]


@pytest.mark.parametrize("attaining", [False, True], ids=["loose", "attaining"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_federation_is_never_below_the_truth_and_meets_it_where_steps_show_their_pairs(
    shape: tuple[int, int, int], attaining: bool
):
    silos, steps, outputs = shape
    for seed in range(12):
        compare(draw(seed, silos=silos, steps=steps, outputs=outputs, attaining=attaining), seed, answers=1)


def test_an_individual_who_is_shown_outright_now_and_then_is_not_priced_below_the_truth():
    """A system in which one declared step has mass at infinite loss and the rest have little left to add."""
    compare(draw(142, silos=3, steps=3, outputs=2, attaining=False), 142, answers=4)


@pytest.mark.slow
@pytest.mark.parametrize("attaining", [False, True], ids=["loose", "attaining"])
@pytest.mark.parametrize("shape", [*SHAPES, (4, 2, 2), (3, 3, 2)], ids=str)
def test_the_federation_agrees_with_many_more_systems(shape: tuple[int, int, int], attaining: bool):
    silos, steps, outputs = shape
    for seed in range(100, 124):
        compare(draw(seed, silos=silos, steps=steps, outputs=outputs, attaining=attaining), seed, answers=4)


def test_at_most_two_finds_the_pair_that_is_not_made_of_the_two_worst():
    clear, response = ApproximateEpsilon(epsilon=0, delta=0.1), PureEpsilon(epsilon=math.log(3))
    silos = {"a": [clear], "b": [clear], "c": [response], "d": [response]}
    assert Federation(silos, Disjoint(), ADD_OR_REMOVE).delta(math.log(3)) == pytest.approx(0.1, rel=1e-3)
    assert Federation(silos, AtMost(2), ADD_OR_REMOVE).delta(math.log(3)) == pytest.approx(0.375, rel=1e-3)


def test_a_hundred_flagged_silos_cost_as_much_as_one_only_while_data_stay_fixed():
    silos = {str(index): [ApproximateEpsilon(epsilon=0, delta=1e-5)] for index in range(100)}
    exact = float(1 - (1 - Fraction(1, 100_000)) ** 100)
    assert Federation(silos, Disjoint(), ADD_OR_REMOVE).delta(0.0) == pytest.approx(1e-5, rel=1e-3)
    reacting = Federation(silos, Unknown(), ADD_OR_REMOVE, data_may_react=True)
    assert exact * (1 - 1e-12) <= reacting.delta(0.0) <= exact * 1.005
