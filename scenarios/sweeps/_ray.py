"""A sweep on a Ray cluster: the same runs in the same folder, which all of its nodes must see at the same path."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from accounting import SilodpError
from scenarios._errors import RunError
from scenarios.sweeps._one import Runs
from scenarios.sweeps._workers import MOST_DEATHS, Told

_runs: dict[Path, Runs] = {}
"""What a worker process of Ray keeps between runs."""


def work_on_ray(folder: Path, names: Sequence[str], *, address: str, jobs: int, tell: Callable[[Told], None]) -> None:
    """Do runs on a cluster; a run whose worker dies is done again from where it was, a few times.

    Args:
        folder: the sweep's.
        names: of the runs that are left to do.
        address: of the cluster; ``local`` starts one on this machine.
        jobs: how many processes ``local`` starts.
        tell: called as runs end.

    Raises:
        RunError: without Ray, or without a cluster at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray  # pyright: ignore[reportMissingImports]  # the extra ray
        from ray.exceptions import RayError  # pyright: ignore[reportMissingImports]  # the extra ray
    except ImportError:
        raise RunError("A sweep on Ray needs the extra: pip install 'silodp[ray]'.") from None
    started = {"num_cpus": jobs, "include_dashboard": False} if address == "local" else {}
    environment = {"env_vars": {"OMP_NUM_THREADS": "1"}}
    try:
        ray.init(address=address, log_to_driver=False, runtime_env=environment, **started)
    except ConnectionError as error:
        raise RunError(f"--ray {address}: no cluster answers there: {error}") from None
    try:
        remote = ray.remote(num_cpus=1, max_retries=MOST_DEATHS)(_do)
        waiting = {remote.remote(folder.absolute(), name): name for name in names}
        while waiting:
            ready, _ = ray.wait(list(waiting))
            for reference in ready:
                name = waiting.pop(reference)
                try:
                    failed = ray.get(reference)
                except RayError as error:
                    failed = str(error).strip().rpartition("\n")[2]
                tell(Told(run=name, part=1.0 if failed is None else 0.0, failed=failed))
    finally:
        ray.shutdown()


def _do(folder: Path, name: str) -> str | None:
    """Do a run; why it failed, if it did."""
    if folder not in _runs:
        _runs[folder] = Runs(folder)
    try:
        _runs[folder].do(name)
    except SilodpError as error:
        return str(error)
    return None
