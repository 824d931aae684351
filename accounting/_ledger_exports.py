"""A ledger's rows as JSON, which can be read back, and as CSV, which is for people and spreadsheets."""

import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from accounting._errors import LedgerCorrupt, LedgerError
from accounting._ledger_rows import Row

FORMAT = "silodp-ledger"
VERSION = 1


def write_json(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as one JSON document, whole or not at all."""
    document = {"format": FORMAT, "version": VERSION, "rows": [row.used() for row in rows]}
    _write(path, json.dumps(document, indent=1, ensure_ascii=True) + "\n")


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as CSV with a header of the field names, whole or not at all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows(rows)
    _write(path, text.getvalue())


def read_json(path: Path) -> list[Row]:
    """Read what `write_json` wrote; whether the rows form chains is for the reader to check.

    Raises:
        LedgerError: when the file cannot be read, is no such document, or is of a newer version.
        LedgerCorrupt: when one of its rows is none.
    """
    try:
        document: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LedgerError(f"{path}: cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise LedgerError(f"{path}: not JSON ({error}).") from error
    values = cast("dict[str, object]", document) if isinstance(document, dict) else {}
    if values.get("format") != FORMAT:
        raise LedgerError(f"{path}: not the export of a ledger.")
    if values.get("version") != VERSION:
        raise LedgerError(f"{path}: version {values.get('version')!r} of the export; this silodp reads {VERSION}.")
    rows = values.get("rows")
    if not isinstance(rows, list):
        raise LedgerCorrupt(f"{path}: holds no list of rows.")
    return [_row(path, place, row) for place, row in enumerate(cast("list[object]", rows), start=1)]


def _row(path: Path, place: int, value: object) -> Row:
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if not {"silo", "sequence", "event", "item", "previous", "hash"} <= set(fields) <= set(Row._fields):
        raise LedgerCorrupt(f"{path}: entry {place} of its rows is no row of a ledger.")
    row = Row(**fields)  # pyright: ignore[reportArgumentType]  the types are checked on the next line
    if not row.well_formed():
        raise LedgerCorrupt(f"{path}: entry {place} of its rows is no event of a ledger; it was altered.")
    return row


def _write(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise LedgerError(f"{path}: cannot be written ({error.strerror}).") from error
