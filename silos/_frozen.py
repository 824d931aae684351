"""Data frozen: a silo's shard may not change under its ledger.

The max over silos is a guarantee only for shards that are fixed before round 1. Where records may change in reaction to
what was released, it fails for every delta > 0 (Henzinger, Safavi, Vadhan 2024, arXiv 2411.03299, section 4). So a silo
fixes a keyed fingerprint of its shard in its own ledger, once for the ledger's lifetime, and declines as soon as
the shard is another.

The key never leaves the silo: without it, the head of the ledger's chain tells nobody whether a guessed shard is the
true one. It lies beside the ledger, readable by its owner alone.
"""

import os
import secrets
from pathlib import Path

from accounting import LAW_CHAIN, Ledger
from silos._errors import DataUnreadable, Declined, Reason
from silos._shard import Shard

FACT, HELD_OUT_FACT = "shard", "held-out shard"
"""The ledger's names for the fingerprints."""

KEY_BYTES = 32


def silo_key(path: Path) -> bytes:
    """The silo's own key, made from the operating system's entropy where there is none yet.

    Args:
        path: its file, in a folder that exists and that only the silo reads.

    Raises:
        DataUnreadable: for a file that is not a key.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        key = path.read_bytes()
        if len(key) != KEY_BYTES:
            raise DataUnreadable(f"{path}: holds {len(key)} bytes; a silo's key has {KEY_BYTES}.") from None
        return key
    key = secrets.token_bytes(KEY_BYTES)
    with os.fdopen(file, "wb") as opened:
        opened.write(key)
        opened.flush()
        os.fsync(opened.fileno())
    return key


def freeze(ledger: Ledger, shard: Shard, key: bytes, *, held_out: Shard | None = None) -> None:
    """Fix the shard in its silo's ledger, or refuse one that is not the shard fixed before.

    Args:
        ledger: the silo's; the fingerprint stands in the chain of the silo's own law.
        shard: what it holds now.
        key: the silo's own, as `silo_key` gives it.
        held_out: records that score models, frozen likewise.

    Raises:
        Declined: for a shard that changed.
    """
    chain = shard.name + LAW_CHAIN
    for fact, held in ((FACT, shard), (HELD_OUT_FACT, held_out)):
        if held is None:
            continue
        found, fixed = held.fingerprint(key), ledger.fixed(chain, fact)
        if fixed is None:
            ledger.fix(chain, fact, found)
        elif fixed != found:
            raise Declined(
                f"The {fact} of silo {shard.name!r} is not the one that its ledger began with. Shards are fixed before "
                "round 1: where data may change in reaction to releases, the max over silos is no guarantee "
                "(Henzinger, Safavi, Vadhan, arXiv 2411.03299). Go on with the shard as it was, or begin a new ledger "
                "and add up both.",
                Reason.DATA,
            )
