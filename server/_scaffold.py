"""SCAFFOLD under differential privacy (Karimireddy et al. 2020; Noble, Bellet, Dieuleveut 2022).

Silos whose data differ pull a model apart in their local steps. Each step is corrected by ``c - c_i``, where ``c_i``
is an average gradient of silo i and ``c`` of all, by public weights. Both follow from releases alone: a silo that went
from the model x to y_i in K steps at learning rate eta, corrected by ``c - c_i``, has

    c_i <- (x - y_i) / (K eta) - (c - c_i)

the mean of its noisy clipped gradients in the round (option II of the first paper). So the server keeps them, they cost
nothing, and silos keep no state. A silo that was never heard has c_i = 0 and no part in c.
"""

from collections.abc import Iterable

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from server._personal import Seated, Stack
from silos import Weights, from_record, to_record


class Scaffold(Seated):
    """FedAvg with control variates.

    Args:
        learning_rate: the server's: how far it goes from the model before the round to the mean of those after, > 0.
        distance: steps of a silo in a round times its learning rate, > 0.
        options: as for Flower's `FedAvg`.

    Attributes:
        controls: the c_i of all silos; empty before the first round.
        shares: public weight of each silo that was heard, else 0.
        sent: the model that the round began with.
    """

    def __init__(self, *, learning_rate: float, distance: float, **options: object) -> None:
        super().__init__(**options)
        self.learning_rate = learning_rate
        self.distance = distance
        self.controls: Stack = {}
        self.shares: NDArray[np.float64] = np.zeros(0)
        self.sent: Weights = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The model to every silo, with its own correction."""
        self.sent = from_record(arrays)
        if not self.controls:
            self.controls = {name: np.zeros_like(stack) for name, stack in self.stacked(self.sent).items()}
            self.shares = np.zeros(len(self._rows))
        corrections = self._corrections()
        for row, message in self.messages(server_round, arrays, config, grid):
            correction = to_record({name: stack[row] for name, stack in corrections.items()})
            message.content = RecordDict(
                {self.arrayrecord_key: arrays, "correction": correction, self.configrecord_key: config}
            )
            yield message

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Learn each silo's gradient, and go towards the mean of the models."""
        replies, corrections = list(replies), self._corrections()
        ended = self.put(self.stacked(self.sent), replies)
        heard = [self._rows[reply.metadata.src_node_id] for reply in replies]
        controls: Stack = {}
        for name, stack in self.controls.items():
            gradients = np.divide(np.subtract(self.sent[name], ended[name]), self.distance)
            controls[name] = stack.copy()
            controls[name][heard] = np.subtract(gradients, corrections[name])[heard]
        self.controls = controls
        self.shares = self.shares.copy()
        for row, reply in zip(heard, replies, strict=True):
            (metrics,) = reply.content.metric_records.values()
            self.shares[row] = metrics[self.weighted_by_key]
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is not None and self.learning_rate != 1:
            mean = from_record(arrays)
            gone = {name: np.multiply(np.subtract(mean[name], x), self.learning_rate) for name, x in self.sent.items()}
            arrays = to_record({name: np.add(x, gone[name]) for name, x in self.sent.items()})
        return arrays, metrics

    def _corrections(self) -> Stack:
        """The c - c_i of all silos."""
        whole = self.shares.sum()
        shares = self.shares / whole if whole > 0 else self.shares
        return {
            name: np.subtract(np.tensordot(shares, stack, axes=1), stack).astype(stack.dtype, copy=False)
            for name, stack in self.controls.items()
        }
