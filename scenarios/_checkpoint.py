"""Checkpoints: all that a killed run needs to go on as if nothing had happened.

One safetensors file, replaced atomically after every round, holds the model, the strategy's own arrays and, as JSON in
the file's header, the round, the run's name, and the metrics and failures so far. Silos carry nothing from round to
round (their noise streams are keyed by round and their optimiser starts afresh), so nothing of theirs is in it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from scenarios._errors import RunError
from silos._files import write_atomically

Arrays = dict[str, NDArray[np.generic]]


WHOLE = "all"
"""Stands for the federation as a whole where a metric names a silo; no silo may have this name."""


class MetricRow(NamedTuple):
    """One number of one round; `silo` is `WHOLE` for the federation."""

    round: int
    silo: str
    metric: str
    value: float


def latest(rows: Sequence[MetricRow], metric: str) -> float | None:
    """The federation's last value of a metric, if it was ever evaluated."""
    return next((row.value for row in reversed(rows) if (row.silo, row.metric) == (WHOLE, metric)), None)


class Failure(NamedTuple):
    """A silo that was asked in a round and is not in its aggregate."""

    round: int
    silo: str
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """The state after `round` rounds of the run of that name.

    `heads` are the ledger's by silo: a ledger that lost rows since cannot be taken for the one of these rounds.
    """

    run: str
    round: int
    model: Arrays
    strategy: Arrays = field(default_factory=dict)
    metrics: list[MetricRow] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    heads: dict[str, str] = field(default_factory=dict)


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint, durably and in one step."""
    tensors = {f"model/{name}": array for name, array in checkpoint.model.items()}
    tensors |= {f"strategy/{name}": array for name, array in checkpoint.strategy.items()}
    header = {
        "order": json.dumps(list(tensors)),  # safetensors sorts; Flower's strategies pair arrays by position
        "run": checkpoint.run,
        "round": str(checkpoint.round),
        "metrics": json.dumps(checkpoint.metrics),
        "failures": json.dumps(checkpoint.failures),
        "heads": json.dumps(checkpoint.heads),
    }
    contiguous = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    write_atomically(path, save(contiguous, metadata=header))


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        RunError: where the file cannot be read as one.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata()
            tensors: Arrays = {name: file.get_tensor(name) for name in json.loads(header["order"])}
        return Checkpoint(
            run=header["run"],
            round=int(header["round"]),
            model=_under("model/", tensors),
            strategy=_under("strategy/", tensors),
            metrics=[MetricRow(*row) for row in json.loads(header["metrics"])],
            failures=[Failure(*row) for row in json.loads(header["failures"])],
            heads=json.loads(header["heads"]),
        )
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path}: not a checkpoint of this program ({error}).") from error


def _under(prefix: str, tensors: Arrays) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
