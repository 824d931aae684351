"""The fleet engine: one round of DP-SGD on many shards at once.

A step of a small model costs far more in dispatch than in arithmetic. Here the silos of a block take each step
together, with one call an operation for all of them. Every silo keeps its own Poisson samples, noise stream and public
numbers, and draws from its streams what `OpacusEngine` draws, so that the two engines differ by rounding alone.

A silo's result does not depend, bit by bit, on which silos share its block. Products and sums over the records of a
silo are taken by kernels that see the shape of one silo's batch, never how many silos there are; and only silos whose
own samples ask for the same width are stacked (`silos._fleet_section`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from accounting._errors import InvalidValue
from silos._check_model import check_outputs
from silos._drift import Drift
from silos._errors import ModelRefused
from silos._fleet_network import Network, Room, columns
from silos._fleet_section import SECTION, Draw, Section
from silos._job import Job, Outcome
from silos._precision import Precision, torch_dtype
from silos._schedule import Schedule
from silos._shard import Shard
from silos._tasks import Task, check_task
from silos._weights import Weights, check_same_layout

# The most numbers that are held at a time, while they are those of more than one silo.
_IN_BLOCK = 1 << 23
_IN_NOISE = 1 << 22
_IN_LAYER = 1 << 18  # a layer's outputs, which should stay in the processor's cache


class FleetEngine:
    """Trains weights on many shards at once by DP-SGD, with the guarantees of `OpacusEngine`.

    Args:
        model: a chain of linear layers with elementwise functions (ELU, GELU, ReLU, Sigmoid, Tanh) between them.
        task: what its outputs mean.
        input_shape: shape of one record.
        outputs: number of outputs.
        dtype: of weights and arithmetic, ``float32`` or ``float64``.

    | case                                                     | what happens                          |
    |----------------------------------------------------------|---------------------------------------|
    | a silo's sample is empty                                 | noise is added, the step counts       |
    | silos have different numbers of steps                    | those that are done idle              |
    | a record's gradient or its squared norm is not finite    | the record contributes zero           |
    | a label is no class of the model                         | that silo fails, the others train     |

    The engine keeps a copy of each shard that it has seen, for as long as the shard lives: a shard is fixed before
    round 1. It runs on the CPU; torch runs on one thread from the first engine on.

    Raises:
        ModelRefused: for a model that `supports` refuses, or without per-record gradients.
    """

    name = "fleet"

    def __init__(
        self,
        model: nn.Module,
        *,
        task: Task,
        input_shape: Sequence[int],
        outputs: int,
        dtype: Precision = "float32",
    ) -> None:
        check_task(task)
        precision = torch_dtype(dtype)
        network = Network.read(model)
        if network is None:
            raise ModelRefused("A fleet trains only chains of linear layers with elementwise functions between them.")
        check_outputs(model, input_shape=input_shape, outputs=outputs)
        torch.set_num_threads(1)
        self._network = network
        self._task: Task = task
        self._room = Room(precision)
        self._table = _Table(network, task, precision)
        self._layout = {name: tuple(p.shape) for name, p in model.named_parameters()}
        ends = list(accumulate(math.prod(shape) for shape in self._layout.values()))
        self._places = list(zip(self._layout.items(), [0, *ends], ends, strict=False))

    @staticmethod
    def supports(model: nn.Module) -> bool:
        """Whether a fleet can train the model; Opacus trains the others."""
        return Network.read(model) is not None

    @property
    def layout(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of each weight, by name."""
        return self._layout

    def train(
        self,
        weights: Mapping[str, NDArray[np.generic]],
        shard: Shard,
        schedule: Schedule,
        sampling: np.random.Generator,
        noise: np.random.Generator,
        drift: Drift | None = None,
    ) -> tuple[Weights, int]:
        """One round of one silo; see `OpacusEngine.train`. It gives the same bytes as `train_all`."""
        job = Job(weights=weights, shard=shard, schedule=schedule, sampling=sampling, noise=noise, drift=drift)
        (outcome,) = self.train_all([job])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @torch.inference_mode()
    @torch.autocast("cpu", enabled=False)
    def train_all(self, jobs: Sequence[Job]) -> list[Outcome]:
        """One round of many silos.

        Returns:
            What came of each job, in their order. A job that cannot be trained fails alone.
        """
        refusals = [self._refusal(job) for job in jobs]
        self._table.build()
        ready = [job for job, refusal in zip(jobs, refusals, strict=True) if refusal is None]
        trained = iter([result for block in self._blocks(ready) for result in self._train_block(block)])
        return [next(trained) if refusal is None else refusal for refusal in refusals]

    def _refusal(self, job: Job) -> InvalidValue | None:
        try:
            check_same_layout(self._layout, job.weights)
            if job.schedule.by_individual:
                raise InvalidValue("A fleet samples records; use OpacusEngine where individuals are sampled.")
            self._table.add(job.shard)
        except InvalidValue as error:
            return error
        return None

    def _blocks(self, jobs: Sequence[Job]) -> Iterator[list[Job]]:
        block: list[Job] = []
        held = 0.0
        for job in jobs:
            samples = min(SECTION, job.schedule.steps) * len(job.shard) * job.schedule.sampling_rate
            held += (own := samples + 2 * self._network.parameters)
            if block and held > _IN_BLOCK:
                yield block
                block, held = [], own
            block.append(job)
        if block:
            yield block

    def _train_block(self, jobs: Sequence[Job]) -> list[tuple[Weights, int]]:
        weights = self._stack([job.weights for job in jobs])
        velocity = torch.zeros_like(weights)
        executed = np.zeros(len(jobs), dtype=np.int64)
        for first in range(0, max(job.schedule.steps for job in jobs), SECTION):
            draws = [Draw(place, job, first) for place, job in enumerate(jobs) if job.schedule.steps > first]
            for group in self._groups(draws):
                places = np.array([draw.place for draw in group])
                section = Section(
                    self._network,
                    self._task,
                    self._room,
                    group,
                    table=self._table.records,
                    starts=[self._table.start(draw.job.shard) for draw in group],
                    weights=(ours := weights[places]),
                    velocity=(moving := velocity[places]),
                    offsets=self._offsets(group),
                )
                section.run()
                weights[places], velocity[places] = ours, moving
                executed[places] += section.executed
        return [(self._named(row), int(steps)) for row, steps in zip(weights.numpy(), executed, strict=True)]

    def _groups(self, draws: Sequence[Draw]) -> Iterator[list[Draw]]:
        """Silos that can be stacked, those with most steps first, as many at a time as buffers of bounded size hold."""
        kinds: dict[tuple[int, bool, bool], list[Draw]] = {}
        for draw in sorted(draws, key=lambda draw: -draw.steps):
            kinds.setdefault((draw.width, draw.momentum, draw.drifts), []).append(draw)
        for (width, _, _), members in kinds.items():
            layer, noise = width * self._network.widest, SECTION * self._network.parameters
            size = max(1, min(_IN_LAYER // layer, _IN_NOISE // noise))
            for start in range(0, len(members), size):
                yield members[start : start + size]

    def _offsets(self, group: Sequence[Draw]) -> Tensor | None:
        """Offsets of silos that drift, as rows; None for those that do not."""
        offsets = [draw.job.drift.offset for draw in group if draw.job.drift is not None]
        return self._stack(offsets) if offsets else None

    def _stack(self, models: Sequence[Mapping[str, NDArray[np.generic]]]) -> Tensor:
        """Weights as rows."""
        rows: dict[tuple[int, ...], NDArray[np.generic]] = {}
        stacked: list[NDArray[np.generic]] = []
        for model in models:
            arrays = [model[name] for name in self._layout]
            # In a round most silos start from the very same arrays.
            key = tuple(map(id, arrays))
            if key not in rows:
                rows[key] = np.concatenate([array.ravel() for array in arrays])
            stacked.append(rows[key])
        return torch.from_numpy(np.stack(stacked)).to(self._room.dtype)

    def _named(self, row: NDArray[np.generic]) -> Weights:
        return {name: row[start:end].reshape(shape) for (name, shape), start, end in self._places}


class _Table:
    """The records of all shards seen, one below the other, as `Pass` reads them; row 0 is padding."""

    def __init__(self, network: Network, task: Task, dtype: torch.dtype) -> None:
        self._network = network
        self._task = task
        self._dtype = dtype
        self._starts: WeakKeyDictionary[Shard, int] = WeakKeyDictionary()
        self._new: dict[Shard, Tensor] = {}
        self.records = torch.zeros((1, network.inputs + network.outputs + 1), dtype=dtype)

    def add(self, shard: Shard) -> None:
        """Take a shard in, if it is new; it is there from the next `build` on.

        Raises:
            InvalidValue: for a shape or a label that the model cannot have.
        """
        if shard in self._starts or shard in self._new:
            return
        shape = shard.features.shape[1:]
        if math.prod(shape) != self._network.inputs:
            raise InvalidValue(f"Expected records of shape {shape} to have {self._network.inputs} numbers.")
        features = torch.from_numpy(shard.features.reshape(len(shard), self._network.inputs)).to(self._dtype)
        self._new[shard] = columns(features, self._targets(torch.from_numpy(shard.labels)), self._network)

    def build(self) -> None:
        """Make one table of the shards that are alive."""
        if not self._new:
            return
        kept = {shard: self.records[start : start + len(shard)] for shard, start in self._starts.items()}
        parts = [self.records[:1]]
        end = 1
        for shard, rows in (kept | self._new).items():
            self._starts[shard] = end
            parts.append(rows)
            end += len(shard)
        self.records = torch.cat(parts)
        self._new.clear()

    def start(self, shard: Shard) -> int:
        """Where the shard's rows begin."""
        return self._starts[shard]

    def _targets(self, labels: Tensor) -> Tensor:
        if self._task != "multiclass":
            return labels.to(self._dtype).unsqueeze(1)
        classes = labels.long()
        if len(classes) and not 0 <= int(classes.min()) <= int(classes.max()) < self._network.outputs:
            raise InvalidValue(f"Expected labels from 0 to {self._network.outputs - 1}.")
        return torch.nn.functional.one_hot(classes, self._network.outputs).to(self._dtype)
