"""Files that are replaced whole."""

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file in one step, so that a reader or a kill sees the old one or the new one, whole and on disk."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
