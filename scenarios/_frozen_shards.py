"""Shards of a simulation are frozen in its ledger, as those of deployed silos are.

The key follows from the seed alone: the run key hashes the shards, so that a fingerprint by it would never be compared
with the one before. A simulation guards no secret by it; whoever has the seed can redraw all of its noise.
"""

from hashlib import blake2b

from accounting import Ledger
from scenarios._asked import held_out_chain
from scenarios.data._dataset import Dataset, held_out_shard
from scenarios.spec._scenario import Scenario
from silos import freeze


def freeze_shards(scenario: Scenario, dataset: Dataset, ledger: Ledger) -> None:
    """Fix every silo's shard in its ledger, and its held-out records where they score models.

    Args:
        scenario: of the run.
        dataset: as it was read.
        ledger: of all silos.

    Raises:
        Declined: for a shard that is not the one its ledger began with.
    """
    key = blake2b(scenario.seed.to_bytes(8, "big"), person=b"silodp frozen", digest_size=32).digest()
    for name, shard in dataset.shards.items():
        held_out = None
        if scenario.evaluation.silo_metrics:
            held_out = held_out_shard(dataset, name, held_out_chain(scenario, name))
        freeze(ledger, shard, key, held_out=held_out)
