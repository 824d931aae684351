"""Strategies by name: what the server does with the silos' models.

All of them work on released models and public weights alone, so that what they do costs no privacy. What they ask of
silos does: a strategy of two passes asks for two releases a round.
"""

from collections.abc import Callable, Mapping

from flwr.serverapp.strategy import FedMedian, FedTrimmedAvg, Krum, Strategy

from accounting import InvalidValue
from server._average import (
    Average,
    AverageWithAdagrad,
    AverageWithAdam,
    AverageWithMomentum,
    AverageWithProximal,
    AverageWithYogi,
)
from server._ditto import Ditto
from server._flower import quiet_strategy
from server._mr_mtl import MeanRegularised
from server._personal import FineTuned, Personal
from server._scaffold import Scaffold

WEIGHT = "weight"
"""The metric under which a silo's public weight reaches a strategy."""

_ALWAYS: Mapping[str, object] = {
    "weighted_by_key": WEIGHT,
    "min_train_nodes": 1,
    "min_evaluate_nodes": 1,
    "min_available_nodes": 1,
}

_ADAPTIVE = {"beta_1": ("beta_1", 0.9), "beta_2": ("beta_2", 0.99), "tau": ("tau", 1e-3)}

_KINDS: Mapping[str, tuple[Callable[..., Strategy], Mapping[str, tuple[str, float]]]] = {
    "fedavg": (Average, {}),
    "fedavgm": (
        AverageWithMomentum,
        {"learning_rate": ("server_learning_rate", 1.0), "momentum": ("server_momentum", 0.9)},
    ),
    "fedadam": (AverageWithAdam, {"learning_rate": ("eta", 0.1), **_ADAPTIVE}),
    "fedyogi": (AverageWithYogi, {"learning_rate": ("eta", 0.01), **_ADAPTIVE}),
    "fedadagrad": (AverageWithAdagrad, {"learning_rate": ("eta", 0.1), "tau": ("tau", 1e-3)}),
    "fedprox": (AverageWithProximal, {"pull": ("proximal_mu", 0.1)}),
    "fedmedian": (FedMedian, {}),
    "fedtrimmedavg": (FedTrimmedAvg, {"trim": ("beta", 0.2)}),
    "krum": (Krum, {"malicious": ("num_malicious_nodes", 0)}),
    "alone": (Personal, {}),
    "mr-mtl": (MeanRegularised, {"pull": ("pull", 1.0)}),
    "ditto": (Ditto, {"pull": ("pull", 0.1)}),
    "scaffold": (Scaffold, {"learning_rate": ("learning_rate", 1.0)}),
}
"""Each strategy, with our name, its own name and the default of each option."""

_BY_DISTANCE = ("mr-mtl", "scaffold")

STRATEGIES: Mapping[str, Mapping[str, float]] = {
    name: {option: default for option, (_, default) in options.items()} for name, (_, options) in _KINDS.items()
}
"""Options of each strategy, with their defaults."""


def build_strategy(
    name: str,
    options: Mapping[str, float] | None = None,
    *,
    distance: float = 1.0,
    fine_tuned_after: int | None = None,
) -> Strategy:
    """A fresh strategy.

    Args:
        name: a key of `STRATEGIES`.
        options: as in `STRATEGIES`; those not given have their defaults.
        distance: steps of a silo in a round times its learning rate, which mr-mtl and scaffold reckon with.
        fine_tuned_after: the round after which each silo trains on alone; None for never.

    Raises:
        InvalidValue: for a name or an option that is not known.
    """
    if name not in _KINDS:
        raise InvalidValue(f"Unknown strategy {name!r}; known: {', '.join(_KINDS)}.")
    kind, known = _KINDS[name]
    if unknown := set(options or {}) - set(known):
        raise InvalidValue(f"Unknown option {min(unknown)!r} of {name}; known: {', '.join(known) or 'none'}.")
    chosen = {known[option][0]: value for option, value in {**STRATEGIES[name], **(options or {})}.items()}
    if name in _BY_DISTANCE:
        chosen["distance"] = distance
    with quiet_strategy(""):  # Flower warns of a FedProx without a pull
        strategy = kind(**_ALWAYS, **chosen)
    return strategy if fine_tuned_after is None else FineTuned(strategy, rounds=fine_tuned_after, **_ALWAYS)
