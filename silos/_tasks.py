"""Tasks: what the model's outputs mean, and the loss of a record."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch.nn import functional

from accounting import InvalidValue

Task = Literal["binary", "multiclass", "regression"]

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def loss(task: Task) -> Loss:
    """The sum over records of each record's own loss.

    A sum, never a mean: the gradient of one record must not depend on how many others were sampled with it.

    Args:
        task: ``binary`` (one logit, labels 0 or 1, logistic loss), ``multiclass`` (a logit a class, cross-entropy) or
            ``regression`` (one output, squared error).

    Returns:
        A function of outputs, shape (records, outputs), and labels, shape (records,).
    """
    check_task(task)
    return _LOSSES[task]


def check_task(task: str) -> None:
    """Refuse a task that is not known.

    Raises:
        InvalidValue: listing those that are.
    """
    if task not in get_args(Task):
        raise InvalidValue(f"Unknown task {task!r}; known: {', '.join(get_args(Task))}.")


def _binary(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(outputs.squeeze(1), labels.to(outputs.dtype), reduction="sum")


def _multiclass(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs, labels.long(), reduction="sum")


def _regression(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.mse_loss(outputs.squeeze(1), labels.to(outputs.dtype), reduction="sum")


_LOSSES: dict[Task, Loss] = {"binary": _binary, "multiclass": _multiclass, "regression": _regression}
