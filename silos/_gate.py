"""The release gate: the only way out of a silo.

A reply carries named items. Each is the output of a mechanism that the ledger was charged for; anything else is refused
by name, whoever put it there.
"""

from collections.abc import Mapping, Set

import numpy as np
from flwr.app import ArrayRecord, RecordDict
from numpy.typing import NDArray

from silos._errors import ReleaseRefused
from silos._records import to_record

ARRAYS = "arrays"
"""The item that holds the trained weights."""


def open_gate(items: Mapping[str, Mapping[str, NDArray[np.generic]]], charged: Set[str]) -> RecordDict:
    """The content of a reply.

    Args:
        items: what is to leave, by name.
        charged: names of the items whose release the ledger holds.

    Raises:
        ReleaseRefused: for an item that was not charged.
    """
    content = RecordDict({name: to_record(item) for name, item in items.items()})
    check_reply(content, charged)
    return content


def check_reply(content: RecordDict, charged: Set[str]) -> None:
    """Refuse a reply that holds anything but charged arrays.

    Raises:
        ReleaseRefused: naming the item.
    """
    for name, record in content.items():
        if name not in charged or not isinstance(record, ArrayRecord):
            allowed = ", ".join(sorted(charged)) or "none"
            raise ReleaseRefused(f"Item {name!r} ({type(record).__name__}) has no charged release. Charged: {allowed}.")
