"""The strategy of a scenario, the same in a simulation and in a deployment."""

from flwr.serverapp.strategy import Strategy

from scenarios._checkpoint import Checkpoint
from scenarios._spec import Scenario
from server import build_strategy, restore_state


def strategy_in(scenario: Scenario, state: Checkpoint) -> Strategy:
    """The scenario's strategy as it was in a state of a run."""
    options = scenario.training.strategy.model_dump()
    strategy = build_strategy(options.pop("name"), options)
    restore_state(strategy, state.strategy)
    return strategy
