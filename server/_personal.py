"""Strategies with a model for each silo, and training alone, the simplest of them.

Silos keep nothing between rounds. A silo's own model is a release that its ledger was charged for; the server, which
has seen it anyway, keeps it and sends it back to that silo alone, to train on.
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
"""Each weight of all silos' models, shape (silos, ...), by the weight's name."""


class Personal(Average):
    """Each silo trains on from its own last model; nothing of another's reaches it.

    What the server aggregates is the weighted mean of the models that arrived in the round, for whoever has none of
    their own. A silo that did not reply keeps the model that it had.

    Args:
        options: as for Flower's `FedAvg`.

    Attributes:
        models: of all silos, after the last round; empty before the first.
    """

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # pyright: ignore[reportArgumentType]  # handed on as they are
        self.models: Stack = {}
        self._rows: Mapping[int, int] = MappingProxyType({})

    def seat(self, nodes: Sequence[int]) -> None:
        """Say which nodes the silos are, in the order that the models have; to be called before the first round."""
        self._rows = MappingProxyType({node: row for row, node in enumerate(nodes)})

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """A message to each silo with its own model; before the first round all have the one given."""
        if not self.models:
            self.models = {name: np.stack([array] * len(self._rows)) for name, array in from_record(arrays).items()}
        for message in super().configure_train(server_round, arrays, config, grid):
            if (row := self._rows.get(message.metadata.dst_node_id)) is not None:
                own = to_record(self.model(row))
                message.content = RecordDict({self.arrayrecord_key: own, self.configrecord_key: config})
                yield message

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Keep each silo's model, and return the mean of them."""
        replies = list(replies)
        models = {name: stack.copy() for name, stack in self.models.items()}
        for reply in replies:
            row = self._rows[reply.metadata.src_node_id]
            for record in reply.content.array_records.values():
                for name, array in from_record(record).items():
                    models[name][row] = array
        self.models = models
        return super().aggregate_train(server_round, replies)

    def model(self, row: int) -> Weights:
        """The model of the silo in that place."""
        return {name: stack[row] for name, stack in self.models.items()}


def personal_models(strategy: Strategy, silos: Sequence[str]) -> Mapping[str, Weights]:
    """Each silo's own model by its name; none where the strategy has one model for all, or no round was run.

    Args:
        strategy: after a round, or restored.
        silos: names, in the order in which `run_rounds` was given them.
    """
    if not isinstance(strategy, Personal) or not strategy.models:
        return {}
    return {name: strategy.model(row) for row, name in enumerate(silos)}
