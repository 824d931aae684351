"""Ditto: a model for all by FedAvg, and one for each silo that is pulled to it (Li, Hu, Beirami, Smith 2021).

Each round asks a silo twice: for steps on the model of all, which are FedAvg's, and for as many on its own model, each
pulled to the model of all that the round began with. The second is a release like the first, under the round's attempt
1: the ledger shows both, and both are paid for.
"""

from collections.abc import Iterable, Sequence

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from server._average import Average
from server._flower import PULL
from server._personal import Personal


class Ditto(Personal):
    """The second pass, and through `passes` the first.

    Args:
        pull: of the personal models' steps to the model of all, >= 0; times the silo's learning rate at most 1.
        options: as for Flower's `FedAvg`.
    """

    def __init__(self, *, pull: float, **options: object) -> None:
        super().__init__(**options)
        self.pull = pull
        self._whole = Average(**options)  # pyright: ignore[reportArgumentType]  # handed on as they are

    def passes(self, server_round: int) -> Sequence[Strategy]:
        """FedAvg, then this."""
        del server_round
        return (self._whole, self)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Each silo's own model, with the model of all as its anchor."""
        config[PULL] = self.pull
        for message in super().configure_train(server_round, arrays, config, grid):
            message.content["anchor"] = arrays
            yield message

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Keep each silo's model; the model of all is the first pass's."""
        super().aggregate_train(server_round, replies)
        return None, None
