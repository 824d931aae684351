"""The DP-SGD optimiser: Opacus' own, with our noise and with a guard against records that are not finite.

Clipping, accumulation over physical batches, the divisor and the step hook are Opacus'. Two things differ:

- Noise is one flat draw from a NumPy stream over all parameters in order, in float64, so that any engine that consumes
  the same stream adds the same noise, whatever its layers or precision.
- A record whose gradient, or its norm, is not finite contributes zero. A zero is within the clip norm, so sensitivity
  is kept, and such a record moves nobody else's contribution.
"""

# Opacus hangs a step's sums and per-record gradients on parameters, as attributes that torch does not declare.
# pyright: reportAttributeAccessIssue=false

import math
from collections.abc import Sequence

import numpy as np
import torch
from opacus.optimizers import DPOptimizer
from torch import nn

_NO_NOISE = np.random.Generator(np.random.SFC64(0))


class StreamOptimizer(DPOptimizer):
    """DP-SGD over parameters that carry per-record gradients.

    Args:
        parameters: trainable parameters, in the order in which noise is drawn for them.

    Attributes:
        noise: the stream of the current round; set before its first step.
        executed: noisy steps since `start`, counted by the step hook.
        zeroed: records zeroed since `start` because a gradient was not finite. It depends on the shard and must not
            leave the silo.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        inner = torch.optim.SGD(parameters, lr=1.0, foreach=False)
        super().__init__(inner, noise_multiplier=0.0, max_grad_norm=1.0, expected_batch_size=1, loss_reduction="mean")
        self._trained = list(parameters)
        self._sizes = [p.numel() for p in self._trained]
        self._total: torch.Tensor | None = None
        self._pull = 0.0
        self._offset: torch.Tensor | None = None
        self.noise = _NO_NOISE
        self.executed = 0
        self.zeroed = 0
        self.attach_step_hook(_count)

    def start(
        self,
        *,
        noise: np.random.Generator,
        noise_multiplier: float,
        clip_norm: float,
        expected_batch: float,
        learning_rate: float,
        momentum: float,
        pull: float = 0.0,
        offset: torch.Tensor | None = None,
    ) -> None:
        """Begin a round: its public numbers, its noise, its drift (see `silos._drift`), no momentum, no steps."""
        self.noise = noise
        self.noise_multiplier = noise_multiplier
        self.max_grad_norm = clip_norm
        self.expected_batch_size = expected_batch  # its annotation says int; a float divides as well
        for group in self.original_optimizer.param_groups:
            group["lr"] = learning_rate
            group["momentum"] = momentum
        self.original_optimizer.state.clear()
        self.zero_grad(set_to_none=True)
        self._total = None
        self._pull = pull
        self._offset = None if offset is None else offset.to(self._trained[0])
        self.executed = 0
        self.zeroed = 0

    def take(self, gradients: Sequence[torch.Tensor]) -> None:
        """Give the parameters their per-record gradients of one physical batch."""
        for p, gradient in zip(self._trained, gradients, strict=True):
            p.grad_sample = gradient

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: ARG002  # its gradients are always made anew
        """Forget the gradients of the last physical batch."""
        for p in self._trained:
            p.grad = p.grad_sample = p.summed_grad = None

    def clip_and_accumulate(self) -> None:
        """Add the clipped gradients of one physical batch to the sum of the step."""
        # A norm in half precision is too small by up to 0.4%, and a record would weigh that much more than declared.
        for p in self._trained:
            p.grad_sample = p.grad_sample.to(p.dtype)
        clipped = self._clip()
        # Not-finite records are rare and a clipped sum shows them (0 * inf is nan), so only then are rows looked at.
        if not math.isfinite(clipped.sum()):
            self._zero_records()
            clipped = self._clip()
        self._total = clipped if self._total is None else self._total + clipped

    def add_noise(self) -> None:
        """Add the step's noise to the sum, for all parameters in one draw."""
        total, self._total = self._total, None
        if total is None:
            raise RuntimeError("Noise was asked for before any gradient was clipped.")
        if self.noise_multiplier > 0:
            draw = self.noise.standard_normal(len(total))
            draw *= self.noise_multiplier * self.max_grad_norm
            total += torch.from_numpy(draw).to(total)
        for p, part in zip(self._trained, total.split(self._sizes), strict=True):
            p.grad = part.view_as(p)

    def scale_grad(self) -> None:
        """Divide the noisy sum, and add the drift."""
        super().scale_grad()
        if self._offset is None:
            return
        for p, part in zip(self._trained, self._offset.split(self._sizes), strict=True):
            if p.grad is not None:
                p.grad.add_(part.view_as(p)).add_(p.detach(), alpha=self._pull)

    def _clip(self) -> torch.Tensor:
        for p in self._trained:
            p.summed_grad = None
        super().clip_and_accumulate()
        return torch.cat([p.summed_grad.flatten() for p in self._trained])

    def _zero_records(self) -> None:
        gradients = self.grad_samples
        finite = torch.isfinite(torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0))
        for p, g in zip(self._trained, gradients, strict=True):
            p.grad_sample = torch.where(finite.view(-1, *[1] * (g.dim() - 1)), g, torch.zeros_like(g))
        self.zeroed += int((~finite).sum())


def _count(optimizer: DPOptimizer) -> None:
    if isinstance(optimizer, StreamOptimizer):
        optimizer.executed += 1
