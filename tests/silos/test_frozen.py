"""A shard that changed under its ledger is refused, with the reason, and the fingerprint stays inside."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from accounting import LAW_CHAIN, Ledger
from silos import Declined, OpacusEngine, Request, Schedule, Shard, Silo, Streams, Weights, silo_key
from silos._errors import DataUnreadable


def test_a_changed_shard_is_declined_with_the_reason_and_costs_nothing(
    tmp_path: Path,
    engine: OpacusEngine,
    make_shard: Callable[..., Shard],
    make_schedule: Callable[..., Schedule],
    weights: Weights,
    streams: Streams,
) -> None:
    changed = make_shard()
    changed.features[3, 1] += 1e-3
    fewer = make_shard(39)
    key = silo_key(tmp_path / "silo.key")
    for number, (shard, served) in enumerate([(make_shard(), True), (changed, False), (fewer, False)], start=1):
        # Opened anew each time, as by a process that starts for each message.
        with Ledger.open(tmp_path / "silo.db", create=True) as ledger:
            silo = Silo(run="run", shard=shard, engine=engine, ledger=ledger, streams=streams, key=key)
            request = Request(round=number, schedule=make_schedule(), weights=weights)
            if served:
                silo.train(request)
                continue
            with pytest.raises(Declined, match=r"fixed before.*2411\.03299"):
                silo.train(request)
            assert len(ledger.charges("north")) == 1


def test_the_same_shard_goes_on_and_another_silos_ledger_is_its_own(
    tmp_path: Path,
    engine: OpacusEngine,
    make_shard: Callable[..., Shard],
    make_schedule: Callable[..., Schedule],
    weights: Weights,
    streams: Streams,
) -> None:
    key = silo_key(tmp_path / "silo.key")
    with Ledger.open(tmp_path / "silo.db", create=True) as ledger:
        silo = Silo(run="run", shard=make_shard(), engine=engine, ledger=ledger, streams=streams, key=key)
        for number in (1, 2):
            silo.train(Request(round=number, schedule=make_schedule(), weights=weights))
        other = replace(silo, shard=make_shard(name="south", seed=8))
        other.train(Request(round=1, schedule=make_schedule(), weights=weights))
        assert [len(ledger.charges(name)) for name in ("north", "south")] == [2, 1]


def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    key = silo_key(tmp_path / "silo.key")
    assert len(key) == 32
    assert silo_key(tmp_path / "silo.key") == key
    assert silo_key(tmp_path / "other.key") != key
    assert (tmp_path / "silo.key").stat().st_mode & 0o077 == 0
    (tmp_path / "silo.key").write_bytes(b"short")
    with pytest.raises(DataUnreadable, match=r"silo\.key: holds 5 bytes"):
        silo_key(tmp_path / "silo.key")


def test_what_the_ledger_holds_of_a_shard_depends_on_the_key(
    tmp_path: Path,
    engine: OpacusEngine,
    make_shard: Callable[..., Shard],
    make_schedule: Callable[..., Schedule],
    weights: Weights,
    streams: Streams,
) -> None:
    heads = set()
    for name in ("one", "other"):
        with Ledger.open(tmp_path / f"{name}.db", create=True) as ledger:
            key = silo_key(tmp_path / f"{name}.key")
            silo = Silo(run="run", shard=make_shard(), engine=engine, ledger=ledger, streams=streams, key=key)
            silo.train(Request(round=1, schedule=make_schedule(), weights=weights))
            heads.add(ledger.head("north" + LAW_CHAIN))
    assert len(heads) == 2
