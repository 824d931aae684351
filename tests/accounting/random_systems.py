"""Draw small interleaved systems at random, each with what its silos declare for each of their steps.

Two kinds. In a *loose* system every history picks one of several laws, may garble its answer, may skip the silo and may
stop the run; the declared pair of a step only has to dominate whatever a history may pick. In an *attaining* system
every history that is reached shows exactly the declared pair, under fresh names and finer outcomes, in an order of
silos that still reacts to the answers; there the bound has to be met with equality.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, permutations

from finite_systems import (
    Law,
    Pair,
    State,
    Step,
    Tree,
    composed,
    holding,
    pair,
    worst,
)

UNIT = 24
"""Laws on a menu total UNIT; garbling multiplies by one more UNIT."""

Laws = Mapping[State, Law]
Change = tuple[State, State]
"""What a silo holds of the individual in one dataset and in its neighbour."""


@dataclass(frozen=True)
class System:
    """A tree, and for each silo and each of its steps the menu of laws that the step may pick from."""

    tree: Tree
    menus: Sequence[Sequence[Sequence[Laws]]]
    attaining: bool
    _declared: dict[tuple[int, int, Change], Pair] = field(default_factory=dict, compare=False)
    _laws: dict[tuple[State, ...], list[int]] = field(default_factory=dict, compare=False)

    @property
    def silos(self) -> range:
        return range(len(self.menus))

    @cached_property
    def steps(self) -> int:
        """How many steps each silo declares."""
        return len(self.menus[0])

    def declared(self, silo: int, step: int, change: Change) -> Pair:
        """The pair that a silo declares for one step, whatever the records: x and y stand for any contribution."""
        key = (silo, step, _kind(change))
        if key not in self._declared:
            shown = [pair(laws[a], laws[b]) for laws in self.menus[silo][step] for a, b in _changes_like(change)]
            self._declared[key] = worst(shown)
        return self._declared[key]

    def bound(self, changes: Mapping[int, Change]) -> Pair:
        """Compose all declared steps of the silos whose shard changes, and of no other."""
        return composed(self.declared(silo, step, changes[silo]) for silo in changes for step in range(self.steps))

    def truth(self, changes: Mapping[int, Change]) -> Pair:
        """The exact pair of the whole transcript under two fixed datasets."""
        return pair(*(self._joint({silo: change[side] for silo, change in changes.items()}) for side in (0, 1)))

    def _joint(self, states: Mapping[int, State]) -> list[int]:
        key = tuple(states.get(silo, "absent") for silo in self.silos)
        if key not in self._laws:
            self._laws[key] = self.tree.joint(holding(states))
        return self._laws[key]


def _kind(change: Change) -> Change:
    """The change with contributions made anonymous: (x, absent) and (y, absent) are one kind."""
    first, second = change
    if first != "absent" and second != "absent":
        return ("x", "y")
    return ("absent" if first == "absent" else "x", "absent" if second == "absent" else "x")


def _changes_like(change: Change) -> list[Change]:
    states = ("absent", "x", "y")
    return [(a, b) for a in states for b in states if a != b and _kind((a, b)) == _kind(change)]


def removals(silos: Iterable[int], states: str = "xxxx") -> dict[int, Change]:
    """The individual is in all of these silos, or in none."""
    return {silo: (state, "absent") for silo, state in zip(silos, states, strict=False)}


def additions(silos: Iterable[int], states: str = "xxxx") -> dict[int, Change]:
    """The other way round."""
    return {silo: ("absent", state) for silo, state in zip(silos, states, strict=False)}


def replacements(silos: Iterable[int], states: str = "xxxx") -> dict[int, Change]:
    """The individual's records are replaced in all of these silos."""
    return {silo: (state, "y" if state == "x" else "x") for silo, state in zip(silos, states, strict=False)}


def move(origin: int, target: int, states: str = "xy") -> dict[int, Change]:
    """The individual is in one silo, or with other records in another one."""
    return {origin: (states[0], "absent"), target: ("absent", states[1])}


def families(silos: int, largest: int) -> list[list[tuple[int, ...]]]:
    """Some families of silo sets: disjoint, every cap up to `largest`, and one that is not a cap."""
    capped = [list(combinations(range(silos), size)) for size in range(1, largest + 1)]
    return [*capped, [(0, 1), *((silo,) for silo in range(2, silos))]]


def moves(silos: int) -> list[tuple[int, int]]:
    """Every ordered pair of silos."""
    return list(permutations(range(silos), 2))


def draw(seed: int, *, silos: int, steps: int, outputs: int, attaining: bool) -> System:
    """One random system; equal arguments give the equal system."""
    rng = random.Random(f"{seed} {silos} {steps} {outputs} {attaining}")
    make, cards = (_symmetric, 1) if attaining else (_arbitrary, 2)
    menus = [[[make(rng, outputs) for _ in range(cards)] for _ in range(steps)] for _ in range(silos)]
    grow = _attained if attaining else _garbled

    def node(done: tuple[int, ...]) -> Step | None:
        open_silos = [silo for silo in range(silos) if done[silo] < steps]
        if not open_silos or (not attaining and any(done) and rng.random() < 0.06):
            return None
        silo = rng.choice(open_silos)
        laws = grow(rng, menus[silo][done[silo]])
        after = tuple(count + (other == silo) for other, count in enumerate(done))
        return Step(silo, laws, tuple(node(after) for _ in laws["x"]))

    root = node((0,) * silos)
    if root is None:
        raise ValueError("A system needs at least one step.")
    return System(Tree(root, UNIT * UNIT, silos * steps), menus, attaining)


def _law(rng: random.Random, outputs: int) -> Law:
    """A law in units of 1/UNIT, with an impossible output now and then."""
    if rng.random() < 0.85:
        cuts = sorted(rng.sample(range(1, UNIT), outputs - 1))
    else:
        cuts = sorted(rng.randint(0, UNIT) for _ in range(outputs - 1))
    return tuple(b - a for a, b in zip([0, *cuts], [*cuts, UNIT], strict=True))


def _arbitrary(rng: random.Random, outputs: int) -> Laws:
    """Three unrelated laws."""
    return {state: _law(rng, outputs) for state in ("absent", "x", "y")}


def _symmetric(rng: random.Random, outputs: int) -> Laws:
    """y mirrors x and absence is its own mirror image, so that x and y show one and the same pair."""
    x = _law(rng, outputs)
    half = rng.randint(1, UNIT // 2 - 1)
    middle = (UNIT - 2 * half,) if outputs == 3 else ()
    absent = (half, *middle, half) if outputs == 3 else (UNIT // 2, UNIT // 2)
    return {"absent": absent, "x": x, "y": x[::-1]}


def _garbled(rng: random.Random, menu: Sequence[Laws]) -> Laws:
    """Pick a law from the menu and pass its output through a random channel (a constant one skips the silo)."""
    laws = rng.choice(menu)
    size = len(laws["x"])
    style = rng.random()
    if style < 0.5:
        channel = [[UNIT * (i == j) for j in range(size)] for i in rng.sample(range(size), size)]
    elif style < 0.6:
        channel = [[UNIT, *[0] * (size - 1)]] * size
    else:
        channel = [list(_law(rng, size)) for _ in range(size)]
    return {
        state: tuple(sum(law[i] * channel[i][j] for i in range(size)) for j in range(size))
        for state, law in laws.items()
    }


def _attained(rng: random.Random, menu: Sequence[Laws]) -> Laws:
    """The one law of the menu, outputs shuffled, one output now and then split in two that mean the same."""
    laws = menu[0]
    size = len(laws["x"])
    order = rng.sample(range(size), size)
    share = rng.randint(1, UNIT - 1) if rng.random() < 0.15 else UNIT
    split: dict[State, Law] = {}
    for state, law in laws.items():
        head, *tail = [law[i] for i in order]
        pieces = (head * share, head * (UNIT - share)) if share < UNIT else (head * UNIT,)
        split[state] = (*pieces, *(mass * UNIT for mass in tail))
    return split
