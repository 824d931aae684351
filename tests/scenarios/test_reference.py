"""The page of scenario keys says what the keys say."""

from pathlib import Path

from scenarios._reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "scenarios.md"


def test_the_page_is_what_the_keys_say() -> None:
    assert PAGE.read_text("utf-8") == reference(), "python -m scenarios._reference > docs/scenarios.md"


def test_every_key_has_a_description() -> None:
    rows = [line.split(" | ") for line in reference().splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    assert all(row[2].removesuffix(" |").strip() for row in rows)
