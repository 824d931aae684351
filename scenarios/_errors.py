"""The scenarios' branch of the error tree.

```
SilodpError
├── ScenarioError   a scenario that cannot be run as written; nothing was written or computed
└── RunError        a run's folder that cannot be used or resumed
```
"""

from accounting._errors import SilodpError


class ScenarioError(SilodpError):
    """A scenario, an override or the data it names is not what the scenario says.

    The message names the file, the line, the key, the value and what is allowed, and fits one screen.
    """


class RunError(SilodpError):
    """A run that cannot start or go on in its folder; the message names the file and what to do."""
