"""The shipped architectures, and which models are refused."""

import sys
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

from accounting import InvalidValue
from silos import (
    ModelRefused,
    OpacusEngine,
    Schedule,
    Shard,
    Streams,
    build_model,
    check_model,
    load_weights,
    weights_of,
)

WIDTH = 6


class Shift(nn.Module):
    """Subtracts a public constant."""

    offset: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offset", torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - self.offset


class Scaled(nn.Module):
    """A linear layer times a 0-d parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, 2)
        self.scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * self.inner(x)


def with_buffer_and_parameters() -> nn.Module:
    layer = nn.Linear(WIDTH, 2)
    layer.register_buffer("offset", torch.ones(WIDTH))
    return layer


def shifted() -> nn.Module:
    return nn.Sequential(Shift(), nn.Linear(WIDTH, 2))


def normalised() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2))


class Twice(nn.Module):
    """The same layer applied twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.second.weight = self.first.weight
        self.output = nn.Linear(WIDTH, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output(self.second(self.first(x)))


class Centred(nn.Module):
    """Subtracts the mean over the batch: a cross-record layer that no list of types knows."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(WIDTH, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output(x - x.mean(dim=0))


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(WIDTH, 2)
        self.spare = nn.Linear(WIDTH, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output(x)


class Counting(nn.Module):
    """Keeps a running mean of what it has seen."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(WIDTH, 2)
        self.norm = nn.Identity()
        self.norm.register_buffer("seen", torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.norm.seen += x.detach().mean(dim=0)
        return self.output(x)


def with_integer_buffer() -> nn.Module:
    layer = nn.Sequential(nn.Identity(), nn.Linear(WIDTH, 2))
    layer[0].register_buffer("table", torch.arange(3))
    return layer


def frozen(model: nn.Module) -> nn.Module:
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model


def partly_frozen() -> nn.Module:
    return nn.Sequential(frozen(nn.Linear(WIDTH, 4)), nn.Tanh(), nn.Linear(4, 2))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 2)), "BatchNorm1d.*mixes.*Allowed.*GroupNorm"),
        (nn.Sequential(nn.BatchNorm1d(WIDTH, track_running_stats=False), nn.Linear(WIDTH, 2)), "BatchNorm1d"),
        (Centred(), "another record.*Allowed"),
        (nn.Sequential(nn.Dropout(0.5), nn.Linear(WIDTH, 2)), "random.*Allowed"),
        (with_integer_buffer(), "'0.table'.*Allowed"),
        (with_buffer_and_parameters(), "trainable parameters and buffers.*Allowed"),
        (Counting(), "buffer.*changes.*Allowed"),
        (Tied(), "'first.weight' and 'second.weight' share.*Allowed"),
        (Unused(), "'spare.weight' does not reach.*Allowed"),
        (frozen(nn.Linear(WIDTH, 2)), "no trainable parameter.*Allowed"),
        (nn.Flatten(), "no trainable parameter.*Allowed"),
        (nn.Linear(WIDTH, 2).half(), "float16.*Allowed"),
        (nn.Linear(WIDTH, 3), r"shape \(3, 3\).*Allowed: \(3, 2\)"),
        (nn.Linear(WIDTH + 1, 2), "fails on float records of shape"),
    ],
)
def test_a_model_without_gradients_of_its_own_for_each_record_is_refused(model: nn.Module, message: str) -> None:
    with pytest.raises(ModelRefused, match=message):
        check_model(model, input_shape=(WIDTH,), outputs=2)


@pytest.mark.parametrize("make", [Scaled, Twice, partly_frozen, shifted, normalised])
def test_unusual_but_sound_models_train_as_by_hand(
    make: Callable[[], nn.Module], make_schedule: Callable[..., Schedule], streams: Streams
) -> None:
    torch.manual_seed(0)
    model = make().double()
    schedule = make_schedule(steps=1, sampling_rate=1.0, momentum=0.0, learning_rate=1.0, noise_multiplier=0.0)
    generator = np.random.default_rng(0)
    shard = Shard(
        name="north",
        features=generator.normal(size=(9, WIDTH)).astype(np.float32),
        labels=generator.integers(2, size=9),
        individuals=np.arange(9).astype(np.str_),
    )
    engine = OpacusEngine(model, task="multiclass", input_shape=(WIDTH,), outputs=2, dtype="float64")
    before = weights_of(model)
    noise = streams.generator("north", 1, "noise")
    trained, _ = engine.train(before, shard, schedule, streams.generator("north", 1, "sampling"), noise)

    trainable = [p for p in model.parameters() if p.requires_grad]
    total = np.zeros(sum(p.numel() for p in trainable))
    for features, label in zip(shard.features, shard.labels, strict=True):
        logits = model(torch.tensor(features[None], dtype=torch.float64))[0]
        parts = torch.autograd.grad(torch.logsumexp(logits, dim=0) - logits[label], trainable)
        gradient = np.concatenate([part.numpy().ravel() for part in parts])
        total += gradient * min(1.0, schedule.clip_norm / (np.linalg.norm(gradient) + 1e-6))
    moved = np.concatenate([(trained[name] - before[name]).ravel() for name in before])
    np.testing.assert_allclose(moved, -total / schedule.expected_batch, rtol=0, atol=1e-12)


def test_checking_a_model_leaves_it_and_the_global_generator_alone() -> None:
    model, state = nn.Linear(WIDTH, 2), torch.get_rng_state()
    before = weights_of(model)
    check_model(model, input_shape=(WIDTH,), outputs=2)
    assert all(np.array_equal(before[name], array) for name, array in weights_of(model).items())
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_cnn_has_the_published_number_of_parameters() -> None:
    model = build_model("cnn", input_shape=(1, 28, 28), outputs=10, seed=0)
    # Tramer and Boneh 2021, table 9: 16 filters of 8 x 8, 32 of 4 x 4, 512 to 32 to 10.
    assert sum(p.numel() for p in model.parameters()) == (64 + 1) * 16 + (16 * 16 + 1) * 32 + 513 * 32 + 33 * 10
    check_model(model, input_shape=(1, 28, 28), outputs=10)


@pytest.mark.parametrize("shape", [(1, 18, 18), (3, 32, 20), (1, 28, 28)])
def test_the_cnn_takes_every_image_size_it_allows(shape: tuple[int, ...]) -> None:
    assert build_model("cnn", input_shape=shape, outputs=4, seed=0)(torch.zeros(2, *shape)).shape == (2, 4)


def test_a_cnn_on_too_small_an_image_is_refused() -> None:
    with pytest.raises(InvalidValue, match="18 x 18"):
        build_model("cnn", input_shape=(1, 17, 28), outputs=4, seed=0)


@pytest.mark.parametrize("kind", ["linear", "mlp", "cnn", f"{__name__}:own"])
def test_a_seed_gives_the_same_weights_and_moves_no_global_generator(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, __name__, module_of_factories())
    state = torch.get_rng_state()
    first, again, other = (
        weights_of(build_model(kind, input_shape=(1, 28, 28), outputs=3, seed=seed)) for seed in (4, 4, 5)
    )
    assert torch.equal(state, torch.get_rng_state())
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not all(np.array_equal(first[name], other[name]) for name in first)


def module_of_factories() -> ModuleType:
    module = ModuleType(__name__)
    module.__dict__["own"] = own
    return module


def own(*, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(input_shape)), outputs))


@pytest.mark.parametrize(
    ("kind", "message"),
    [("tree", "linear, mlp, cnn"), ("no.such.module:f", "cannot be imported"), ("math:sqrt_", "cannot be imported")],
)
def test_an_unknown_kind_is_refused(kind: str, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        build_model(kind, input_shape=(3,), outputs=2, seed=0)


def test_loading_weights_is_the_inverse_of_reading_them() -> None:
    source = build_model("mlp", input_shape=(3,), outputs=2, hidden=(5, 4), seed=1)
    target = build_model("mlp", input_shape=(3,), outputs=2, hidden=(5, 4), seed=2)
    load_weights(target, weights_of(source))
    assert all(np.array_equal(array, weights_of(target)[name]) for name, array in weights_of(source).items())
    with pytest.raises(InvalidValue, match="missing or unknown"):
        load_weights(target, {})


class HalfPrecision(nn.Module):
    """Computes in bfloat16, whatever is around it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, 8)
        self.output = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.output(torch.tanh(self.inner(x))).float()


def test_a_record_keeps_within_the_clip_norm_in_mixed_precision(
    make_schedule: Callable[..., Schedule], streams: Streams
) -> None:
    # Norms taken in bfloat16 would be wrong by 1/256, which is ten thousand times what is allowed here.
    generator = np.random.default_rng(0)
    features = generator.normal(size=(9, WIDTH)).astype(np.float32) * np.logspace(0, 3, 9, dtype=np.float32)[:, None]
    engine = OpacusEngine(HalfPrecision(), task="multiclass", input_shape=(WIDTH,), outputs=2)
    start = {name: generator.normal(size=shape).astype(np.float32) for name, shape in engine.layout.items()}
    schedule = make_schedule(
        steps=1, sampling_rate=1.0, momentum=0.0, learning_rate=1.0, expected_batch=1.0, noise_multiplier=0.0
    )

    def total(rows: np.ndarray) -> np.ndarray:
        shard = Shard(
            name="north",
            features=features[rows],
            labels=np.zeros(len(rows), dtype=np.int64),
            individuals=rows.astype(np.str_),
        )
        sampling, noise = (streams.generator("north", 1, purpose) for purpose in ("sampling", "noise"))
        after, _ = engine.train(start, shard, schedule, sampling, noise)
        return np.concatenate([(after[name] - start[name]).ravel() for name in start]).astype(np.float64)

    whole = total(np.arange(9))
    moves = [np.linalg.norm(whole - total(np.delete(np.arange(9), row))) for row in range(9)]
    assert max(moves) <= schedule.clip_norm * (1 + 1e-5)
    assert max(moves) >= schedule.clip_norm * (1 - 1e-5)


def test_mixed_precision_around_a_run_changes_nothing(
    make_schedule: Callable[..., Schedule], make_shard: Callable[..., Shard], streams: Streams
) -> None:
    model = build_model("mlp", input_shape=(5,), outputs=3, hidden=(4,), seed=1)
    engine = OpacusEngine(model, task="multiclass", input_shape=(5,), outputs=3)

    def trained() -> bytes:
        sampling, noise = (streams.generator("north", 1, purpose) for purpose in ("sampling", "noise"))
        after, _ = engine.train(weights_of(model), make_shard(), make_schedule(), sampling, noise)
        return b"".join(array.tobytes() for array in after.values())

    plain = trained()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert trained() == plain
