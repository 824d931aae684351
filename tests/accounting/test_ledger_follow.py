"""A ledger follows another: it takes rows as they stand, goes on only from where it is, and takes nothing else."""

from pathlib import Path

import pytest

from accounting import Ledger, LedgerCorrupt, SampledGaussian

STEP = SampledGaussian(sampling_rate=0.1, noise_multiplier=1.0, steps=3)


def charge(ledger: Ledger, silo: str, round: int, request: str = "asked") -> None:
    held = ledger.charge(
        silo=silo, run="run", round=round, attempt=0, item="update", mechanism=STEP, request=f"{request} {round}"
    )
    ledger.release(held, executed=3, output=f"{silo} {round}")


def test_two_ledgers_take_turns_and_end_equal(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "all.db", create=True) as whole, Ledger.open(tmp_path / "n.db", create=True) as own:
        for silo in ("north", "south"):
            whole.declare(silo, "run", 3, STEP)
        own.follow(whole, {"north"})
        for round in (1, 2, 3):
            charge(own, "north", round)
            with whole.batch():
                charge(whole, "south", round)
                whole.follow(own)
        own.follow(whole, {"north"})
        assert own.silos() == ["north"]
        assert whole.rows("north") == own.rows("north")
        assert whole.releases("north") == own.releases("north") == [STEP] * 3
        heads = whole.heads()
    with Ledger.open(tmp_path / "all.db", read_only=True) as whole:
        assert whole.verify(heads) == heads
        assert len(whole.releases("south")) == 3


@pytest.mark.parametrize("rounds", [1, 2])
def test_what_went_apart_is_refused_and_nothing_is_taken(tmp_path: Path, rounds: int) -> None:
    with Ledger.open(tmp_path / "one.db", create=True) as one, Ledger.open(tmp_path / "other.db", create=True) as other:
        charge(one, "north", 1)
        charge(other, "aarhus", 1)
        for round in range(1, rounds + 1):
            charge(other, "north", round, request="asked otherwise")
        before = one.heads()
        with pytest.raises(LedgerCorrupt, match="other rows than in"):
            one.follow(other)
        assert one.heads() == before
        assert one.verify(before) == before
