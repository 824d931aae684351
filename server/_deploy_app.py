"""The app that a deployment submits: a description without code.

Both ends of a run load `server.app` and `silos.app` from the silodp that is installed where they run. So nobody needs
to trust code that comes over the network, and a silo's guard is the silo's own.
"""

import warnings
from importlib.metadata import version

from accounting import SilodpError

CONFIG = {"scenario": "digits-dirichlet", "public": "", "run": "", "out": "."}
"""Keys of the run's config with their defaults; see `server.app`."""


def build_app() -> bytes:
    """The bundle, the same bytes for the same versions of silodp and Flower.

    Raises:
        SilodpError: where Flower cannot build it.
    """
    import tomli_w
    from flwr.cli.build import build_fab_from_files

    project = {
        "project": {"name": "silodp", "version": version("silodp"), "license": "Apache-2.0", "dependencies": []},
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "silodp",
                    "components": {"serverapp": "server.app:app", "clientapp": "silos.app:app"},
                    "config": CONFIG,
                }
            }
        },
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Flower's use of pathspec
            return build_fab_from_files({"pyproject.toml": tomli_w.dumps(project).encode()})[0]
    except ValueError as error:
        raise SilodpError(f"Flower could not build the app: {error}") from error
