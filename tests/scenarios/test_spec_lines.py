"""Every key of a TOML text is found on its line."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.spec._toml import locate

TEXT = '''# a comment with [brackets] and key = value
top = 1

[data]  # trailing
source = "csv:a # not a comment.csv"
label = { column = "y = 1", above = 3.5 }

[data.features]
age = { low = 0, high = 1 }
"mean radius" = { low = 0, high = 1 }
colour = { categories = [
    "red", # the first
    "]",
] }
[training.strategy]
name = 'fedavg'
a.b = 1
[other]
text = """
fake = 1
[fake]
"""
literal = \'\'\'
fake = 2\'\'\'
nested = [[1, 2], [{ x = 1 }]]
when = 1979-05-27T07:32:00Z
last = true
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 2),
        (("data",), 4),
        (("data", "source"), 5),
        (("data", "label"), 6),
        (("data", "label", "above"), 6),
        (("data", "features"), 8),
        (("data", "features", "age", "high"), 9),
        (("data", "features", "mean radius", "low"), 10),
        (("data", "features", "colour", "categories"), 11),
        (("training",), 15),
        (("training", "strategy", "name"), 16),
        (("training", "strategy", "a", "b"), 17),
        (("other", "text"), 19),
        (("other", "literal"), 23),
        (("other", "nested"), 25),
        (("other", "when"), 26),
        (("other", "last"), 27),
    ],
)
def test_a_key_is_found_on_its_line(path: tuple[str, ...], line: int) -> None:
    tomllib.loads(TEXT)
    assert locate(TEXT)[path] == line


def test_words_inside_strings_are_no_keys() -> None:
    assert not any("fake" in path for path in locate(TEXT))


KEYS = st.text("abcXYZ012_-", min_size=1, max_size=5)
SCALARS = st.one_of(
    st.integers(-9, 9).map(str),
    st.floats(allow_nan=False, allow_infinity=False, width=16).map(repr),
    st.sampled_from(["true", '"a b"', "'#'", '"]"', '"\\""', '"""x\ny = 1\n"""', "[1, [2]]", "{}", "[]"]),
)


@given(st.dictionaries(KEYS, st.dictionaries(KEYS, SCALARS, max_size=4), max_size=4))
def test_tables_of_any_content_are_walked_to_the_end(tables: dict[str, dict[str, str]]) -> None:
    lines, expected = [], {}
    for table, pairs in tables.items():
        expected[table,] = sum(line.count("\n") + 1 for line in lines) + 1
        lines.append(f"[{table}]")
        for key, value in pairs.items():
            expected[table, key] = sum(line.count("\n") + 1 for line in lines) + 1
            lines.append(f"{key} = {value} # {key} = 1")
    text = "\n".join(lines)
    tomllib.loads(text)
    assert {path: line for path, line in locate(text).items() if len(path) <= 2} == expected
