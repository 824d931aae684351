"""Weights on the way between silos and server, inside a process and outside."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from silos import Weights, from_record, hash_weights, to_record

WEIGHTS: Weights = {
    "layer.weight": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "layer.bias": np.array([np.pi, -0.0]),
    "scale": np.array(2.0, dtype=np.float32),
}


def test_weights_survive_the_process() -> None:
    assert hash_weights(from_record(to_record(WEIGHTS))) == hash_weights(WEIGHTS)


def test_weights_survive_flowers_wire() -> None:
    record = to_record(WEIGHTS)
    sent = {key: item.deflate() for key, item in get_all_nested_objects(record).items()}
    received = inflate_object_from_contents(record.object_id, sent)
    assert isinstance(received, ArrayRecord)
    assert all(type(array) is Array for array in received.values())
    assert hash_weights(from_record(received)) == hash_weights(WEIGHTS)


def test_a_record_has_the_bytes_that_flower_would_give_it() -> None:
    for name, array in to_record(WEIGHTS).items():
        theirs = Array(WEIGHTS[name])
        assert (array.dtype, array.shape, array.stype, array.data) == (
            theirs.dtype,
            theirs.shape,
            theirs.stype,
            theirs.data,
        )


def test_what_a_strategy_does_to_an_array_stays_with_it() -> None:
    record = to_record(WEIGHTS)
    record["layer.bias"].numpy()[:] = 0.0
    assert hash_weights(from_record(record)) == hash_weights(WEIGHTS)


@pytest.mark.parametrize(
    "other",
    [
        {
            "layer.weight": WEIGHTS["layer.weight"] + 1e-6,
            "layer.bias": WEIGHTS["layer.bias"],
            "scale": WEIGHTS["scale"],
        },
        {name: array.astype(np.float64) for name, array in WEIGHTS.items()},
        {name + "s": array for name, array in WEIGHTS.items()},
        WEIGHTS | {"layer.weight": WEIGHTS["layer.weight"].reshape(2, 3)},
        dict(reversed(WEIGHTS.items())),
        {"layer.bias": WEIGHTS["layer.bias"]},
    ],
)
def test_a_hash_sees_names_shapes_precision_and_values(other: Weights) -> None:
    assert hash_weights(other) != hash_weights(WEIGHTS)
