"""Rounds, strategies and grids: what happens between the silos.

Imports `silos` and `accounting`, torch and flwr; never `scenarios` (except `server.app`, the composition root that
`flwr run .` loads). Start with `run_rounds`. Names are imported on first use, as those of `silos` are.
"""

from importlib import import_module
from typing import TYPE_CHECKING

import silos as _silos  # sets up the environment that flwr reads when it is imported

if TYPE_CHECKING:
    from server._grid import InProcessGrid
    from server._nodes import SilosMissing, find_silos
    from server._personal import personal_models
    from server._questions import ask_public, ask_silos
    from server._rounds import Plan, RoundResult, run_rounds
    from server._state import restore_state, save_state
    from server._strategies import STRATEGIES, WEIGHT, build_strategy

del _silos

_HOME = {
    "InProcessGrid": "_grid",
    "SilosMissing": "_nodes",
    "find_silos": "_nodes",
    "ask_public": "_questions",
    "personal_models": "_personal",
    "ask_silos": "_questions",
    "Plan": "_rounds",
    "RoundResult": "_rounds",
    "run_rounds": "_rounds",
    "restore_state": "_state",
    "save_state": "_state",
    "STRATEGIES": "_strategies",
    "WEIGHT": "_strategies",
    "build_strategy": "_strategies",
}

__all__ = [
    "STRATEGIES",
    "WEIGHT",
    "InProcessGrid",
    "Plan",
    "RoundResult",
    "SilosMissing",
    "ask_public",
    "ask_silos",
    "build_strategy",
    "find_silos",
    "personal_models",
    "restore_state",
    "run_rounds",
    "save_state",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'server' has no attribute {name!r}")
    return getattr(import_module(f"server.{_HOME[name]}"), name)
