"""Scenarios: what a run is, said in one file, and everything that turns the file into results.

May import every other folder. Start with `load` and `run`:

    from scenarios import load, run

    result = run(load("digits-dirichlet", seed=1))
    print(result.guarantee.sentence())

The command line (`scenarios.cli`) is a thin layer over the same functions. Names are imported on first use, since
torch and Flower take seconds to load and `silodp --help` needs neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scenarios._errors import RunError, ScenarioError
    from scenarios._plan import make_plan
    from scenarios._plan_parts import Plan, SiloPlan
    from scenarios._runner import RunResult, run
    from scenarios.data._dataset import Dataset, prepare, public_sizes
    from scenarios.reports._compare import compare
    from scenarios.spec._load import load, names
    from scenarios.spec._scenario import Scenario
    from scenarios.sweeps._sweep import results, sweep

_HOME = {
    "Dataset": "data._dataset",
    "prepare": "data._dataset",
    "public_sizes": "data._dataset",
    "RunError": "_errors",
    "ScenarioError": "_errors",
    "Plan": "_plan_parts",
    "SiloPlan": "_plan_parts",
    "make_plan": "_plan",
    "RunResult": "_runner",
    "run": "_runner",
    "Scenario": "spec._scenario",
    "compare": "reports._compare",
    "results": "sweeps._sweep",
    "sweep": "sweeps._sweep",
    "load": "spec._load",
    "names": "spec._load",
}

__all__ = [
    "Dataset",
    "Plan",
    "RunError",
    "RunResult",
    "Scenario",
    "ScenarioError",
    "SiloPlan",
    "compare",
    "load",
    "make_plan",
    "names",
    "prepare",
    "public_sizes",
    "results",
    "run",
    "sweep",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'scenarios' has no attribute {name!r}")
    return getattr(import_module(f"scenarios.{_HOME[name]}"), name)
