"""The composition theorem against exhaustive enumeration: exact arithmetic, all epsilon at once, both directions."""

import random
from collections.abc import Iterator, Mapping
from itertools import combinations

import pytest
from finite_systems import Pair, composed, worst
from random_systems import Change, System, additions, draw, families, move, moves, removals, replacements

SHAPES = [(2, 2, 2), (2, 2, 3), (2, 3, 2), (2, 3, 3), (3, 2, 2), (3, 2, 3), (3, 3, 2), (4, 2, 2)]
"""Silos, declared steps per silo, outputs per step."""

SYSTEMS_PER_SHAPE = 32
"""Times 8 shapes and 2 kinds: 512 systems."""


def systems(shape: tuple[int, int, int], count: int, *, attaining: bool, first: int = 0) -> Iterator[System]:
    silos, steps, outputs = shape
    for seed in range(first, first + count):
        yield draw(seed, silos=silos, steps=steps, outputs=outputs, attaining=attaining)


def sets_of(system: System) -> list[tuple[int, ...]]:
    """Every set of silos that an individual may be in, up to 6 declared steps together."""
    largest = 6 // system.steps
    return [one for size in range(1, largest + 1) for one in combinations(system.silos, min(size, len(system.silos)))]


def every_change(system: System) -> Iterator[Mapping[int, Change]]:
    """Neighbouring datasets under both relations, both directions, with equal and with unlike records per silo."""
    for states in ("xxxx", "xyxy"):
        for silos in sets_of(system):
            yield removals(silos, states)
            yield additions(silos, states)
            yield replacements(silos, states)
        for origin, target in moves(len(system.silos)):
            yield move(origin, target, states)


def some_changes(system: System, seed: int) -> list[Mapping[int, Change]]:
    """Six of them, others for each system."""
    return random.Random(seed).sample(list(every_change(system)), 6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_transcript_gives_away_more_than_the_declared_steps_of_the_silos_that_change(shape: tuple[int, int, int]):
    for seed, system in enumerate(systems(shape, SYSTEMS_PER_SHAPE, attaining=False)):
        for change in some_changes(system, seed):
            assert system.truth(change).at_most(system.bound(change))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_bound_is_met_where_every_reachable_step_shows_its_declared_pair(shape: tuple[int, int, int]):
    for seed, system in enumerate(systems(shape, SYSTEMS_PER_SHAPE, attaining=True)):
        for change in some_changes(system, seed):
            assert system.truth(change) == system.bound(change)


def worst_truth(system: System, changes: list[dict[int, Change]]) -> Pair:
    return worst([system.truth(change) for change in changes])


def worst_bound(system: System, changes: list[dict[int, Change]]) -> Pair:
    return worst([system.bound(change) for change in changes])


@pytest.mark.parametrize("direction", [removals, additions, replacements])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_worst_of_a_declared_family_is_exact(shape: tuple[int, int, int], direction):
    """The maximum over silos, over sets and over all m-subsets: each is the exact answer to its own question."""
    for system in systems(shape, 3, attaining=True):
        for family in families(len(system.silos), 6 // system.steps):
            changes = [direction(silos) for silos in family]
            assert worst_truth(system, changes) == worst_bound(system, changes)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_worst_ordered_pair_is_exact_for_an_individual_that_may_move(shape: tuple[int, int, int]):
    for system in systems(shape, 3, attaining=True):
        changes = [move(a, b) for a, b in moves(len(system.silos))] + [replacements((a,)) for a in system.silos]
        assert worst_truth(system, changes) == worst_bound(system, changes)


def test_a_move_priced_with_a_wrong_direction_is_too_small_somewhere():
    """Remove in both silos, or the mere maximum of the two, does not price a move."""
    two_removals, single_silos = 0, 0
    for system in systems((2, 2, 2), 20, attaining=True):
        truth = worst_truth(system, [move(0, 1), move(1, 0)])
        two_removals += not truth.at_most(system.bound(removals((0, 1))))
        single_silos += not truth.at_most(worst_bound(system, [removals((0,)), additions((1,))]))
    assert two_removals > 0
    assert single_silos > 0


def test_forgetting_one_declared_step_is_caught():
    """The referee can say no: without the last step of the silo the bound is below the truth."""
    for system in systems((3, 2, 2), 20, attaining=True):
        short = system.declared(0, 0, ("x", "absent"))
        whole = system.bound(removals((0,)))
        assert system.truth(removals((0,))).at_most(short) == (whole == short)


def test_the_maximum_in_each_round_then_composed_is_valid_and_looser():
    looser = 0
    for system in systems((3, 2, 2), 20, attaining=True):
        exact = worst_bound(system, [removals((silo,)) for silo in system.silos])
        rounds = [worst([system.declared(silo, k, ("x", "absent")) for silo in system.silos]) for k in range(2)]
        assert exact.at_most(composed(rounds))
        looser += exact != composed(rounds)
    assert looser > 0


def test_losing_and_gaining_an_individual_are_reverses_of_each_other():
    for attaining in (False, True):
        for system in systems((2, 2, 3), 8, attaining=attaining):
            assert system.bound(additions((0, 1))) == system.bound(removals((0, 1))).reversed()


@pytest.mark.slow
@pytest.mark.parametrize("shape", [*SHAPES, (3, 3, 3), (4, 3, 2)], ids=str)
@pytest.mark.parametrize("attaining", [False, True], ids=["loose", "attaining"])
def test_many_more_systems_agree_with_the_theorem(shape: tuple[int, int, int], attaining: bool):
    count = 30 if shape in SHAPES else 3
    for system in systems(shape, count, attaining=attaining, first=1000):
        for change in every_change(system):
            truth, bound = system.truth(change), system.bound(change)
            assert truth == bound if attaining else truth.at_most(bound)
