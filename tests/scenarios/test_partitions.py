"""Partitions: every individual in exactly one silo, the same from the same seed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from accounting._errors import InvalidValue
from scenarios.data._partitions import deal, natural_order, silo_names
from scenarios.spec._data import Silos


@st.composite
def sections(draw: st.DrawFn) -> Silos:
    count, least = draw(st.integers(1, 8)), draw(st.integers(2, 6))
    kind = draw(st.sampled_from(["iid", "dirichlet", "quantity", "by-class"]))
    extra: dict[str, object] = {}
    if kind in ("dirichlet", "quantity"):
        extra["alpha"] = draw(st.floats(0.01, 100))
    if kind == "by-class":
        extra["classes_per_silo"] = draw(st.integers(1, 3))
    return Silos.model_validate({"partition": kind, "count": count, "min_records": least, **extra})


def labels(records: int, classes: int, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, classes, records)


@given(sections(), st.integers(48, 300), st.integers(1, 6), st.integers(0, 2**32))
def test_every_individual_is_in_one_silo_and_no_silo_is_short(
    silos: Silos, records: int, classes: int, seed: int
) -> None:
    held = labels(records, classes)
    dealt = deal(silos, held, np.random.default_rng(seed))
    assert dealt.shape == (records,)
    sizes = np.bincount(dealt, minlength=silos.count or 0)
    assert len(sizes) == silos.count
    assert sizes.sum() == records
    assert sizes.min() >= silos.min_records


@given(sections(), st.integers(48, 300), st.integers(0, 2**32))
def test_the_same_seed_deals_the_same(silos: Silos, records: int, seed: int) -> None:
    held = labels(records, 4)
    before = held.copy()
    first, second = (deal(silos, held, np.random.default_rng(seed)) for _ in range(2))
    assert np.array_equal(first, second)
    assert np.array_equal(held, before)


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "quantity", "by-class"])
def test_another_seed_deals_otherwise(kind: str) -> None:
    silos = section(kind)
    dealt = {tuple(deal(silos, labels(500, 5), np.random.default_rng(seed)).tolist()) for seed in range(5)}
    assert len(dealt) == 5


def section(kind: str, alpha: float = 1.0, count: int = 10) -> Silos:
    extra = {"classes_per_silo": 2} if kind == "by-class" else {} if kind == "iid" else {"alpha": alpha}
    return Silos.model_validate({"partition": kind, "count": count, "min_records": 2, **extra})


@given(st.integers(20, 500), st.integers(0, 100))
def test_iid_sizes_differ_by_at_most_one(records: int, seed: int) -> None:
    sizes = np.bincount(deal(section("iid"), labels(records, 3), np.random.default_rng(seed)), minlength=10)
    assert sizes.max() - sizes.min() <= 1


def skew(dealt: NDArray[np.intp], held: NDArray[np.int64]) -> float:
    """Mean total variation distance between a silo's label shares and everybody's."""
    everybody = np.bincount(held, minlength=10) / len(held)
    shares = [np.bincount(held[dealt == silo], minlength=10) / np.sum(dealt == silo) for silo in range(10)]
    return float(np.mean([np.abs(share - everybody).sum() / 2 for share in shares]))


def test_small_alpha_skews_labels_and_large_alpha_does_not() -> None:
    held = labels(20_000, 10)
    skews = [skew(deal(section("dirichlet", alpha), held, np.random.default_rng(3)), held) for alpha in (0.05, 1, 1e4)]
    assert skews[0] > 0.6
    assert skews[0] > skews[1] > skews[2]
    assert skews[2] < 0.05


def test_quantity_skews_sizes_and_leaves_labels_alone() -> None:
    held = labels(20_000, 10)
    sizes = [
        np.bincount(deal(section("quantity", alpha), held, np.random.default_rng(4)), minlength=10).std()
        for alpha in (0.3, 3, 1e6)
    ]
    assert sizes[0] > sizes[1] > sizes[2]
    assert sizes[2] < 10
    assert skew(deal(section("quantity", 1e6), held, np.random.default_rng(4)), held) < 0.05


@given(st.integers(0, 1000))
def test_a_silo_dealt_by_class_sees_few_classes(seed: int) -> None:
    """A piece of a sorted column spans two classes at most when it is no longer than the shortest class."""
    held = np.repeat(np.arange(10), 40)
    dealt = deal(section("by-class"), held, np.random.default_rng(seed))
    assert max(len(np.unique(held[dealt == silo])) for silo in range(10)) <= 4


def test_too_few_individuals_are_refused() -> None:
    with pytest.raises(InvalidValue, match="20 individuals, got 19"):
        deal(section("iid"), labels(19, 2), np.random.default_rng(0))


def test_names_sort_as_they_are_numbered() -> None:
    names = silo_names(1000)
    assert names == sorted(names) == natural_order(names)
    assert names[0] == "silo-0001"


@given(st.lists(st.text("ab10 9", max_size=4), unique=True))
def test_natural_order_is_one_order_whatever_came_in(names: list[str]) -> None:
    assert natural_order(names) == natural_order(names[::-1])
    assert sorted(natural_order(names)) == sorted(names)


def test_numbers_in_names_count() -> None:
    assert natural_order(["b", "10", "a10", "9", "a9", "2"]) == ["2", "9", "10", "a9", "a10", "b"]
