"""A deployed silo behind its real client app, and a server that may send it anything."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict

import silos.app
from accounting import Ledger
from server._flower import identify_process, number
from silos import Schedule, Shard, Weights, build_model, hash_weights, weights_of
from silos._client import request_content
from silos._folder import SiloFolder
from silos._law import LAW, Law
from silos._shard_files import write_shard

RECORDS, FEATURES = 60, 4
TOML = """
name = "north"
relation = "add-or-remove-one"
server = "the tests"

[data]
path = "shard.npz"
task = "binary"
size = 50

[[models]]
kind = "linear"

[budget]
epsilon = 6.0
delta = 1e-5

[limits]
noise_multiplier = 1.5
clip_norm = 1.0
sampling_rate = 0.2
steps = 3
rounds = 4
"""
SCHEDULE = Schedule(
    sampling_rate=0.2, steps=3, noise_multiplier=1.5, clip_norm=1.0, expected_batch=10.0, learning_rate=0.5
)
MODEL = build_model("linear", input_shape=(FEATURES,), outputs=1, seed=1)


def real_arrays(weights: Mapping[str, np.ndarray]) -> ArrayRecord:
    """Weights as they come over a network."""
    return ArrayRecord({name: Array(array) for name, array in weights.items()})


def make_shard(name: str = "north", seed: int = 0) -> Shard:
    generator = np.random.default_rng(seed)
    return Shard(
        name=name,
        features=generator.normal(size=(RECORDS, FEATURES)).astype(np.float32),
        labels=generator.integers(2, size=RECORDS).astype(np.float32),
        individuals=np.arange(RECORDS).astype(np.str_),
    )


@dataclass
class Server:
    """A server, honest unless told what to lie.

    Args:
        folder: the silo's.
    """

    folder: Path
    config: dict[str, str] = field(default_factory=dict)

    def content(self, weights: Weights | None = None, **changes: object) -> RecordDict:
        """An honest train message of round 1, with values of its schedule record changed."""
        content = request_content(
            real_arrays(weights_of(MODEL) if weights is None else weights), SCHEDULE, round=1, attempt=0, rounds=4
        )
        for name, value in changes.items():
            content["schedule"][name] = value  # type: ignore[index, assignment]
        return content

    def send(self, content: RecordDict, kind: str = "train", *, run: int = 7) -> Message:
        """The silo's reply."""
        identify_process(run)
        message = Message(content, 1, kind)
        number(message, "1")
        context = Context(run, 1, {"silo-folder": str(self.folder)}, RecordDict(), dict(self.config))
        return silos.app.app(message, context)

    def ledger(self) -> Ledger:
        return Ledger.open(self.folder / "ledger.db", read_only=True)

    def state(self) -> tuple[object, ...]:
        """All that a request may change: the ledger's rows and the bytes kept."""
        with self.ledger() as ledger:
            rows = [row for name in ledger.silos() for row in ledger.rows(name)]
        return rows, sorted(path.name for path in (self.folder / "released").glob("*"))


def make_silo(folder: Path, change: Callable[[str], str] = lambda text: text) -> Server:
    """A silo's folder, and a server that knows where it is."""
    folder.mkdir()
    (folder / LAW).write_text(change(TOML))
    law = Law.read(folder / LAW)
    write_shard(folder / "shard.npz", make_shard())
    if law.data.held_out is not None:
        write_shard(folder / law.data.held_out, make_shard(seed=9))
    return Server(folder)


def released(reply: Message) -> str:
    """A hash of the arrays of a reply."""
    (record,) = reply.content.array_records.values()
    return hash_weights({name: array.numpy() for name, array in record.items()})


def law_of(server: Server) -> Law:
    return SiloFolder(server.folder).law()
