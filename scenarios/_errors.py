"""The scenarios' branch of the error tree.

```
SilodpError
├── ScenarioError   a scenario that cannot be run as written; nothing was written or computed
└── RunError        a run's folder that cannot be used or resumed
```
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from accounting._errors import SilodpError


class ScenarioError(SilodpError):
    """A scenario, an override or the data it names is not what the scenario says.

    The message names the file, the line, the key, the value and what is allowed, and fits one screen.
    """


class RunError(SilodpError):
    """A run that cannot start or go on in its folder; the message names the file and what to do."""


@contextmanager
def reading(path: Path) -> Generator[None]:
    """Tell a file of a run that is gone or damaged by its path.

    Raises:
        RunError: where reading it fails inside.
    """
    try:
        yield
    except RunError:
        raise
    except (SilodpError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        told = f"{type(error).__name__}: {error}"
        raise RunError(f"{path}: is gone or damaged ({told}). Put it back, or run its run again.") from error
