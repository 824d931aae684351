"""The model of a scenario, the same in a simulation, in its workers and in a deployment."""

from collections.abc import Callable
from functools import partial

from torch import nn

from scenarios.spec._scenario import Scenario
from silos import build_model


def model_builder(scenario: Scenario, *, input_shape: tuple[int, ...], outputs: int) -> Callable[[], nn.Module]:
    """Builds the model with its initial weights; it can be sent to another process.

    Args:
        scenario: whose model it is.
        input_shape: of one record.
        outputs: of the model.
    """
    return partial(
        build_model,
        scenario.model.kind,
        input_shape=input_shape,
        outputs=outputs,
        hidden=scenario.model.hidden,
        activation=scenario.model.activation,
        seed=scenario.seed,
    )
