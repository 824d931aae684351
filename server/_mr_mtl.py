"""Mean-regularised multi-task learning: a model for each silo, drawn to the mean of all (Liu, Hu, Wu, Smith 2022).

Silos together minimise the sum of their losses ``f_i(w_i)``, each with a penalty ``pull/2 |w_i - mean|^2``. A round is
a forward step and a backward one: each silo takes its DP-SGD steps on its own loss from its own model, which gives
``v_i``; then the server takes the proximal step of the penalty over the same distance, the silo's K steps times its
learning rate eta:

    w_i = (v_i + K eta pull mean) / (1 + K eta pull),    mean = weighted mean of the v_i that arrived

The paper's own step adds ``pull (w - mean of the last round)`` to each gradient. To first order in eta that is the
same; it diverges where eta pull > 2, and holds models still as the pull grows, since a mean that is a round old then
binds each step. Here both ends are exact, in every round and for any K: pull = 0 is each silo training alone, and
pull = inf starts all silos from the mean, which is FedAvg (Hanzely, Richtarik 2020, whose algorithm alternates the same
two steps). The backward step works on releases, and costs nothing.
"""

from collections.abc import Iterable

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord

from server._personal import Personal
from silos import from_record


class MeanRegularised(Personal):
    """Personal models, each drawn to their mean after every round.

    Args:
        pull: strength of the penalty, in [0, inf].
        distance: steps of a silo in a round times its learning rate, > 0.
        options: as for Flower's `FedAvg`.

    Attributes:
        share: of the mean in each silo's model, in [0, 1].
    """

    def __init__(self, *, pull: float, distance: float, **options: object) -> None:
        super().__init__(**options)
        reach = pull * distance
        self.share = 1.0 if np.isinf(reach) else reach / (1 + reach)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Draw each silo's model to the mean of those that arrived, which is returned."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is not None:
            for name, mean in from_record(arrays).items():
                own = self.models[name]
                drawn = np.add(np.multiply(own, 1 - self.share), np.multiply(mean, self.share))
                self.models[name] = drawn.astype(own.dtype, copy=False)
        return arrays, metrics
