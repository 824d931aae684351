"""Runs whose noisy outputs are all replaced by one tape, and everything that they let out of the silos.

What a silo lets out may depend on its shard through the output of a priced mechanism alone. So replace every noisy
output by the next numbers of one and the same tape: whatever still differs between two shards left by another way.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Message
from numpy.typing import NDArray

import scenarios._released
import scenarios._runner
import scenarios._simulation
import silos._fleet_section
import silos._sample
from accounting import Ledger
from scenarios import Scenario
from scenarios._checkpoint import load_checkpoint
from scenarios._runner import CHECKPOINT, run
from scenarios.data._dataset import Dataset
from server import InProcessGrid
from silos import OpacusEngine, Shard, Task, Weights
from silos._fleet_network import Network, Pass, Room
from silos._fleet_section import Draw, Section
from silos._optimizer import StreamOptimizer
from silos._statistics import Statistic

Floats = NDArray[np.float64]


@dataclass(eq=False)
class Seen:
    """What one taped run showed.

    Args:
        wire: every message between the server and a silo, both ways, in order.
        results: what the run wrote and the terms of every charge, by name; not the silos' own fingerprints.
        sums: each silo's gradient sums, step by step, before the tape took their place; nobody outside sees them.
        clip_norms: each sum's declared sensitivity.
        counts: sums of statistics before the tape took their place, with how far one unit may move each, in L1.
        epsilon: the run's, as its guarantee says.
    """

    wire: list[bytes] = field(default_factory=list)
    results: dict[str, bytes] = field(default_factory=dict)
    sums: dict[str, list[Floats]] = field(default_factory=dict)
    clip_norms: dict[str, list[float]] = field(default_factory=dict)
    counts: list[tuple[Floats, float]] = field(default_factory=list)
    epsilon: float = 0.0

    def left(self, public: Sequence[str] = ()) -> dict[str, bytes]:
        """Every byte that left a silo or was computed from what did, by where it was seen.

        Args:
            public: numbers declared public; the first number soon after the name of one is left out.
        """
        left = {f"message {number}": part for number, part in enumerate(self.wire, start=1)} | self.results
        for name in public:
            number = re.compile(rb"(?<![\w-])" + name.encode() + rb"(?=\D{1,20}\d)\D{1,20}\d+(\.\d+)?")
            left = {place: number.sub(name.encode(), part) for place, part in left.items()}
        return left


def taped_run(scenario: Scenario, dataset: Dataset, out: Path) -> Seen:
    """Run a scenario over a dataset with every noisy output from the tape."""
    seen = Seen()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenarios._runner, "prepare", lambda _: dataset)
        for module in (scenarios._simulation, scenarios._released):
            patch.setattr(module, "run_key", lambda *_: b"one key for all of the runs here")
        patch.setattr(scenarios._runner, "render_report", lambda *_: "")
        patch.setattr(Shard, "fingerprint", lambda *_: "secret")
        coupled = _coupled(silos._sample.poisson_sample)
        patch.setattr(silos._sample, "poisson_sample", coupled)
        patch.setattr(silos._fleet_section, "poisson_samples", _step_by_step(coupled))
        _tape_opacus(patch, seen)
        _tape_fleets(patch, seen)
        _tape_statistics(patch, seen)
        _tap_wire(patch, seen)
        result = run(scenario, out=out)
    seen.epsilon = result.guarantee.epsilon
    seen.results = _written(out) | {"plan": json.dumps(result.plan.to_json()).encode()}
    return seen


def without_last(dataset: Dataset, silo: str) -> Dataset:
    """The neighbour of a dataset in which a silo's last record is gone."""
    return _changed(dataset, silo, lambda shard: _rows(shard, np.arange(len(shard) - 1)))


def without_last_individual(dataset: Dataset, silo: str) -> Dataset:
    """The neighbour of a dataset in which the individual whose id comes last is gone from a silo, with all records."""
    return _changed(
        dataset, silo, lambda shard: _rows(shard, np.flatnonzero(shard.owners < shard.individual_count - 1))
    )


def without_last_held_out(dataset: Dataset) -> Dataset:
    """The neighbour of a dataset in which the last held-out record is gone."""
    return replace(
        dataset,
        test_features=dataset.test_features[:-1],
        test_labels=dataset.test_labels[:-1],
        test_silos=dataset.test_silos[:-1],
    )


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


def _step_by_step(sample: Callable[..., NDArray[np.intp]]) -> Callable[..., tuple[NDArray[np.intp], NDArray[np.intp]]]:
    def samples(
        records: int, sampling_rate: float, generator: np.random.Generator, *, steps: int
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        taken = [sample(records, sampling_rate, generator) for _ in range(steps)]
        return np.concatenate(taken), np.array([len(rows) for rows in taken])

    return samples


def _keep(seen: Seen, silo: str, total: torch.Tensor, clip_norm: float) -> None:
    seen.sums.setdefault(silo, []).append(total.double().numpy().copy())
    seen.clip_norms.setdefault(silo, []).append(clip_norm)


def _tape_opacus(patch: pytest.MonkeyPatch, seen: Seen) -> None:
    tape = np.random.default_rng(20)
    train = OpacusEngine.train
    silo = ""

    def named(self: OpacusEngine, weights: Weights, shard: Shard, *rest: object) -> tuple[Weights, int]:
        nonlocal silo
        silo = shard.name
        return train(self, weights, shard, *rest)  # type: ignore[arg-type]  # the rest is handed on as it is

    patch.setattr(OpacusEngine, "train", named)

    def add_noise(self: StreamOptimizer) -> None:
        total, self._total = self._total, None
        assert total is not None
        _keep(seen, silo, total, self.max_grad_norm)
        output = total.new_tensor(self.max_grad_norm * tape.standard_normal(len(total)))
        for parameter, part in zip(self._trained, output.split(self._sizes), strict=True):
            parameter.grad = part.view_as(parameter)

    patch.setattr(StreamOptimizer, "add_noise", add_noise)


def _tape_fleets(patch: pytest.MonkeyPatch, seen: Seen) -> None:
    """Leave nothing of the sums: what a fleet adds is then its noise, which one key draws for all runs here."""
    section, sums, run = Section.__init__, Pass.__init__, Pass.run
    silos: list[str] = []

    def begin(self: Section, network: Network, task: Task, room: Room, draws: Sequence[Draw], **rest: object) -> None:
        silos[:] = [draw.job.shard.name for draw in draws]
        section(self, network, task, room, draws, **rest)  # type: ignore[arg-type]  # the rest is handed on as it is

    def prepare(self: Pass, *given: object, gradients: torch.Tensor, **rest: object) -> None:
        sums(self, *given, gradients=gradients, **rest)  # type: ignore[arg-type]  # the rest is handed on as it is
        self.__dict__["whole"] = gradients

    def taped(self: Pass, present: torch.Tensor) -> None:
        run(self, present)
        gradients: torch.Tensor = self.__dict__["whole"]
        for silo, total, clip_norm in zip(silos, gradients, self._clip_norms.flatten().tolist(), strict=False):
            _keep(seen, silo, total, clip_norm)
        gradients.zero_()

    patch.setattr(Section, "__init__", begin)
    patch.setattr(Pass, "__init__", prepare)
    patch.setattr(Pass, "run", taped)


def _tape_statistics(patch: pytest.MonkeyPatch, seen: Seen) -> None:
    def released(
        self: Statistic, shard: Shard, outputs: NDArray[np.float64], generator: np.random.Generator
    ) -> Weights:
        sums = self.sums(shard, outputs)
        seen.counts.append((np.asarray(sums, dtype=np.float64), self.moved))
        return {self.item: (50 + 10 * generator.random(sums.shape)).astype(sums.dtype)}

    patch.setattr(Statistic, "released", released)


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
