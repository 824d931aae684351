"""Partitions: dealing one data set to artificial silos, from a seed.

An individual's records stay together, so that membership is disjoint. Each partition deals every individual to exactly
one silo, and every silo gets at least a given number of them.

| name | what differs between silos |
|---|---|
| iid | nothing but chance; sizes differ by at most one |
| dirichlet | each label's shares are drawn from a symmetric Dirichlet law (Hsu, Qi, Brown 2019) |
| quantity | sizes only: shares of all individuals are drawn from a symmetric Dirichlet law |
| by-class | labels: individuals sorted by label are cut into equal pieces, some to each silo (McMahan et al. 2017) |
"""

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from accounting._errors import InvalidValue
from scenarios.spec._data import Silos

Silo = NDArray[np.intp]
"""Silo number of each individual."""


def deal(silos: Silos, labels: NDArray[np.generic], generator: np.random.Generator) -> Silo:
    """Deal individuals to silos.

    Args:
        silos: the scenario's section; its partition must be set.
        labels: one label an individual (class numbers); only dirichlet and by-class look.
        generator: the source of chance.

    Returns:
        The silo of each individual, from 0 to count - 1; no silo has fewer than `min_records` individuals.

    Raises:
        InvalidValue: where there are too few individuals.
    """
    count, least = silos.count or 0, silos.min_records
    if len(labels) < count * least:
        raise InvalidValue(f"Expected at least count x min_records = {count * least} individuals, got {len(labels)}.")
    dealt = _DEALERS[silos.partition or ""](silos, labels, generator)
    return _topped_up(dealt, count, least, generator)


def _iid(silos: Silos, labels: NDArray[np.generic], generator: np.random.Generator) -> Silo:
    return generator.permutation(len(labels)) % (silos.count or 0)


def _dirichlet(silos: Silos, labels: NDArray[np.generic], generator: np.random.Generator) -> Silo:
    dealt = np.empty(len(labels), dtype=np.intp)
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        dealt[members] = _by_shares(len(members), silos, generator)
    return dealt


def _quantity(silos: Silos, labels: NDArray[np.generic], generator: np.random.Generator) -> Silo:
    dealt = np.empty(len(labels), dtype=np.intp)
    dealt[generator.permutation(len(labels))] = _by_shares(len(labels), silos, generator)
    return dealt


def _by_class(silos: Silos, labels: NDArray[np.generic], generator: np.random.Generator) -> Silo:
    shuffled = generator.permutation(len(labels))
    ordered = shuffled[np.argsort(labels[shuffled], kind="stable")]
    each = silos.classes_per_silo or 0
    pieces = np.array_split(ordered, (silos.count or 0) * each)
    dealt = np.empty(len(labels), dtype=np.intp)
    for position, piece in enumerate(generator.permutation(len(pieces))):
        dealt[pieces[piece]] = position // each
    return dealt


def _by_shares(total: int, silos: Silos, generator: np.random.Generator) -> Silo:
    """Silo numbers of `total` individuals in a row, cut at Dirichlet shares."""
    shares = generator.dirichlet(np.full(silos.count or 0, silos.alpha or 0.0))
    cuts = np.round(np.cumsum(shares)[:-1] * total).astype(np.intp)
    return np.searchsorted(cuts, np.arange(total), side="right")


def _topped_up(dealt: Silo, count: int, least: int, generator: np.random.Generator) -> Silo:
    """Move individuals, drawn at random, from the largest silo to each silo that has too few."""
    sizes = np.bincount(dealt, minlength=count)
    while sizes.min() < least:
        poor, rich = int(sizes.argmin()), int(sizes.argmax())
        moved = min(least - sizes[poor], sizes[rich] - least)
        dealt[generator.choice(np.flatnonzero(dealt == rich), size=moved, replace=False)] = poor
        sizes = np.bincount(dealt, minlength=count)
    return dealt


_DEALERS: dict[str, Callable[[Silos, NDArray[np.generic], np.random.Generator], Silo]] = {
    "iid": _iid,
    "dirichlet": _dirichlet,
    "quantity": _quantity,
    "by-class": _by_class,
}


def silo_names(count: int) -> list[str]:
    """Names of artificial silos, numbered from 1, of equal length so that they sort by number."""
    width = len(str(count))
    return [f"silo-{number:0{width}d}" for number in range(1, count + 1)]


def natural_order(names: Sequence[str]) -> list[str]:
    """Sort names so that numbers in them count: 2 before 10."""
    return sorted(names, key=lambda name: ([_piece(piece) for piece in _PIECES.findall(name)], name))


_PIECES = re.compile(r"\d+|\D+")


def _piece(piece: str) -> tuple[int, int, str]:
    return (0, int(piece), "") if piece.isdecimal() else (1, 0, piece)
