"""Where a scenario's keys were written, and the one message that tells all of its problems."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from scenarios.spec._toml import Path, locate

SHOWN = 6
"""Problems told in one message, so that it fits one screen."""


class Problem(NamedTuple):
    """One thing wrong with a scenario: the key's path, and what is wrong and allowed."""

    path: Path
    message: str


@dataclass(frozen=True)
class Origin:
    """The text and overrides that a scenario was read from. All origins are equal: they are no part of its value.

    Args:
        file: what to call the scenario's file.
        text: its TOML text.
        overrides: the override, as given, that set each key.
    """

    file: str = field(default="scenario", compare=False)
    text: str = field(default="", compare=False)
    overrides: Mapping[Path, str] = field(default_factory=dict, compare=False)

    def place(self, path: Path) -> str:
        """``file:line``, or the override; of the nearest table around a key that is not there."""
        lines = locate(self.text)
        for key, override in self.overrides.items():
            if key[: len(path)] == path and path not in lines:
                return override
        for length in range(len(path), 0, -1):
            if path[:length] in self.overrides:
                return self.overrides[path[:length]]
            if path[:length] in lines:
                return f"{self.file}:{lines[path[:length]]}"
        return self.file

    def report(self, problems: list[Problem]) -> str:
        """The message that tells the problems, a line each, at most `SHOWN` of them."""
        told = [f"{self.place(path)}: {'.'.join(path)} {message}" for path, message in problems[:SHOWN]]
        if len(problems) > SHOWN:
            told.append(f"and {len(problems) - SHOWN} more")
        return "\n".join(told)
