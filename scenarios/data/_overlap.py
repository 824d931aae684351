"""Overlap: individuals who are in several silos, and the caps that make the declared membership true.

A partition deals each individual to one silo. `[silos] overlap` lets a share of individuals be in several: each of
their silos then holds all of their records. What one individual may be in is declared (`membership`, `max_silos`,
`records_per_individual`) and enforced here, before round 1, by a rule that looks at ids only: never by what happens to
occur, which is private.
"""

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from accounting import enforce_cap
from scenarios.spec._scenario import Scenario

_STREAM = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Held:
    """Which silo holds which record: one entry for each record of each silo.

    Args:
        rows: row numbers in the source, shape (held,).
        silos: the silo's name for each, shape (held,).
    """

    rows: NDArray[np.intp]
    silos: NDArray[np.str_]

    def where(self, kept: NDArray[np.bool_]) -> "Held":
        """The entries for which `kept` is true."""
        return Held(rows=self.rows[kept], silos=self.silos[kept])


def spread(scenario: Scenario, individuals: NDArray[np.str_], silos: NDArray[np.str_]) -> Held:
    """Put a share of individuals into more silos, drawn from the seed.

    Args:
        scenario: whose `silos.overlap`; without it everybody stays in one silo.
        individuals: the owner of each record.
        silos: the silo that each record was dealt to.
    """
    rows = np.arange(len(silos))
    overlap = scenario.silos.overlap
    if overlap is None:
        return Held(rows=rows, silos=silos)
    seed = scenario.seed if scenario.silos.seed is None else scenario.silos.seed
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_STREAM,)))
    names = np.unique(silos)
    ids, owners = np.unique(individuals, return_inverse=True)
    chosen = generator.random(len(ids)) < overlap.fraction
    # The first silos of a random order, without the one that the individual is in anyway.
    order = np.argsort(generator.random((len(ids), len(names))), axis=1)
    held_rows, held_silos = [rows], [silos]
    for row in np.flatnonzero(chosen[owners]):
        others = [name for name in names[order[owners[row]]] if name != silos[row]][: overlap.silos - 1]
        held_rows.append(np.full(len(others), row))
        held_silos.append(np.array(others, dtype=silos.dtype))
    return Held(rows=np.concatenate(held_rows), silos=np.concatenate(held_silos))


def capped(scenario: Scenario, individuals: NDArray[np.str_], held: Held) -> Held:
    """What is left once the declared caps are enforced, where the scenario says to drop what is beyond them.

    Which records stay depends on ids and a key alone, and what happens to one individual on no other.
    """
    if scenario.data.beyond_cap == "refuse":
        return held
    most = {"disjoint": 1, "at-most": scenario.silos.max_silos, "unknown": None}[scenario.silos.membership]
    key = blake2b(scenario.seed.to_bytes(8, "big"), person=b"silodp caps", digest_size=32).digest()
    places = {str(name): np.flatnonzero(held.silos == name) for name in np.unique(held.silos)}
    ids = {name: individuals[held.rows[own]].tolist() for name, own in places.items()}
    kept = np.zeros(len(held.rows), dtype=np.bool_)
    records = scenario.data.records_per_individual if scenario.protects_individuals else None
    for name, stays in enforce_cap(ids, key, silos=most, records=records).items():
        kept[places[name]] = stays
    return held.where(kept)
