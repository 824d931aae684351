"""Properties of the boundary, each as a check that raises `AssertionError` where it does not hold.

They stand here once: the tests of the boundary run them on the product as it is, and the tests of planted faults run
them on a product with a fault in it, to see that each of them can fail.
"""

import numpy as np
from taped import Seen


def check_non_interference(one: Seen, other: Seen) -> None:
    """Every byte that left is the same for both datasets, while the silos did compute different sums."""
    left, right = one.left(), other.left()
    assert list(left) == list(right), f"what left differs in kind: {set(left) ^ set(right)}"
    for name in left:
        assert left[name] == right[name], f"{name} depends on what a shard holds"
    assert any(not np.array_equal(a, b) for a, b in zip(one.sums, other.sums, strict=True)), "the shards were not used"


def check_sums_move_within_sensitivity(one: Seen, other: Seen) -> None:
    """For neighbours, each step's gradient sum moves by at most the clip norm in L2."""
    for before, after, clip_norm in zip(one.sums, other.sums, one.clip_norms, strict=True):
        moved = float(np.linalg.norm(before - after))
        assert moved <= clip_norm * (1 + 1e-5), f"a record moved a sum by {moved}, declared {clip_norm}"
