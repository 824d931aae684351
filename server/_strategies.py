"""Strategies by name: what the server does with the silos' models.

All of them work on released models and public weights alone, so that none costs any privacy.
"""

from collections.abc import Callable, Mapping

from flwr.serverapp.strategy import Strategy

from accounting import InvalidValue
from server._average import Average, AverageWithAdam, AverageWithMomentum
from server._personal import Personal

WEIGHT = "weight"
"""The metric under which a silo's public weight reaches a strategy."""

_ALWAYS: Mapping[str, object] = {
    "weighted_by_key": WEIGHT,
    "min_train_nodes": 1,
    "min_evaluate_nodes": 1,
    "min_available_nodes": 1,
}

_KINDS: Mapping[str, tuple[Callable[..., Strategy], Mapping[str, tuple[str, float]]]] = {
    "fedavg": (Average, {}),
    "fedavgm": (
        AverageWithMomentum,
        {"learning_rate": ("server_learning_rate", 1.0), "momentum": ("server_momentum", 0.9)},
    ),
    "fedadam": (
        AverageWithAdam,
        {"learning_rate": ("eta", 0.1), "beta_1": ("beta_1", 0.9), "beta_2": ("beta_2", 0.99), "tau": ("tau", 1e-3)},
    ),
    "alone": (Personal, {}),
}
"""Each strategy, with our name, its own name and the default of each option."""

STRATEGIES: Mapping[str, Mapping[str, float]] = {
    name: {option: default for option, (_, default) in options.items()} for name, (_, options) in _KINDS.items()
}
"""Options of each strategy, with their defaults."""


def build_strategy(name: str, options: Mapping[str, float] | None = None) -> Strategy:
    """A fresh strategy.

    Args:
        name: ``fedavg`` (weighted average), ``fedavgm`` (with server momentum; Hsu et al. 2019), ``fedadam`` (Reddi
            et al. 2021) or ``alone`` (each silo by itself).
        options: as in `STRATEGIES`; those not given have their defaults.

    Raises:
        InvalidValue: for a name or an option that is not known.
    """
    if name not in _KINDS:
        raise InvalidValue(f"Unknown strategy {name!r}; known: {', '.join(_KINDS)}.")
    kind, known = _KINDS[name]
    if unknown := set(options or {}) - set(known):
        raise InvalidValue(f"Unknown option {min(unknown)!r} of {name}; known: {', '.join(known) or 'none'}.")
    chosen = dict(STRATEGIES[name]) | dict(options or {})
    return kind(**_ALWAYS, **{known[option][0]: value for option, value in chosen.items()})
