"""The reference of scenario keys, written from the keys themselves: `python -m scenarios.spec._reference` prints it."""

from collections.abc import Iterator
from enum import StrEnum
from types import UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from scenarios.spec._scenario import Scenario

_HEAD = """# Scenario keys

A scenario is one TOML file. Unknown keys are refused, every key says what is allowed when it is wrong, and
`silodp show FILE` prints a file with every default filled in. A small one, for a `people.csv` beside it:

```toml
[data]
source = "csv:people.csv"
task = "binary"
individual = "id"
label = { column = "sick", positive = "yes" }

[data.features]
age = { low = 0, high = 100, missing = 50 }
sex = { categories = ["f", "m"] }

[silos]
column = "hospital"
declared_size = 200 # public; or choose the relation zero-out, under which true sizes are

[training]
rounds = 10
local_steps = 5
sampling_rate = 0.1
learning_rate = 0.5

[privacy]
epsilon = 2.0
delta = 1e-4
relation = "add-or-remove-one"
```

Any key can be changed for one run by `--set`, as in `--set privacy.epsilon=1`. Where two keys say the same thing, such
as `epsilon` and `noise_multiplier`, the one that is set replaces the file's.

Every key there is. Names in angle brackets are yours to choose.

| key | default | what it is |
|---|---|---|
"""


def reference() -> str:
    """All keys as a Markdown page."""
    return _HEAD + "".join(f"| `{key}` | {default} | {text} |\n" for key, default, text in _rows(Scenario, ""))


def _rows(section: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, field in section.model_fields.items():
        words = get_args(field.annotation)
        if get_origin(field.annotation) is Literal and len(words) == 1:  # the word that chooses this section
            yield prefix + name, f'`"{words[0]}"`', _first_line(section)
            continue
        text = (field.description or _first_line(field.annotation)).replace("|", "or")
        yield prefix + name, _default(field), text + _choices(field.annotation)
        for inner, part in _sections(field.annotation, prefix + name):
            yield from _rows(inner, part + ".")


def _sections(annotation: object, key: str) -> Iterator[tuple[type[BaseModel], str]]:
    """The sections that a key may hold, each with the key of its own keys."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, key
    elif origin is dict:
        yield from _sections(parts[1], f"{key}.<name>")
    elif origin in (Union, UnionType):
        for part in parts:
            yield from _sections(part, key)
    elif origin is Annotated:
        yield from _sections(parts[0], key)


def _choices(annotation: object) -> str:
    """The words that a key may hold, where they are a fixed list."""
    parts = get_args(annotation)
    if get_origin(annotation) is Literal:
        return f" ({', '.join(map(str, parts))})"
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return f" ({', '.join(annotation)})"
    return "".join(map(_choices, parts)) if get_origin(annotation) in (Union, UnionType) else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, BaseModel) or value in ("", (), {}):
        return ""
    return f"`{value}`"


def _first_line(annotation: object) -> str:
    sections = [section for section, _ in _sections(annotation, "")]
    return (sections[0].__doc__ or "").strip().splitlines()[0] if sections else ""


if __name__ == "__main__":
    print(reference(), end="")
