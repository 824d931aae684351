"""The chain of a deployed silo's own law: what holds for its ledger's lifetime beside the releases.

A deployed silo keeps two chains in its ledger. The one of its name holds the releases and is, row by row, the one that
a simulation of the same run would have. The one of its law holds the budget, the shard's fingerprint, who asked, and
where the noise comes from; nothing is ever charged to it.
"""

from accounting._claims import NonPrivate
from accounting._ledger import Ledger

LAW_CHAIN = "/law"
"""After a silo's name, the name of the chain of its law."""

NOISE = "noise"
"""The fact that says where noise comes from: `SYSTEM_NOISE` or `TEST_NOISE`."""

SYSTEM_NOISE, TEST_NOISE = "operating system", "insecure test seed"

_VOID = "noise came from an insecure test seed, and whoever holds it can take the noise off"


def is_law_chain(ledger: Ledger, chain: str) -> bool:
    """Whether a chain is a law's, to which nothing was charged."""
    return chain.endswith(LAW_CHAIN) and not ledger.charges(chain)


def voided(ledger: Ledger) -> list[NonPrivate]:
    """What to add to the releases of every silo of a ledger whose noise came from a test seed."""
    seeded = (chain.endswith(LAW_CHAIN) and ledger.fixed(chain, NOISE) == TEST_NOISE for chain in ledger.silos())
    return [NonPrivate(reason=_VOID)] if any(seeded) else []
