"""Runs whose noisy outputs are all replaced by one tape, and everything that they let out of the silos.

What a silo lets out may depend on its shard through the output of a priced mechanism alone. So replace every noisy
output by the next numbers of one and the same tape: whatever still differs between two shards left by another way.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message
from numpy.typing import NDArray

import scenarios._runner
import scenarios._simulation
import silos._engine
from accounting import Ledger
from scenarios import Scenario
from scenarios._checkpoint import load_checkpoint
from scenarios._dataset import Dataset
from scenarios._runner import CHECKPOINT, run
from server import InProcessGrid
from silos import Shard
from silos._optimizer import StreamOptimizer

Floats = NDArray[np.float64]


@dataclass(eq=False)
class Seen:
    """What one taped run showed.

    Args:
        wire: every message between the server and a silo, both ways, in order.
        results: what the run wrote and the terms of every charge, by name; not the silos' own fingerprints.
        sums: the gradient sum of each step before the tape took its place, which nobody outside the silo sees.
        clip_norms: the sum's declared sensitivity in that step.
        epsilon: the run's, as its guarantee says.
    """

    wire: list[bytes] = field(default_factory=list)
    results: dict[str, bytes] = field(default_factory=dict)
    sums: list[Floats] = field(default_factory=list)
    clip_norms: list[float] = field(default_factory=list)
    epsilon: float = 0.0

    def left(self) -> dict[str, bytes]:
        """Every byte that left a silo or was computed from what did, by where it was seen."""
        return {f"message {number}": part for number, part in enumerate(self.wire, start=1)} | self.results


def taped_run(scenario: Scenario, dataset: Dataset, out: Path) -> Seen:
    """Run a scenario over a dataset with every noisy output from the tape."""
    seen = Seen()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenarios._runner, "prepare", lambda _: dataset)
        patch.setattr(scenarios._simulation, "run_key", lambda *_: b"one key for all of the runs here")
        patch.setattr(scenarios._runner, "render_report", lambda *_: "")
        patch.setattr(Shard, "fingerprint", lambda *_: "secret")
        patch.setattr(silos._engine, "poisson_sample", _coupled(silos._engine.poisson_sample))
        _tape_sums(patch, seen)
        _tap_wire(patch, seen)
        result = run(scenario, out=out)
    seen.epsilon = result.guarantee.epsilon
    seen.results = _written(out) | {"plan": json.dumps(result.plan.to_json()).encode()}
    return seen


def without_last(dataset: Dataset, silo: str) -> Dataset:
    """The neighbour of a dataset in which a silo's last record is gone."""
    return _changed(dataset, silo, lambda shard: _rows(shard, np.arange(len(shard) - 1)))


def halved(dataset: Dataset) -> Dataset:
    """Far from the dataset by many removals: half of the records of every silo are gone."""
    for silo in dataset.shards:
        dataset = _changed(dataset, silo, lambda shard: _rows(shard, np.arange((len(shard) + 1) // 2)))
    return dataset


def with_blank_last(dataset: Dataset, silo: str) -> Dataset:
    """The neighbour of a dataset in which a silo's last record is zeroed out: its gradient is zero at every weight."""
    return _changed(dataset, silo, lambda shard: blank(shard, [len(shard) - 1]))


def blanked(dataset: Dataset) -> Dataset:
    """Far from the dataset by many zero-outs: every second record of every silo is blank."""
    for silo in dataset.shards:
        dataset = _changed(dataset, silo, lambda shard: blank(shard, range(0, len(shard), 2)))
    return dataset


def blank(shard: Shard, rows: Iterable[int]) -> Shard:
    """The shard with some records zeroed out: features that are no numbers contribute nothing."""
    features, labels = shard.features.copy(), shard.labels.copy()
    features[list(rows)] = np.nan
    labels[list(rows)] = 0
    return replace(shard, features=features, labels=labels)


def cut(dataset: Dataset, *, silos: int, records: int) -> Dataset:
    """The first records of the first silos, to keep a test short."""
    names = list(dataset.shards)[:silos]
    kept = np.isin(dataset.test_silos, names)
    return replace(
        dataset,
        shards={name: _rows(dataset.shards[name], np.arange(len(dataset.shards[name]))[:records]) for name in names},
        test_features=dataset.test_features[kept],
        test_labels=dataset.test_labels[kept],
        test_silos=dataset.test_silos[kept],
    )


def _changed(dataset: Dataset, silo: str, change: Callable[[Shard], Shard]) -> Dataset:
    return replace(dataset, shards=dataset.shards | {silo: change(dataset.shards[silo])})


def _rows(shard: Shard, rows: NDArray[np.intp]) -> Shard:
    return replace(shard, features=shard.features[rows], labels=shard.labels[rows], individuals=shard.individuals[rows])


_COINS = 1000
"""More than any shard here has records."""


def _coupled(sample: Callable[..., NDArray[np.intp]]) -> Callable[..., NDArray[np.intp]]:
    """Poisson samples whose coin of a record is the same whether or not records follow it, in every step."""

    def coupled(records: int, sampling_rate: float, generator: np.random.Generator) -> NDArray[np.intp]:
        rows = sample(_COINS, sampling_rate, generator)
        return rows[rows < records]

    return coupled


def _tape_sums(patch: pytest.MonkeyPatch, seen: Seen) -> None:
    tape = np.random.default_rng(20)

    def add_noise(self: StreamOptimizer) -> None:
        total, self._total = self._total, None
        assert total is not None
        seen.sums.append(total.double().numpy().copy())
        seen.clip_norms.append(self.max_grad_norm)
        output = total.new_tensor(self.max_grad_norm * tape.standard_normal(len(total)))
        for parameter, part in zip(self._trained, output.split(self._sizes), strict=True):
            parameter.grad = part.view_as(parameter)

    patch.setattr(StreamOptimizer, "add_noise", add_noise)


def _tap_wire(patch: pytest.MonkeyPatch, seen: Seen) -> None:
    deliver = InProcessGrid.send_and_receive

    def tapped(self: InProcessGrid, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        sent = list(messages)
        seen.wire.extend(map(message_bytes, sent))
        replies = list(deliver(self, sent, timeout=timeout))
        seen.wire.extend(map(message_bytes, replies))
        return replies

    patch.setattr(InProcessGrid, "send_and_receive", tapped)


def message_bytes(message: Message) -> bytes:
    """Everything a message says: who, what kind, and every record or the error."""
    meta = message.metadata
    head = f"{meta.src_node_id}>{meta.dst_node_id} {meta.message_type} "
    if message.has_error():
        return f"{head}error {message.error.code} {message.error.reason}".encode()
    return head.encode() + b" ".join(_item_bytes(message.content))


def _item_bytes(content: Mapping[str, object]) -> Iterator[bytes]:
    for name, record in content.items():
        yield f"{type(record).__name__} {name}".encode()
        if isinstance(record, ArrayRecord):
            for key, array in record.items():
                yield f"{key} {array.dtype} {array.shape}".encode() + array.data
        else:
            yield repr(dict(record)).encode()  # type: ignore[call-overload]  # a record of numbers is a mapping


def _written(folder: Path) -> dict[str, bytes]:
    with Ledger.open(folder / "ledger.db", read_only=True) as ledger:
        charges = {f"charges of {silo}": repr([asdict(one) for one in ledger.charges(silo)]) for silo in ledger.silos()}
    files = [path for path in sorted(folder.iterdir()) if path.suffix in (".json", ".csv", ".toml")]
    contents = {path.name: path.read_bytes() for path in files if path.name != "timings.json"}
    # Safetensors writes its header in no fixed order, so a checkpoint is compared by what it says.
    state = load_checkpoint(folder / CHECKPOINT)
    arrays = [(name, array.tobytes()) for name, array in (state.model | state.strategy).items()]
    contents[CHECKPOINT] = repr((state.run, state.round, state.metrics, state.failures, arrays)).encode()
    return contents | {name: text.encode() for name, text in charges.items()}


@contextmanager
def planted(*faults: tuple[object, str, object]) -> Iterator[None]:
    """Put faults into the product for a while, each as (where, attribute, what to put there)."""
    with pytest.MonkeyPatch.context() as patch:
        for where, attribute, fault in faults:
            patch.setattr(where, attribute, fault)
        yield
