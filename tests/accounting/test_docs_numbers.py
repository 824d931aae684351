"""Every number marked in docs/parallel-composition.md, recomputed: by an independent route and by the library.

A number is marked by a comment behind it: ``**2.902**<!-- disjoint.max -->``. The independent route must round to
what is printed. The library may be above it by its stated error and never below.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import doc_library
import doc_numbers
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "parallel-composition.md"
MARK = re.compile(r"\*\*([^*]+)\*\*<!-- ([a-z0-9.-]+) -->")

LIBRARY_ERROR = 1e-3
"""Epsilon, and what is calibrated to it, may be this much too large, relatively; see the PLD's own statement."""


@cache
def printed() -> dict[str, str]:
    """Marked numbers by key."""
    marks = MARK.findall(PAGE.read_text(encoding="utf-8"))
    return {key: text for text, key in marks}


def half_a_digit(text: str) -> float:
    """Half a unit of the last printed place."""
    mantissa, _, exponent = text.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 0.5 * 10.0 ** (int(exponent or 0) - decimals)


def test_every_marked_number_is_recomputed_and_every_recomputed_number_is_marked_once():
    keys = [key for _, key in MARK.findall(PAGE.read_text(encoding="utf-8"))]
    assert sorted(keys) == sorted(doc_numbers.INDEPENDENT)
    assert set(doc_library.LIBRARY) <= set(doc_numbers.INDEPENDENT)


def independent_keys() -> list[object]:
    return [
        pytest.param(key, marks=pytest.mark.slow) if key in doc_numbers.SLOW else key
        for key in sorted(doc_numbers.INDEPENDENT)
    ]


@pytest.mark.parametrize("key", independent_keys())
def test_an_independent_route_rounds_to_the_printed_number(key: str):
    text = printed()[key]
    route: Callable[[], float] = doc_numbers.INDEPENDENT[key]
    assert abs(route() - float(text)) <= half_a_digit(text) * 1.0001


@pytest.mark.parametrize("key", sorted(doc_library.LIBRARY))
def test_the_library_answers_the_printed_number_rounded_up_at_most_by_its_error(key: str):
    text = printed()[key]
    value, slack = float(text), half_a_digit(text) * 1.0001
    answer = doc_library.LIBRARY[key]()
    assert value - slack <= answer <= value * (1 + LIBRARY_ERROR) + slack
