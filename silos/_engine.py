"""The Opacus engine: one round of DP-SGD on one shard.

The wrapped model and its optimiser are built once and kept across rounds and shards: building them costs more than many
small steps. Nothing of a shard stays behind: weights are overwritten, momentum is dropped and
noise comes from the caller's streams. The parameters are views of one flat tensor.
"""

import copy
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from accounting._validate import check_count
from silos._check_model import check_model, quiet_torch
from silos._drift import Drift
from silos._losses import loss
from silos._memory import keep_freed_memory
from silos._optimizer import StreamOptimizer
from silos._per_record import PerRecord
from silos._precision import Precision, torch_dtype
from silos._sample import Sample, sample_individuals, sample_records
from silos._schedule import Schedule
from silos._shard import Shard
from silos._tasks import Task
from silos._weights import Weights, check_same_layout

_SMALL = 1 << 14
"""Most weights of a model whose optimiser sees them as one: with more, copying the gradients together takes longer than
the calls that it saves."""


class OpacusEngine:
    """Trains weights on shards by DP-SGD.

    Args:
        model: the architecture; copied.
        task: what its outputs mean.
        input_shape: shape of one record.
        outputs: number of outputs.
        dtype: of weights and arithmetic, ``float32`` or ``float64``.
        device: a torch device, or ``auto`` for CUDA where there is one.
        max_physical_batch: most records in memory with their gradients at a time; larger samples are split, which
            changes no result beyond rounding.

    Guarantees, for a shard of any content:
        1. A record (or, where individuals are sampled, an individual with all its records) moves the gradient sum of a
           step by at most the clip norm, in L2.
        2. Every step adds noise of standard deviation noise_multiplier * clip_norm to every coordinate of the sum,
           also when its sample is empty.
        3. The divisor is the schedule's, never the size of the sample.
        4. The executed steps returned are those that the optimiser took.

    Raises:
        ModelRefused: for a model without per-record gradients.

    Torch runs on one thread from the first engine on: the same seed gives the same bytes on any number of cores. The
    process keeps the memory that steps free.
    """

    name = "opacus"

    def __init__(
        self,
        model: nn.Module,
        *,
        task: Task,
        input_shape: Sequence[int],
        outputs: int,
        dtype: Precision = "float32",
        device: str = "cpu",
        max_physical_batch: int = 256,
    ) -> None:
        check_count(low=1, max_physical_batch=max_physical_batch)
        precision = torch_dtype(dtype)
        check_model(model, input_shape=input_shape, outputs=outputs)
        torch.set_num_threads(1)
        keep_freed_memory()
        self._template = copy.deepcopy(model)
        self._loss = loss(task)
        self._dtype = precision
        self._device = torch.device(_pick(device))
        self._chunk = max_physical_batch
        self._build()

    @property
    def layout(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of each weight, by name."""
        return self._layout

    @property
    def zeroed(self) -> int:
        """Records zeroed in the last round because their gradient was not finite. It must not leave the silo."""
        return self._optimizer.zeroed

    def train(
        self,
        weights: Mapping[str, NDArray[np.generic]],
        shard: Shard,
        schedule: Schedule,
        sampling: np.random.Generator,
        noise: np.random.Generator,
        drift: Drift | None = None,
    ) -> tuple[Weights, int]:
        """One round.

        Args:
            weights: to start from; left as they are.
            shard: the silo's records.
            schedule: the public numbers of the round.
            sampling: stream of the Poisson samples; each step draws one number a record (or individual).
            noise: stream of the noise; each step draws one number a trainable parameter.
            drift: added to each step's gradient after its noise; public.

        Returns:
            The weights after the round, and the number of steps that the optimiser executed.

        Raises:
            InvalidValue: where the weights' names or shapes are not the model's.
        """
        check_same_layout(self._layout, weights)
        self._flat.copy_(self._flatten(weights))
        self._optimizer.start(
            noise=noise,
            noise_multiplier=schedule.noise_multiplier,
            clip_norm=schedule.clip_norm,
            expected_batch=schedule.expected_batch,
            learning_rate=schedule.learning_rate,
            momentum=schedule.momentum,
            pull=0.0 if drift is None else drift.pull,
            offset=None if drift is None else self._flatten(drift.offset),
        )
        try:
            # Mixed precision around the call would round the noise, and round clipped gradients up.
            with quiet_torch(), torch.autocast(self._device.type, enabled=False):
                features, labels = torch.from_numpy(shard.features), torch.from_numpy(shard.labels)
                draw = sample_individuals if schedule.by_individual else sample_records
                for _ in range(schedule.steps):
                    self._step(features, labels, draw(shard, schedule.sampling_rate, sampling))
        except BaseException:
            # Half a step leaves activations in the hooks, which the next shard's gradients would meet.
            self._build()
            raise
        return self._read(), self._optimizer.executed

    def _flatten(self, weights: Mapping[str, NDArray[np.generic]]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate([weights[name].ravel() for name in self._layout]))

    def _step(self, features: torch.Tensor, labels: torch.Tensor, sample: Sample) -> None:
        if not len(sample.rows):
            self._finish([p.new_zeros((0, *p.shape)) for p in self._parameters], last=True)
            return
        for start, end in sample.chunks(self._chunk):
            chunk = torch.from_numpy(sample.rows[start:end])
            gradients = self._per_record.gradients(
                features.index_select(0, chunk).to(self._device, self._dtype),
                labels.index_select(0, chunk).to(self._device),
                self._loss,
            )
            if sample.owners is not None:
                gradients = self._summed(gradients, sample.owners[start:end])
            self._finish(gradients, last=end == len(sample.rows))

    def _summed(self, gradients: Sequence[torch.Tensor], owners: NDArray[np.intp]) -> list[torch.Tensor]:
        """One gradient for each individual, the sum over its records."""
        distinct, places = np.unique(owners, return_inverse=True)
        index = torch.from_numpy(places).to(self._device)
        return [each.new_zeros((len(distinct), *each.shape[1:])).index_add_(0, index, each) for each in gradients]

    def _finish(self, gradients: Sequence[torch.Tensor], *, last: bool) -> None:
        if self._joint:
            rows = [each.reshape(len(each), size) for each, size in zip(gradients, self._sizes, strict=True)]
            gradients = [torch.cat(rows, 1)]
        self._optimizer.take(gradients)
        self._optimizer.signal_skip_step(do_skip=not last)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def _build(self) -> None:
        model = copy.deepcopy(self._template).to(self._device, self._dtype).train()
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._layout = {name: tuple(p.shape) for name, p in named.items()}
        self._parameters = list(named.values())
        self._sizes = [p.numel() for p in self._parameters]
        self._flat = torch.cat([p.detach().flatten() for p in self._parameters])
        for parameter, part in zip(self._parameters, self._flat.split(self._sizes), strict=True):
            parameter.data = part.view_as(parameter)
        self._per_record = PerRecord(model)
        self._joint = len(self._flat) <= _SMALL
        self._optimizer = StreamOptimizer([nn.Parameter(self._flat)] if self._joint else self._parameters)

    def _read(self) -> Weights:
        flat = self._flat.cpu().numpy().copy()
        parts = np.split(flat, np.cumsum(self._sizes)[:-1])
        return {name: part.reshape(shape) for (name, shape), part in zip(self._layout.items(), parts, strict=True)}


def _pick(device: str) -> str:
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"
