"""Rounds, strategies and grids: what happens between the silos.

Imports `silos` and `accounting`, torch and flwr; never `scenarios` (except `server.app`, the composition root that
`flwr run .` loads). Start with `run_rounds`. Importing this package takes seconds: import it late.
"""

import silos as _silos  # isort: skip  # sets up the environment that flwr reads when it is imported

from server._grid import InProcessGrid
from server._nodes import SilosMissing, find_silos
from server._questions import ask_silos
from server._rounds import Plan, RoundResult, run_rounds
from server._state import restore_state, save_state
from server._strategies import STRATEGIES, WEIGHT, build_strategy

del _silos

__all__ = [
    "STRATEGIES",
    "WEIGHT",
    "InProcessGrid",
    "Plan",
    "RoundResult",
    "SilosMissing",
    "ask_silos",
    "build_strategy",
    "find_silos",
    "restore_state",
    "run_rounds",
    "save_state",
]
