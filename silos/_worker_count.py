"""How many workers are worth their start: an estimate from public numbers, which reaches no result."""

import os
from collections.abc import Iterable, Sequence

import torch
from torch import nn

from silos._schedule import Schedule
from silos._workers import usable_cores

START = 6.0
"""Seconds until workers have loaded torch and Opacus and hold their shards; they load side by side."""

STEP = {"opacus": 6e-4, "fleet": 2e-5}
"""Seconds of a silo's step without any record: dispatch, by engine."""

RECORDS = 2.5e9
"""Multiplications of a model's forward pass that a core gets done in a second, with all else that a record needs."""

NOISE = 1e-8
"""Seconds to draw one number of noise."""


def worker_count(
    engine: str, model: nn.Module, *, input_shape: Sequence[int], schedules: Iterable[Schedule], rounds: int
) -> int:
    """One for each usable core, at most one a silo, where that is faster than training in this process; else 1.

    n workers take the seconds that training takes here over n, and `START` on top. Under about twelve seconds of
    training two workers are no faster.

    Args:
        engine: ``opacus`` or ``fleet``.
        model: that all silos train.
        input_shape: shape of one record.
        schedules: of each silo's rounds.
        rounds: how many.
    """
    schedules = list(schedules)
    record = _multiplications(model, input_shape) / RECORDS
    fixed = STEP[engine] + NOISE * sum(p.numel() for p in model.parameters())
    seconds = rounds * sum(one.steps * (fixed + record * one.expected_batch) for one in schedules)
    cores = len(usable_cores()) or os.cpu_count() or 1
    count = min(cores, len(schedules)) if os.name == "posix" else 1
    return count if count > 1 and START + seconds / count < seconds else 1


def _multiplications(model: nn.Module, input_shape: Sequence[int]) -> int:
    """Of the forward pass of one record: each weight of a layer, once for each place where it is applied."""
    found = 0

    def count(layer: nn.Module, _: object, output: object) -> None:
        nonlocal found
        weight = getattr(layer, "weight", None)
        if isinstance(weight, torch.Tensor) and weight.dim() > 1 and isinstance(output, torch.Tensor):
            found += output.numel() // len(weight) * weight.numel()

    hooks = [layer.register_forward_hook(count) for layer in model.modules()]
    try:
        with torch.no_grad():
            model(torch.zeros(1, *input_shape, dtype=next(model.parameters()).dtype))
    finally:
        for hook in hooks:
            hook.remove()
    return found
