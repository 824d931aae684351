"""Where each key of a TOML text stands: `tomllib` reads values, this finds lines.

The text must be valid TOML. Keys inside arrays are not told apart: they stand where their array stands.
"""

import re
import tomllib
from collections.abc import Callable

Path = tuple[str, ...]

_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_STRING = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\]|\\.)*"|\'[^\']*\'', re.DOTALL)
_SCALAR = re.compile(r"[^,\]}\n#]*")


def locate(text: str) -> dict[Path, int]:
    """The line, from 1, at which each key and table of a valid TOML text first appears."""
    scan = _Scan(text)
    scan.document()
    return scan.lines


class _Scan:
    """A reader that walks over the text once, noting the line of each key."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Path, int] = {}

    def document(self) -> None:
        table: Path = ()
        self.skip_blank()
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                self.at += 2 if self.text.startswith("[[", self.at) else 1
                table = self.key(())
                self.at = self.text.index("]", self.at)
                self.at += 2 if self.text.startswith("]]", self.at) else 1
            else:
                self.pair(table)
            self.skip_blank()

    def pair(self, table: Path) -> None:
        path = self.key(table)
        self.at = self.text.index("=", self.at) + 1
        self.value(path)

    def key(self, table: Path) -> Path:
        path = table
        while True:
            self.skip_blank()
            match = _KEY.match(self.text, self.at)
            if match is None:
                raise ValueError(f"no key at {self.at}")
            part = match[0]
            path = (*path, tomllib.loads(f"v = {part}")["v"] if part[0] in "\"'" else part)
            self.lines.setdefault(path, self.text.count("\n", 0, self.at) + 1)
            self.at = match.end()
            self.skip_blank()
            if not self.text.startswith(".", self.at):
                return path
            self.at += 1

    def value(self, path: Path) -> None:
        self.skip_blank()
        opening = self.text[self.at]
        if opening == "{":
            self.items("}", lambda: self.pair(path))
        elif opening == "[":
            self.items("]", lambda: self.value(path))
        else:
            match = (_STRING if opening in "\"'" else _SCALAR).match(self.text, self.at)
            self.at = match.end() if match else len(self.text)

    def items(self, closing: str, read: Callable[[], None]) -> None:
        self.at += 1
        self.skip_blank()
        while not self.text.startswith(closing, self.at):
            read()
            self.skip_blank()
            if self.text.startswith(",", self.at):
                self.at += 1
                self.skip_blank()
        self.at += 1

    def skip_blank(self) -> None:
        match = _BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at
