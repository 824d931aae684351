"""Which engine trains a model."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from torch import nn

from accounting import InvalidValue
from silos._fleet import FleetEngine
from silos._tasks import Task

if TYPE_CHECKING:
    from silos._engine import OpacusEngine

EngineName = Literal["auto", "fleet", "opacus"]


def build_engine(
    name: EngineName,
    model: nn.Module | Callable[[], nn.Module],
    *,
    task: Task,
    input_shape: Sequence[int],
    outputs: int,
    by_individual: bool = False,
    device: str = "auto",
    max_physical_batch: int = 256,
) -> "FleetEngine | OpacusEngine":
    """An engine for the silos of one process.

    The choice depends on what is asked alone, never on the machine, so that the same run has the same bytes everywhere.

    Args:
        name: ``fleet``, ``opacus``, or ``auto`` for fleets where they train the model, which are then faster for any
            number of silos, and Opacus for everything else and wherever CUDA is asked for.
        model: the architecture, which is copied; or what builds it.
        task, input_shape, outputs: as for both engines.
        by_individual: whether schedules sample individuals, which fleets do not.
        device: as for `OpacusEngine`; fleets train on the CPU.
        max_physical_batch: as for `OpacusEngine`.

    Raises:
        InvalidValue: for an engine that is not known, or fleets for what only Opacus can do.
        ModelRefused: for a model that the engine cannot train.
    """
    if name not in ("auto", "fleet", "opacus"):
        raise InvalidValue(f"Expected engine={name!r} to be auto, fleet or opacus.")
    if name == "fleet" and (by_individual or device == "cuda"):
        raise InvalidValue("A fleet samples records, on the CPU: expected engine='opacus' or 'auto'.")
    if not isinstance(model, nn.Module):
        model = model()
    if name == "fleet" or (name == "auto" and not by_individual and device != "cuda" and FleetEngine.supports(model)):
        return FleetEngine(model, task=task, input_shape=input_shape, outputs=outputs)
    from silos._engine import OpacusEngine  # loads Opacus, which takes seconds

    return OpacusEngine(
        model,
        task=task,
        input_shape=input_shape,
        outputs=outputs,
        device=device,
        max_physical_batch=max_physical_batch,
    )
