"""Telling what pydantic found wrong in the words of a scenario: the key, the value, what is allowed."""

import difflib
import json
from collections.abc import Iterator, Sequence
from functools import cache

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from scenarios.spec._origin import Problem
from scenarios.spec._scenario import Scenario

Schema = dict[str, object]


def nearest(word: str, allowed: Sequence[str]) -> str:
    """A hint that names the nearest allowed word, or nothing."""
    close = difflib.get_close_matches(word, allowed, n=1, cutoff=0.5)
    return f" did you mean {close[0]!r}?" if close else ""


def explain(error: ValidationError, content: dict[str, object]) -> list[Problem]:
    """The problems of a scenario's content, one per key."""
    problems: dict[tuple[str, ...], Problem] = {}
    for details in error.errors(include_url=False):
        problem = _problem(details, content)
        problems.setdefault(problem.path, problem)
    return list(problems.values())


def _problem(details: ErrorDetails, content: dict[str, object]) -> Problem:
    kind, context = details["type"], details.get("ctx", {})
    path = _written_path(details["loc"], content)
    if kind == "missing":
        path = (*path, str(details["loc"][-1]))
    if kind == "rule":
        path += tuple(part for part in str(context.get("key", "")).split(".") if part)
        return Problem(path, _shown(_value(content, path)) + details["msg"])
    schemas = list(_schemas(path[:-1], content))
    if kind == "extra_forbidden":
        allowed = sorted({key for schema in schemas for key in _properties(schema)})
        return Problem(path, f"is unknown;{nearest(path[-1], allowed)} allowed: {', '.join(allowed)}")
    if kind == "missing":
        return Problem(path, f"is missing: {_allowed(path, content)}")
    if kind == "union_tag_invalid":
        tags = str(context["expected_tags"]).replace("'", "")
        return Problem((*path, "name"), f"= {json.dumps(context['tag'])} must be one of {tags}")
    if any(isinstance(part, int) for part in details["loc"]):
        items = [item for schema in _schemas(path, content) if isinstance(item := schema.get("items"), dict)]
        each = dict.fromkeys(_kind(branch) for item in items for branch in _branches(item, None))
        return Problem(path, f"holds {_shown(details['input'])[2:]}but each must be {' or '.join(each)}")
    return Problem(path, f"{_shown(details['input'])}must be {_allowed(path, content)}")


def _written_path(location: tuple[int | str, ...], content: object) -> tuple[str, ...]:
    """The keys of a location that the scenario has: without pydantic's union tags and list positions."""
    path: tuple[str, ...] = ()
    here = content
    for part in location:
        if not isinstance(part, str) or not isinstance(here, dict):
            break
        if part in here:
            path = (*path, part)
            here = here[part]
    return path


def _value(content: object, path: tuple[str, ...]) -> object:
    for part in path:
        content = content.get(part) if isinstance(content, dict) else None
    return content


def _shown(value: object) -> str:
    """`= value` in TOML's words, cut short; nothing for a table or an absent key."""
    if value is None or isinstance(value, dict):
        return ""
    text = str(value).lower() if isinstance(value, bool) else json.dumps(value, default=str)
    return f"= {text if len(text) <= 60 else text[:57] + '...'} "


def _schemas(path: tuple[str, ...], content: object) -> Iterator[Schema]:
    """The JSON schemas that a key may follow; of a union, the members that the content chose."""
    root = _root()
    found = [root]
    for depth, part in enumerate(path):
        chosen = [branch for schema in found for branch in _branches(schema, _value(content, path[:depth]))]
        found = []
        for schema in chosen:
            child = _properties(schema).get(part, schema.get("additionalProperties"))
            found += [child] if isinstance(child, dict) else []
    for schema in found:
        yield from _branches(schema, _value(content, path))


def _branches(schema: Schema, value: object) -> Iterator[Schema]:
    """The schema, its reference followed and its union taken apart; members not named as the value is left out."""
    if isinstance(reference := schema.get("$ref"), str):
        schema = {**_definitions()[reference.rsplit("/", 1)[-1]], **schema}
    members = schema.get("anyOf", schema.get("oneOf"))
    if not isinstance(members, list):
        name = _properties(schema).get("name", {}).get("const")
        if not (name and isinstance(value, dict) and value.get("name") != name):
            yield schema
        return
    for member in members:
        if member.get("type") != "null":
            yield from _branches({"description": schema.get("description"), **member}, value)


def _properties(schema: Schema) -> dict[str, Schema]:
    properties = schema.get("properties", {})
    return properties if isinstance(properties, dict) else {}


def _allowed(path: tuple[str, ...], content: object) -> str:
    """What a key's value must be: type, range and description."""
    schemas = list(_schemas(path, content))
    kinds = dict.fromkeys(_kind(schema) for schema in schemas)
    descriptions = [str(schema["description"]) for schema in schemas if schema.get("description")]
    return " or ".join(kinds) + (f" ({descriptions[0]})" if descriptions else "")


def _kind(schema: Schema) -> str:
    if isinstance(choices := schema.get("enum"), list):
        return "one of " + ", ".join(map(str, choices))
    if "const" in schema:
        return str(schema["const"])
    kind = str(schema.get("type", "value"))
    if kind in ("number", "integer"):
        low, high = schema.get("minimum"), schema.get("maximum")
        left = f"[{low}" if low is not None else f"({schema.get('exclusiveMinimum', '-inf')}"
        right = f"{high}]" if high is not None else f"{schema.get('exclusiveMaximum', 'inf')})"
        return f"{'an' if kind == 'integer' else 'a'} {kind} in {left}, {right}"
    return {"object": "a table", "array": "a list", "string": "a string", "boolean": "true or false"}.get(kind, kind)


@cache
def _root() -> Schema:
    return Scenario.model_json_schema()


def _definitions() -> dict[str, Schema]:
    definitions = _root()["$defs"]
    return definitions if isinstance(definitions, dict) else {}
