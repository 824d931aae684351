"""A section: a few steps of DP-SGD that silos with batches of one width take together.

A silo draws its samples for a whole section first. Its batches are then as wide as its own largest sample, rounded up
to a multiple of `LANES`: a number that no other silo has a say in.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from silos._fleet_network import Network, Pass, Room
from silos._job import Job
from silos._streams import poisson_samples
from silos._tasks import Task

SECTION = 16
"""Most steps of a section."""

LANES = 32
"""Batches are as wide as a multiple of this: twice the floats in the largest vector register, the most that torch takes
at a time. It computes the remainder of a tensor by other code, which must not meet a silo only because of its place."""


class Draw:
    """One silo's samples for its next section.

    Args:
        place: the silo's number in its block.
        job: its job; its sampling stream is moved on.
        first: how many steps were taken before.

    Attributes:
        steps: of this section.
        rows: row numbers of all its samples, one after the other.
        sizes: of the samples, shape (steps,).
        width: of the batches.
    """

    def __init__(self, place: int, job: Job, first: int) -> None:
        self.place = place
        self.job = job
        self.steps = min(SECTION, job.schedule.steps - first)
        self.rows, self.sizes = poisson_samples(
            len(job.shard), job.schedule.sampling_rate, job.sampling, steps=self.steps
        )
        self.width = max(1, -(-int(self.sizes.max()) // LANES)) * LANES

    @property
    def momentum(self) -> bool:
        """Whether the silo's SGD carries momentum."""
        return self.job.schedule.momentum > 0

    @property
    def drifts(self) -> bool:
        """Whether anything moves the silo's weights beside gradients."""
        return self.job.drift is not None


class Section:
    """The steps of a section for silos of one width, all with momentum or all without, all with a drift or all without.

    Args:
        network: the architecture.
        task: what its outputs mean.
        room: where intermediate values are kept.
        draws: the silos, those with most steps first.
        table: all records, as in `columns`; row 0 is padding.
        starts: where each silo's records begin in the table.
        weights, velocity: shape (silos, parameters), a row a silo; changed in place.
        offsets: of their drifts, in the same shape; None where they do not drift.

    Attributes:
        executed: steps that each silo has taken, counted where they are taken.
    """

    def __init__(
        self,
        network: Network,
        task: Task,
        room: Room,
        draws: Sequence[Draw],
        *,
        table: Tensor,
        starts: Sequence[int],
        weights: Tensor,
        velocity: Tensor,
        offsets: Tensor | None = None,
    ) -> None:
        self._network = network
        self._task: Task = task
        self._room = room
        self._width = draws[0].width
        self._momentum = draws[0].momentum
        self._steps = [draw.steps for draw in draws]
        self._table = table
        self._weights = weights
        self._velocity = velocity
        self._offsets = offsets
        self._rows = self._lay_out(draws, starts)
        self._present = (self._rows > 0).to(room.dtype)
        self._noise = self._draw_noise(draws)
        self._schedules = [draw.job.schedule for draw in draws]
        self._pulls = [0.0 if draw.job.drift is None else draw.job.drift.pull for draw in draws]
        self.executed = np.zeros(len(draws), dtype=np.int64)

    def run(self) -> None:
        """Take the steps; silos that have no more idle."""
        first = 0
        for last in sorted(set(self._steps)):
            self._take(first, last, sum(steps >= last for steps in self._steps))
            first = last

    def _take(self, first: int, last: int, silos: int) -> None:
        """Steps from `first` to before `last` of the first silos."""
        room, columns = self._room, self._table.shape[1]
        weights, velocity = self._weights[:silos], self._velocity[:silos]
        records = room.take("records", silos, self._width, columns)
        gradients, noise = room.take("gradients", *weights.shape), room.take("noise", *weights.shape)
        clip_norms, divisors, rates, momenta, pulls = self._numbers(silos)
        one_pass = Pass(
            self._network,
            self._task,
            room=room,
            weights=weights,
            gradients=gradients,
            records=records,
            clip_norms=clip_norms,
        )
        for step in range(first, last):
            torch.index_select(self._table, 0, self._rows[step, :silos].view(-1), out=records.view(-1, columns))
            one_pass.run(self._present[step, :silos])
            gradients.add_(noise.copy_(self._noise[:silos, step])).div_(divisors)
            if self._offsets is not None:
                gradients.add_(self._offsets[:silos]).addcmul_(weights, pulls)
            moves = velocity.mul_(momenta).add_(gradients) if self._momentum else gradients
            weights.addcmul_(moves, rates, value=-1)
            self.executed[:silos] += 1

    def _numbers(self, silos: int) -> tuple[Tensor, ...]:
        """Clip norms, divisors, learning rates, momenta and pulls, each of shape (silos, 1)."""
        rows = [
            (one.clip_norm, one.expected_batch, one.learning_rate, one.momentum, pull)
            for one, pull in zip(self._schedules[:silos], self._pulls, strict=False)
        ]
        return torch.tensor(rows, dtype=self._room.dtype).unsqueeze(2).unbind(1)

    def _lay_out(self, draws: Sequence[Draw], starts: Sequence[int]) -> Tensor:
        """Rows of the table in each silo's batch of each step, shape (steps, silos, width)."""
        rows = np.zeros((self._steps[0], len(draws), self._width), dtype=np.int64)
        lanes = np.arange(self._width)
        for silo, (draw, start) in enumerate(zip(draws, starts, strict=True)):
            rows[: draw.steps, silo][lanes < draw.sizes[:, np.newaxis]] = draw.rows + start
        return torch.from_numpy(rows)

    def _draw_noise(self, draws: Sequence[Draw]) -> Tensor:
        """Noise of each step, shape (silos, steps, parameters), in float64 as the Opacus engine draws it."""
        shape = (len(draws), self._steps[0], self._network.parameters)
        noise = self._room.take("noise of steps", *shape, dtype=torch.float64)
        for own, draw in zip(noise.numpy(), draws, strict=True):
            own = own[: draw.steps]
            schedule = draw.job.schedule
            if schedule.noise_multiplier > 0:
                draw.job.noise.standard_normal(out=own)
                own *= schedule.noise_multiplier * schedule.clip_norm
            else:
                own.fill(0.0)
        return noise
