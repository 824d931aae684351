"""The release gate: the only way out of a silo.

A reply carries named items. Each is the output of a mechanism, whose row in the ledger says that it was released and
hashes to the very bytes that leave, or is public by name and one value; anything else is refused by its name, whoever
put it there.
"""

from collections.abc import Mapping, Set
from typing import TypeAlias

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from accounting import Charge
from silos._errors import ReleaseRefused
from silos._records import filled, from_record, hash_weights, to_record

Arrays: TypeAlias = Mapping[str, NDArray[np.generic]]
Records: TypeAlias = ArrayRecord | ConfigRecord | MetricRecord

ARRAYS = "arrays"
"""The item that holds the trained weights."""

NAME = "silo"
"""The item that holds the silo's public name."""

PUBLIC = frozenset({NAME})
"""Items that are public in every scenario."""


def open_gate(
    items: Mapping[str, Arrays | Records], charges: Mapping[str, Charge], public: Set[str] = PUBLIC
) -> RecordDict:
    """The content of a reply.

    Args:
        items: what is to leave, by name.
        charges: the charge of each item, as the ledger holds it now.
        public: names of the items that no mechanism needs to price, each a single value.

    Raises:
        ReleaseRefused: naming an item that is neither public nor exactly what the ledger says was released.
    """
    records = {name: item if isinstance(item, Records) else to_record(item) for name, item in items.items()}
    content = filled(RecordDict(), records)
    check_reply(content, set(charges), public)
    for name, record in content.items():
        if isinstance(record, ArrayRecord):
            charge = charges[name]
            if charge.output is None or charge.output != hash_weights(from_record(record)):
                raise ReleaseRefused(f"Item {name!r} is not what the ledger released as {charge.key}.")
    return content


def check_reply(content: RecordDict, charged: Set[str], public: Set[str] = frozenset()) -> None:
    """Refuse a reply that holds anything but charged arrays and public items.

    Raises:
        ReleaseRefused: naming the item.
    """
    for name, record in content.items():
        if name in public and isinstance(record, ConfigRecord) and len(record) == 1:
            continue
        if name in charged and isinstance(record, ArrayRecord):
            continue
        allowed = ", ".join(sorted(charged | public)) or "none"
        raise ReleaseRefused(
            f"Item {name!r} ({type(record).__name__}) has no charged release and is not public. Allowed: {allowed}."
        )
