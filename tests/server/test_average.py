"""The mean over flat vectors against Flower's own."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, Strategy

from server import build_strategy
from server._flower import quiet_strategy
from server._strategies import WEIGHT
from silos import Weights, from_record, to_record

EVERYONE = {"weighted_by_key": WEIGHT, "min_train_nodes": 3, "min_available_nodes": 3}
SHAPES = {"hidden.weight": (4, 3), "hidden.bias": (4,), "scale": ()}


def drawn(generator: np.random.Generator) -> Weights:
    return {name: np.asarray(generator.normal(size=shape), dtype=np.float32) for name, shape in SHAPES.items()}


def rounds(strategy: Strategy, federation, count: int = 3) -> list[Weights]:
    """What the strategy makes of the same replies in each round."""
    generator = np.random.default_rng(0)
    current, grid = to_record(drawn(generator)), federation.grid()
    found: list[Weights] = []
    for round in range(1, count + 1):
        with quiet_strategy("any"):
            messages = sorted(
                strategy.configure_train(round, current, ConfigRecord(), grid),
                key=lambda message: message.metadata.dst_node_id,
            )
            replies = [
                Message(
                    RecordDict({"arrays": to_record(drawn(generator)), "metrics": MetricRecord({WEIGHT: weight})}),
                    reply_to=message,
                )
                for message, weight in zip(messages, (3.0, 0.5, 2.0), strict=True)
            ]
            aggregated, _ = strategy.aggregate_train(round, replies)
        assert isinstance(aggregated, ArrayRecord)
        current = aggregated
        found.append(from_record(aggregated))
    return found


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("fedavg", FedAvg(**EVERYONE)),
        ("fedavgm", FedAvgM(**EVERYONE, server_learning_rate=1.0, server_momentum=0.9)),
        ("fedadam", FedAdam(**EVERYONE, eta=0.1, beta_1=0.9, beta_2=0.99, tau=1e-3)),
    ],
)
def test_every_round_has_flowers_mean_up_to_rounding(federation, name: str, theirs: Strategy) -> None:
    for ours, expected in zip(rounds(build_strategy(name), federation), rounds(theirs, federation), strict=True):
        assert list(ours) == list(SHAPES)
        for weight, array in expected.items():
            np.testing.assert_allclose(ours[weight], array, rtol=0, atol=1e-5)


def test_errors_are_left_out_and_nothing_comes_of_errors_alone(federation) -> None:
    (message, *_) = build_strategy("fedavg").configure_train(1, to_record({}), ConfigRecord(), federation.grid())
    assert build_strategy("fedavg").aggregate_train(1, [Message(Error(1, "no"), reply_to=message)]) == (None, None)
