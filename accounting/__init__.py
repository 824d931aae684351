"""What was released and what it cost.

Price releases of silos under differential privacy: each silo's over its rounds, then all silos together under a
declared membership. Usable alone, by people who train elsewhere.

It imports none of the other folders, nor torch, flwr or opacus.

Where to start: a `Mechanism` (such as `SampledGaussian`) describes a release, a `Federation` composes the releases of
all silos, and its `Guarantee` says what they gave away. A `Ledger` keeps releases durably; `account` answers an events
file. Modules are private; everything public is here.
"""

from accounting._accountant import Price, delta, epsilon
from accounting._additive import DiscreteGaussian, DiscreteLaplace, Laplace, SampledLaplace
from accounting._allowance import Allowance
from accounting._batches import FixedBatchGaussian, ShuffledGaussian, TruncatedSampledGaussian
from accounting._budget import Budget
from accounting._calibration import calibrate_noise_multiplier, calibrate_rounds, calibrate_sampling_rate
from accounting._claims import ApproximateEpsilon, Exponential, NonPrivate, PureEpsilon, ZeroConcentrated
from accounting._errors import (
    BudgetExhausted,
    InvalidValue,
    LedgerConflict,
    LedgerCorrupt,
    LedgerError,
    SilodpError,
    Unsupported,
)
from accounting._events import Events, account, events_schema, parse_events
from accounting._exposures import Exposure
from accounting._federation import Federation
from accounting._gaussian import Gaussian, SampledGaussian
from accounting._guarantee import Guarantee, number_to_json, round_up
from accounting._ladder import Rung
from accounting._law_chain import LAW_CHAIN, NOISE, SYSTEM_NOISE, TEST_NOISE
from accounting._ledger import Ledger
from accounting._ledger_chain import Charge
from accounting._mechanism import Mechanism, mechanism_from_json, mechanisms
from accounting._membership import AtMost, Disjoint, Membership, Sets, Unknown, membership_from_json
from accounting._multi_record import MultiRecordSampledGaussian
from accounting._overlap import HashedIds, Overlap, enforce_cap, hash_ids, overlap
from accounting._pairs import DiscretePair, Pair
from accounting._relations import Directions, Relation, Unit
from accounting._release import Release
from accounting._responses import RandomisedResponse
from accounting._selection import RepeatAndSelect
from accounting._worst import Method

__all__ = [
    "LAW_CHAIN",
    "NOISE",
    "SYSTEM_NOISE",
    "TEST_NOISE",
    "Allowance",
    "ApproximateEpsilon",
    "AtMost",
    "Budget",
    "BudgetExhausted",
    "Charge",
    "Directions",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DiscretePair",
    "Disjoint",
    "Events",
    "Exponential",
    "Exposure",
    "Federation",
    "FixedBatchGaussian",
    "Gaussian",
    "Guarantee",
    "HashedIds",
    "InvalidValue",
    "Laplace",
    "Ledger",
    "LedgerConflict",
    "LedgerCorrupt",
    "LedgerError",
    "Mechanism",
    "Membership",
    "Method",
    "MultiRecordSampledGaussian",
    "NonPrivate",
    "Overlap",
    "Pair",
    "Price",
    "PureEpsilon",
    "RandomisedResponse",
    "Relation",
    "Release",
    "RepeatAndSelect",
    "Rung",
    "SampledGaussian",
    "SampledLaplace",
    "Sets",
    "ShuffledGaussian",
    "SilodpError",
    "TruncatedSampledGaussian",
    "Unit",
    "Unknown",
    "Unsupported",
    "ZeroConcentrated",
    "account",
    "calibrate_noise_multiplier",
    "calibrate_rounds",
    "calibrate_sampling_rate",
    "delta",
    "enforce_cap",
    "epsilon",
    "events_schema",
    "hash_ids",
    "mechanism_from_json",
    "mechanisms",
    "membership_from_json",
    "number_to_json",
    "overlap",
    "parse_events",
    "round_up",
]
