"""Strategies that tell silos apart, and those among them that keep a model for each.

Silos keep nothing between rounds. A silo's own model is made of releases that its ledger was charged for; the server,
which has seen them anyway, keeps it and sends it back to that silo alone, to train on.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from server._average import Average
from silos import Weights, from_record, to_record

Stack = dict[str, NDArray[np.generic]]
"""Each weight of all silos, shape (silos, ...), by the weight's name."""


class Seated(Average):
    """FedAvg that knows which node is which silo.

    Args:
        options: as for Flower's `FedAvg`.
    """

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # pyright: ignore[reportArgumentType]  # handed on as they are
        self._rows: Mapping[int, int] = MappingProxyType({})

    def seat(self, nodes: Sequence[int]) -> None:
        """Say which nodes the silos are, in an order that never changes; to be called before the first round."""
        self._rows = MappingProxyType({node: row for row, node in enumerate(nodes)})

    def stacked(self, weights: Mapping[str, NDArray[np.generic]]) -> Stack:
        """The same weights for every silo."""
        return {name: np.stack([array] * len(self._rows)) for name, array in weights.items()}

    def messages(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[tuple[int, Message]]:
        """The messages of FedAvg to silos that have a row, each with its row."""
        for message in super().configure_train(server_round, arrays, config, grid):
            if (row := self._rows.get(message.metadata.dst_node_id)) is not None:
                yield row, message

    def put(self, stack: Stack, replies: Iterable[Message]) -> Stack:
        """The stack, with the rows of silos that replied taken from their replies."""
        changed = {name: array.copy() for name, array in stack.items()}
        for reply in replies:
            row = self._rows[reply.metadata.src_node_id]
            for record in reply.content.array_records.values():
                for name, array in from_record(record).items():
                    changed[name][row] = array
        return changed


class Personal(Seated):
    """Each silo trains on from its own last model; nothing of another's reaches it.

    What the server aggregates is the weighted mean of the models that arrived in the round, for whoever has none of
    their own. A silo that did not reply keeps the model that it had.

    Attributes:
        models: of all silos, after the last round; empty before the first.
    """

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.models: Stack = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """A message to each silo with its own model; before the first round all have the one given."""
        if not self.models:
            self.models = self.stacked(from_record(arrays))
        for row, message in self.messages(server_round, arrays, config, grid):
            own = to_record(self.model(row))
            message.content = RecordDict({self.arrayrecord_key: own, self.configrecord_key: config})
            yield message

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Keep each silo's model, and return the mean of them."""
        replies = list(replies)
        self.models = self.put(self.models, replies)
        return super().aggregate_train(server_round, replies)

    def model(self, row: int) -> Weights:
        """The model of the silo in that row."""
        return {name: stack[row] for name, stack in self.models.items()}


class FineTuned(Personal):
    """Local fine-tuning: any strategy, and after it rounds in which each silo trains on alone.

    These rounds are rounds like the others: declared before round 1, charged, and released.

    Args:
        before: the other strategy.
        rounds: how many it runs.
        options: as for Flower's `FedAvg`.
    """

    def __init__(self, before: Strategy, *, rounds: int, **options: object) -> None:
        super().__init__(**options)
        self.before = before
        self.rounds = rounds

    def seat(self, nodes: Sequence[int]) -> None:
        """Seat both strategies."""
        super().seat(nodes)
        if isinstance(self.before, Seated):
            self.before.seat(nodes)

    def passes(self, server_round: int) -> Sequence[Strategy]:
        """Those of the other strategy while it runs, then this."""
        return (self,) if server_round > self.rounds else passes_of(self.before, server_round)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Each silo's own model: at first the one that the other strategy left it, or left to all."""
        if not self.models and isinstance(self.before, Personal):
            self.models = dict(self.before.models)
        return super().configure_train(server_round, arrays, config, grid)


def personal_models(strategy: Strategy, silos: Sequence[str]) -> dict[str, Weights]:
    """Each silo's own model by its name; none where the strategy has one model for all, or no round was run.

    Args:
        strategy: after a round, or restored.
        silos: names, in the order in which `run_rounds` was given them.
    """
    while isinstance(strategy, FineTuned) and not strategy.models:
        strategy = strategy.before
    if not isinstance(strategy, Personal) or not strategy.models:
        return {}
    return {name: strategy.model(row) for row, name in enumerate(silos)}


def passes_of(strategy: Strategy, server_round: int) -> Sequence[Strategy]:
    """What a round is made of: each pass is asked of every silo, and is a release of its own.

    Most strategies are their own only pass.
    """
    passes = getattr(strategy, "passes", None)
    return (strategy,) if passes is None else passes(server_round)
