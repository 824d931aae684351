"""The key of all noise of a run."""

from hashlib import blake2b
from importlib.metadata import version

from scenarios.data._dataset import Dataset
from scenarios.spec._scenario import Scenario


def run_name(scenario: Scenario, key: bytes) -> str:
    """A run's name in the ledger: the scenario's, and the head of the run key."""
    return f"{scenario.name}-{key.hex()[:16]}"


def run_key(scenario: Scenario, dataset: Dataset) -> bytes:
    """The key of all noise of a run: a hash of the resolved scenario with its seed, the shards and the code version.

    A changed scenario draws fresh noise under the same seed; equal noise under two settings would cancel out of the
    difference of their releases.
    """
    digest = blake2b(digest_size=32, person=b"silodp run")
    shards = [shard.fingerprint(b"simulation") for shard in dataset.shards.values()]
    for part in (version("silodp").encode(), scenario.canonical(), *(shard.encode() for shard in shards)):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()
