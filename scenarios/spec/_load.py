"""Reading scenarios: from a file or by a shipped name, with overrides, telling all problems in one message."""

import json
import re
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from scenarios._errors import ScenarioError
from scenarios.spec._data import FILE_KINDS
from scenarios.spec._explain import explain, nearest
from scenarios.spec._origin import Origin
from scenarios.spec._scenario import Scenario
from scenarios.spec._toml import locate

Table = dict[str, object]

_ALTERNATIVES = (
    ("privacy", {"epsilon", "noise_multiplier"}),
    ("training", {"sampling_rate", "expected_batch"}),
    ("silos", {"column", "partition", "files"}),
)
"""Keys of which a section takes one: an override of one drops the other from the file."""

_DECLARED, _COUNTED, _PUBLIC = ("silos", "declared_size"), ("privacy", "size_epsilon"), ("silos", "public")


def names() -> list[str]:
    """The names of the shipped scenarios, sorted."""
    shipped = files("scenarios").joinpath("shipped").iterdir()
    return sorted(entry.name.removesuffix(".toml") for entry in shipped if entry.name.endswith(".toml"))


def load(name_or_path: str | Path, overrides: Sequence[str] = (), seed: int | None = None) -> Scenario:
    """Read a scenario.

    Args:
        name_or_path: a shipped scenario's name, or a TOML file (anything with a slash or the suffix ``.toml``).
        overrides: ``key=value`` each, the key dotted, the value in TOML; a bare word is a string. An override of one
            of two alternatives (``privacy.epsilon``, ``privacy.noise_multiplier``) replaces the other, and a relation
            that makes sizes public replaces the price of counting them. A relative path
            of a source is relative to the scenario's file; in an override, to the working directory.
        seed: the scenario's seed, in place of the file's.

    Raises:
        ScenarioError: naming file, line, key, value and what is allowed, for every problem at once.
    """
    file, text, folder = _read(name_or_path)
    try:
        content: Table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = str(error), re.search(r"at line (\d+)", str(error))
        raise ScenarioError(f"{file}:{line[1] if line else 1}: is not valid TOML: {message}") from None
    content.setdefault("name", re.sub(r"[^\w.-]+", "-", Path(file).stem))
    _resolve_source(content, folder)
    origins: dict[tuple[str, ...], str] = {}
    for override in overrides:
        _apply(content, override, origins)
    _resolve_source(content, Path())
    if seed is not None:
        content["seed"] = seed
        origins["seed",] = f"--seed {seed}"
    return _validated(content, Origin(file, text, origins))


def changed(
    scenario: Scenario, overrides: Sequence[str] = (), seed: int | None = None, sweep: Table | None = None
) -> Scenario:
    """Another scenario: this one with overrides and a seed, as `load` takes them, and another `[sweep]`.

    Raises:
        ScenarioError: where it is none.
    """
    content: Table = tomllib.loads(scenario.to_toml())
    origins: dict[tuple[str, ...], str] = {}
    for override in overrides:
        _apply(content, override, origins)
    if seed is not None:
        content["seed"] = seed
    if sweep is not None:
        content["sweep"] = sweep
    return _validated(content, Origin(scenario._origin.file, overrides=origins))


def _validated(content: Table, origin: Origin) -> Scenario:
    try:
        scenario = Scenario.model_validate(content)
    except ValidationError as error:
        raise ScenarioError(origin.report(explain(error, content))) from None
    scenario._origin = origin
    return scenario


def _read(name_or_path: str | Path) -> tuple[str, str, Path]:
    shown = str(name_or_path)
    if isinstance(name_or_path, str) and "/" not in shown and not shown.endswith(".toml"):
        if shown not in names():
            hint = nearest(shown, names())
            if Path(shown).is_file():
                hint = f" the file of this name would be ./{shown};"
            raise ScenarioError(f"No shipped scenario {shown!r};{hint} shipped: {', '.join(names())}.")
        return f"{shown}.toml", files("scenarios").joinpath("shipped", f"{shown}.toml").read_text("utf-8"), Path()
    try:
        return shown, Path(shown).read_text("utf-8"), Path(shown).absolute().parent
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{shown}: cannot be read: {error}") from None


def _resolve_source(content: Table, folder: Path) -> None:
    """Make the path of a source in a file absolute."""
    data = content.get("data")
    source = data.get("source") if isinstance(data, dict) else None
    if isinstance(data, dict) and isinstance(source, str):
        kind, colon, place = source.partition(":")
        if kind in FILE_KINDS and place:
            data["source"] = f"{kind}{colon}{(folder / place).absolute()}"


def _apply(content: Table, override: str, origins: dict[tuple[str, ...], str]) -> None:
    """Set the override's key in the content."""
    shown = f"--set {override if len(override) <= 80 else override[:77] + '...'}"
    key, equals, written = override.partition("=")
    if not equals or not key.strip():
        raise ScenarioError(f"{shown}: must read key=value, as in training.rounds=5")
    path, value = _parse(key, written, shown)
    table = content
    for part in path[:-1]:
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ScenarioError(f"{shown}: {part} is not a table")
        table = inner
    for section, alternatives in _ALTERNATIVES:
        if path[:-1] == (section,) and path[-1] in alternatives:
            for other in alternatives - {path[-1]}:
                if (section, other) not in origins:
                    table.pop(other, None)
    for other in _displaced(path, value):
        held = content.get(other[0])
        if other not in origins and isinstance(held, dict):
            held.pop(other[1], None)
    table[path[-1]] = value
    origins[path] = shown


def _displaced(path: tuple[str, ...], value: object) -> list[tuple[str, str]]:
    """Other ways to make sizes public, which an override leaves without a meaning."""
    if path == ("privacy", "relation"):
        return [] if value == "add-or-remove-one" else [_COUNTED, _PUBLIC]
    sizes = isinstance(value, list) and {"records", "individuals"} & set(map(str, value))
    ways = [_DECLARED, _COUNTED, _PUBLIC] if path != _PUBLIC or sizes else []
    return [way for way in ways if way != path] if path in ways else []


def _parse(key: str, written: str, shown: str) -> tuple[tuple[str, ...], object]:
    try:
        parsed: object = tomllib.loads(f"{key} = {written}")
    except tomllib.TOMLDecodeError:
        try:
            parsed = tomllib.loads(f"{key} = {json.dumps(written.strip())}")
        except tomllib.TOMLDecodeError as error:
            raise ScenarioError(f"{shown}: is not a TOML key and value: {error}") from None
    path = tuple(locate(f"{key} = 0"))[-1]
    for part in path:
        parsed = parsed[part] if isinstance(parsed, dict) else parsed
    return path, parsed
