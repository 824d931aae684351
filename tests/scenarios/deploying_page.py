"""The blocks of docs/deploying.md."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "deploying.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    """The page's fenced blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def shell_commands() -> list[str]:
    """Every line of its shell blocks."""
    return [line for block in blocks("sh") for line in block.splitlines() if line]
