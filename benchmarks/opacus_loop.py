"""The rival without a federation: a loop of Opacus steps as one would write it by hand, kept as lean as Opacus allows.

The wrapped model and its optimiser are built once, batches are Poisson samples, and clipping, noise and the step are
Opacus' own. There is no ledger, no accountant, and nobody replies to anybody.
"""

import warnings
from collections.abc import Sequence

import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.nn import functional

from silos import Job, Task


class OpacusLoop:
    """Takes the steps of jobs, one silo after the other.

    Args:
        model: the architecture; its weights are overwritten.
        task: ``binary`` or ``multiclass``.
    """

    def __init__(self, model: nn.Module, task: Task) -> None:
        self._module = GradSampleModule(model.train(), loss_reduction="sum")
        self._task: Task = task
        self._sgd = torch.optim.SGD(self._module.parameters(), lr=1.0)

    def run(self, jobs: Sequence[Job]) -> None:
        """All steps of all jobs."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Full backward hook is firing when gradients")
            for job in jobs:
                self._train(job)

    def _train(self, job: Job) -> None:
        schedule = job.schedule
        self._module._module.load_state_dict({name: torch.from_numpy(array) for name, array in job.weights.items()})
        self._sgd.param_groups[0]["lr"] = schedule.learning_rate
        optimizer = DPOptimizer(
            self._sgd,
            noise_multiplier=schedule.noise_multiplier,
            max_grad_norm=schedule.clip_norm,
            expected_batch_size=schedule.expected_batch,  # pyright: ignore  # a float divides as well
        )
        features, labels = torch.from_numpy(job.shard.features), torch.from_numpy(job.shard.labels)
        for _ in range(schedule.steps):
            rows = torch.nonzero(torch.rand(len(features)) < schedule.sampling_rate).squeeze(1)
            optimizer.zero_grad(set_to_none=True)
            self._loss(self._module(features[rows]), labels[rows]).backward()
            optimizer.step()

    def _loss(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self._task == "binary":
            return functional.binary_cross_entropy_with_logits(outputs.squeeze(1), labels.float(), reduction="sum")
        return functional.cross_entropy(outputs, labels, reduction="sum")
