"""The guard of a silo: what its law says to a request, before anything is computed or charged.

Only public numbers are looked at: the request's and the law's. What passes may still be more than the budget has left;
the ledger says so.
"""

import math

from silos._errors import Declined, Reason
from silos._law import Law
from silos._schedule import Schedule
from silos._silo import Question, Request
from silos._statistics import Errors, Outcomes, Statistic
from silos._weights import ITEM

MOST_BINS = 1000
"""Of a scored release; more would be memory and no metric."""

_ROUNDING = 1e-6
"""Part of a batch by which it may differ from the declared size times the rate."""


def check_request(law: Law, request: Request) -> int:
    """Decline a training request that the law does not allow.

    Returns:
        How many rounds the run may have.

    Raises:
        Declined: naming the number and the law's own.
    """
    _check_release(law, ITEM)
    _check_schedule(law, request.schedule)
    rounds = law.limits.rounds if request.rounds is None else request.rounds
    _demand(1 <= rounds <= law.limits.rounds, Reason.ROUNDS, f"rounds={rounds}", f"in [1, {law.limits.rounds}]")
    _demand(1 <= request.round <= rounds, Reason.ROUNDS, f"round={request.round}", f"in [1, {rounds}]")
    _demand(request.attempt >= 0, Reason.REQUEST, f"attempt={request.attempt}", "at least 0")
    return rounds


def check_question(law: Law, question: Question) -> None:
    """Decline a question that the law does not allow.

    Raises:
        Declined: naming the number and the law's own.
    """
    asked = question.statistic
    _check_release(law, asked.item)
    _demand(asked.relation is law.relation, Reason.UNIT, f"relation={asked.relation}", str(law.relation))
    _demand(asked.records == law.records, Reason.UNIT, f"records={asked.records}", str(law.records))
    _check_fit(law, asked)
    _demand(0 <= question.round <= law.limits.rounds, Reason.ROUNDS, f"round={question.round}", "a round of the run")
    _demand(question.attempt >= 0, Reason.REQUEST, f"attempt={question.attempt}", "at least 0")


def _check_release(law: Law, item: str) -> None:
    _demand(item in law.releases, Reason.RELEASE, f"item={item!r}", f"one of {', '.join(law.releases)}")


def _check_schedule(law: Law, asked: Schedule) -> None:
    limits = law.limits
    sigma, least = asked.noise_multiplier, limits.noise_multiplier
    _demand(sigma >= least, Reason.NOISE, f"noise_multiplier={sigma}", f"at least {least}")
    clip, most = asked.clip_norm, limits.clip_norm
    _demand(clip <= most, Reason.NOISE, f"clip_norm={clip}", f"at most {most}")
    rate, most = asked.sampling_rate, limits.sampling_rate
    _demand(rate <= most, Reason.RATE, f"sampling_rate={rate}", f"at most {most}")
    _demand(asked.steps <= limits.steps, Reason.STEPS, f"steps={asked.steps}", f"at most {limits.steps}")
    _demand(asked.records == law.records, Reason.UNIT, f"records={asked.records}", str(law.records))
    whole = limits.sampling == "individuals"
    _demand(asked.by_individual == whole, Reason.UNIT, f"by_individual={asked.by_individual}", str(whole))
    if law.data.size is not None:
        batch, due = asked.expected_batch, rate * law.data.size
        close = math.isclose(batch, due, rel_tol=_ROUNDING)
        _demand(close, Reason.RATE, f"expected_batch={batch}", f"{due:g}, the rate times the declared size")


def _check_fit(law: Law, asked: Statistic) -> None:
    """A question that does not fit the task would fail after it was charged."""
    regression = law.data.task == "regression"
    _demand(isinstance(asked, Errors) == regression, Reason.REQUEST, f"item={asked.item!r}", "one of the silo's task")
    if isinstance(asked, Outcomes):
        classes = max(2, law.data.outputs)
        _demand(asked.classes == classes, Reason.REQUEST, f"classes={asked.classes}", str(classes))
        _demand(asked.bins <= MOST_BINS, Reason.REQUEST, f"bins={asked.bins}", f"at most {MOST_BINS}")


def _demand(holds: bool, reason: Reason, asked: str, allowed: str) -> None:
    if not holds:
        raise Declined(f"Expected {asked} to be {allowed}, by the law of this silo.", reason)
