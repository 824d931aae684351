"""Small shards, schedules and engines for the tests of a silo."""

from collections.abc import Callable

import numpy as np
import pytest

from silos import OpacusEngine, Schedule, Shard, Streams, Weights, build_model, weights_of

FEATURES = 5
CLASSES = 3


def make_shard(records: int = 40, *, name: str = "north", seed: int = 0) -> Shard:
    generator = np.random.default_rng(seed)
    return Shard(
        name=name,
        features=generator.normal(size=(records, FEATURES)).astype(np.float32),
        labels=generator.integers(CLASSES, size=records),
        individuals=np.array([f"p{i}" for i in range(records)], dtype=np.str_),
    )


def make_schedule(**changes: float) -> Schedule:
    values: dict[str, float] = {
        "sampling_rate": 0.3,
        "steps": 4,
        "noise_multiplier": 0.7,
        "clip_norm": 0.5,
        "expected_batch": 11.5,
        "learning_rate": 0.8,
        "momentum": 0.9,
    }
    return Schedule(**(values | changes))  # type: ignore[arg-type]  # steps is passed as an int


def make_engine(**options: object) -> OpacusEngine:
    model = build_model("mlp", input_shape=(FEATURES,), outputs=CLASSES, hidden=(4,), seed=1)
    values: dict[str, object] = {"task": "multiclass", "input_shape": (FEATURES,), "outputs": CLASSES}
    return OpacusEngine(model, **(values | {"dtype": "float64"} | options))  # type: ignore[arg-type]


def make_weights(dtype: str = "float64") -> Weights:
    model = build_model("mlp", input_shape=(FEATURES,), outputs=CLASSES, hidden=(4,), seed=1)
    return {name: array.astype(dtype) for name, array in weights_of(model).items()}


@pytest.fixture(name="make_shard")
def _make_shard() -> Callable[..., Shard]:
    return make_shard


@pytest.fixture(name="make_schedule")
def _make_schedule() -> Callable[..., Schedule]:
    return make_schedule


@pytest.fixture(name="make_engine")
def _make_engine() -> Callable[..., OpacusEngine]:
    return make_engine


@pytest.fixture(scope="session")
def engine() -> OpacusEngine:
    """Float64; shared, as an engine is by the silos of a process."""
    return make_engine()


@pytest.fixture
def weights() -> Weights:
    return make_weights()


@pytest.fixture
def streams() -> Streams:
    return Streams(b"sixteen bytes ok")
