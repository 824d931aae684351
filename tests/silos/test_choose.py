"""The engine follows from what is asked."""

import pytest

from accounting import InvalidValue
from silos import EngineName, FleetEngine, ModelRefused, OpacusEngine, build_engine, build_model

MLP = build_model("mlp", input_shape=(4,), outputs=2, seed=0)
CNN = build_model("cnn", input_shape=(1, 28, 28), outputs=2, seed=0)


def choose(name: EngineName, kind: str = "mlp", **options: object) -> FleetEngine | OpacusEngine:
    model, shape = (MLP, (4,)) if kind == "mlp" else (CNN, (1, 28, 28))
    return build_engine(name, model, task="multiclass", input_shape=shape, outputs=2, **options)  # type: ignore[arg-type]


def test_auto_takes_the_fleet_where_it_trains_the_model() -> None:
    assert choose("auto").name == "fleet"
    assert choose("auto", "cnn").name == "opacus"
    assert choose("auto", by_individual=True).name == "opacus"


def test_what_is_asked_for_is_taken() -> None:
    assert isinstance(choose("fleet"), FleetEngine)
    assert isinstance(choose("opacus"), OpacusEngine)


def test_a_fleet_that_cannot_is_refused() -> None:
    with pytest.raises(ModelRefused, match="fleet"):
        choose("fleet", "cnn")
    with pytest.raises(InvalidValue, match="samples records"):
        choose("fleet", by_individual=True)
    with pytest.raises(InvalidValue, match="on the CPU"):
        choose("fleet", device="cuda")
    with pytest.raises(InvalidValue, match="'torch'"):
        choose("torch")  # type: ignore[arg-type]
