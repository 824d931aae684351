"""The strategy of a scenario, and the file of silos' own models that some strategies leave.

Both are the same in a simulation and in a deployment.
"""

from collections.abc import Mapping

from flwr.serverapp.strategy import Strategy
from safetensors.numpy import save

from scenarios._checkpoint import Checkpoint
from scenarios.spec._scenario import Scenario
from server import build_strategy, restore_state
from silos import Weights

PERSONAL = "personal.safetensors"
"""Silos' own models in a run's folder, under names ``silo/weight``."""


def strategy_in(scenario: Scenario, state: Checkpoint) -> Strategy:
    """The scenario's strategy as it was in a state of a run."""
    training = scenario.training
    options = training.strategy.model_dump()
    strategy = build_strategy(
        options.pop("name"),
        options,
        distance=training.local_steps * training.learning_rate,
        fine_tuned_after=training.rounds - training.fine_tune_rounds if training.fine_tune_rounds else None,
    )
    restore_state(strategy, state.strategy)
    return strategy


def personal_bytes(models: Mapping[str, Weights]) -> bytes:
    """The content of `PERSONAL`."""
    return save({f"{silo}/{name}": array for silo, model in models.items() for name, array in model.items()})
