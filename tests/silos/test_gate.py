"""Nothing leaves a silo but what its ledger says was released, byte by byte, and what is public by name."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord

from accounting import Charge, DiscreteLaplace, Ledger
from silos import ReleaseRefused, Schedule, Weights, hash_weights, open_gate


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.db", create=True) as opened:
        yield opened


@pytest.fixture
def charge(ledger: Ledger, make_schedule: Callable[..., Schedule]) -> Charge:
    mechanism = make_schedule().mechanism()
    return ledger.charge(silo="north", run="run", round=1, attempt=0, item="update", mechanism=mechanism, request="r")


def test_what_was_released_leaves(ledger: Ledger, charge: Charge, weights: Weights) -> None:
    released = ledger.release(charge, executed=4, output=hash_weights(weights))
    assert list(open_gate({"arrays": weights}, {"arrays": released})) == ["arrays"]


def test_what_was_charged_and_not_released_stays(charge: Charge, weights: Weights) -> None:
    with pytest.raises(ReleaseRefused, match="'arrays' is not what the ledger released"):
        open_gate({"arrays": weights}, {"arrays": charge})


def test_one_other_bit_stays(ledger: Ledger, charge: Charge, weights: Weights) -> None:
    released = ledger.release(charge, executed=4, output=hash_weights(weights))
    name = next(iter(weights))
    other = weights | {name: np.nextafter(weights[name], np.inf)}
    with pytest.raises(ReleaseRefused, match="'arrays'"):
        open_gate({"arrays": other}, {"arrays": released})
    with pytest.raises(ReleaseRefused, match="'arrays'"):
        open_gate({"arrays": weights | {"extra": np.zeros(1)}}, {"arrays": released})


@pytest.mark.parametrize("name", ["loss", "num-examples", "update", "Arrays"])
def test_an_item_without_a_row_is_refused_by_its_name(
    ledger: Ledger, charge: Charge, weights: Weights, name: str
) -> None:
    released = ledger.release(charge, executed=4, output=hash_weights(weights))
    for item in (weights, MetricRecord({"value": 0.3}), ConfigRecord({"value": "x"})):
        with pytest.raises(ReleaseRefused, match=f"'{name}'"):
            open_gate({"arrays": weights, name: item}, {"arrays": released})


def test_a_charged_item_is_arrays_and_nothing_else(charge: Charge) -> None:
    with pytest.raises(ReleaseRefused, match="'arrays'"):
        open_gate({"arrays": MetricRecord({"loss": 0.3})}, {"arrays": charge})


def test_the_row_of_one_statistic_lets_no_other_out(ledger: Ledger, weights: Weights) -> None:
    count = ledger.charge(
        silo="north", run="run", round=0, attempt=0, item="size", mechanism=DiscreteLaplace(scale=10.0), request="r"
    )
    value = {"size": np.array([41])}
    released = ledger.release(count, executed=1, output=hash_weights(value))
    assert open_gate({"size": value}, {"size": released})
    with pytest.raises(ReleaseRefused):
        open_gate({"size": {"size": np.array([40])}}, {"size": released})
    with pytest.raises(ReleaseRefused):
        open_gate({"arrays": weights}, {"size": released})
    with pytest.raises(ReleaseRefused):
        open_gate({"size": value}, {"size": replace(released, output=None)})


def test_what_is_public_is_one_value_and_no_array(weights: Weights) -> None:
    # Else a public name would let out whatever someone puts under it.
    public = frozenset({"records"})
    assert open_gate({"records": ConfigRecord({"number": 7})}, {}, public)["records"] == ConfigRecord({"number": 7})
    for item in (weights, MetricRecord({"number": 7}), ConfigRecord({"number": 7, "other": 8}), ConfigRecord({})):
        with pytest.raises(ReleaseRefused, match="'records'"):
            open_gate({"records": item}, {}, public)


def test_a_name_may_leave_since_it_is_public() -> None:
    assert "silo" in open_gate({"silo": ConfigRecord({"name": "north"})}, {})
