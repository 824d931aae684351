"""The loss of a record, by task."""

from collections.abc import Callable

import torch
from torch.nn import functional

from silos._tasks import Task, check_task

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


def _binary(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(outputs.squeeze(1), labels.to(outputs.dtype), reduction="sum")


def _multiclass(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs, labels.long(), reduction="sum")


def _regression(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.mse_loss(outputs.squeeze(1), labels.to(outputs.dtype), reduction="sum")


_LOSSES: dict[Task, Loss] = {"binary": _binary, "multiclass": _multiclass, "regression": _regression}
