"""Which engine trains a model."""

from collections.abc import Sequence
from typing import Literal

from torch import nn

from accounting import InvalidValue
from silos._engine import OpacusEngine
from silos._fleet import FleetEngine
from silos._tasks import Task

EngineName = Literal["auto", "fleet", "opacus"]


def build_engine(
    name: EngineName,
    model: nn.Module,
    *,
    task: Task,
    input_shape: Sequence[int],
    outputs: int,
    device: str = "auto",
    max_physical_batch: int = 256,
) -> FleetEngine | OpacusEngine:
    """An engine for the silos of one process.

    The choice depends on what is asked alone, never on the machine, so that the same run has the same bytes everywhere.

    Args:
        name: ``fleet``, ``opacus``, or ``auto`` for fleets where they train the model, which are then faster for any
            number of silos, and Opacus for every other model and wherever CUDA is asked for.
        model: the architecture; copied.
        task, input_shape, outputs: as for both engines.
        device: as for `OpacusEngine`; fleets train on the CPU.
        max_physical_batch: as for `OpacusEngine`.

    Raises:
        InvalidValue: for an engine that is not known, or fleets on another device than the CPU.
        ModelRefused: for a model that the engine cannot train.
    """
    if name not in ("auto", "fleet", "opacus"):
        raise InvalidValue(f"Expected engine={name!r} to be auto, fleet or opacus.")
    on_cpu = device in ("auto", "cpu")
    if name == "fleet" and not on_cpu:
        raise InvalidValue(f"Expected device={device!r} of engine='fleet' to be auto or cpu.")
    if name == "fleet" or (name == "auto" and on_cpu and FleetEngine.supports(model)):
        return FleetEngine(model, task=task, input_shape=input_shape, outputs=outputs)
    return OpacusEngine(
        model,
        task=task,
        input_shape=input_shape,
        outputs=outputs,
        device=device,
        max_physical_batch=max_physical_batch,
    )
