"""Federation: what every silo released, who may be in which silo, and what all of it gave away.

The rule is one: find the silos whose releases one neighbour step may change (an *exposure*), compose those releases
over all rounds as curves, and take the worst exposure. Under disjoint membership this is the max over silos of
each silo's own composition: **compose each silo over its rounds first, then take the max**. The other order is
valid and looser; `Federation.ladder` shows by how much.

Guarantees, each checked by the tests:

- The federation of one silo costs what the silo costs.
- Disjoint <= declared sets <= at most m <= unknown, for sets of at most m silos.
- Add and remove stay apart until both are composed over everything; the larger one is the answer.
- Reading changes nothing: asking twice gives the same.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, partial
from itertools import islice

from accounting._allowance import Allowance
from accounting._claims import NonPrivate
from accounting._costs import Costs
from accounting._errors import InvalidValue, Unsupported
from accounting._exposures import DEEPEST, Exposure
from accounting._guarantee import ASSUMPTIONS, Guarantee
from accounting._ladder import Rung, ladder
from accounting._law_chain import is_law_chain, voided
from accounting._ledger import Ledger
from accounting._ledger_chain import Charge
from accounting._mechanism import Mechanism
from accounting._membership import Membership
from accounting._questions import DeltaAt, EpsilonAt, PowerAt, Question
from accounting._relations import Relation, Unit
from accounting._release import Law, Release, law_of
from accounting._worst import Answer, Method, bound, worst

_FIXED_SHARDS = "Shards are fixed before round 1."
_EXECUTED = "Participation and stopping were chosen independently of data and releases; executed steps are the price."
_DECLARED = "Participation and stopping may react to releases; the declared maximum schedule is the price."
_SCHEDULE = "Noise and sampling rates were fixed in advance, not chosen from releases."
_ALLOWED = (
    "Noise and sampling rates were fixed in advance, or follow from a release by a rule whose every outcome meets the "
    "allowance that was charged."
)

RECORD = Unit()
"""The default unit: one record."""

MAX_EXPOSURES = 20_000
"""Above this many exposures an upper bound answers: the largest Renyi divergences added at each order, or the worst
curve of all silos composed."""


@dataclass(frozen=True)
class Federation:
    """The releases of all silos, under one membership, relation and unit.

    Args:
        silos: each silo's releases in any order, as mechanisms, or as `Release` where the round is known. What a
            declaration of sizes or metrics released belongs here too.
        membership: which silos one individual may be in.
        relation: how neighbouring datasets differ.
        unit: what one neighbour step changes.
        may_move: under replace-one, whether the individual may also move to other silos; sizes are private then.
        data_may_react: whether records may change in reaction to releases. The max rule fails then for delta > 0
            (Henzinger, Safavi, Vadhan, arXiv 2411.03299) and is refused.
        participation_reacts: whether stopping or taking part may react to releases. Then `silos` must hold the
            declared maximum schedule; an executed count chosen by looking at results is not a guarantee.
        heads: head hash of each silo's ledger, for the guarantee.

    Raises:
        InvalidValue: for a membership that does not fit the silos, or `may_move` without replace-one.
        Unsupported: for the max rule over data that react, or a mechanism that does not cover the unit.
    """

    silos: Mapping[str, Sequence[Mechanism | Release]]
    membership: Membership
    relation: Relation
    unit: Unit = RECORD
    _: KW_ONLY
    may_move: bool = False
    data_may_react: bool = False
    participation_reacts: bool = False
    heads: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.membership.check(list(self.silos))
        if self.may_move and self.relation is not Relation.REPLACE_ONE:
            raise InvalidValue(f"may_move needs the relation replace-one, not {self.relation}.")
        for silo, releases in self.silos.items():
            for release in releases:
                mechanism = _as_release(release).mechanism
                if not mechanism.covers(self.unit.records):
                    raise Unsupported(
                        f"Silo {silo!r} released by {mechanism.name}, which does not bound a change of "
                        f"{self.unit.records} records; the unit is a{'n' * self.unit.individual} {self.unit}."
                    )
        together = self.membership.cap(len(self.silos)) == len(self.silos)
        if self.data_may_react and (self.may_move or not together):
            raise Unsupported(
                "Where data may react to releases, the max over silos (or sets) is not a guarantee for delta > 0 "
                "(Henzinger, Safavi, Vadhan, arXiv 2411.03299). Use the membership Unknown(), which composes all "
                "silos, and may_move=False."
            )

    @classmethod
    def from_ledger(
        cls,
        ledger: Ledger | Sequence[Ledger],
        membership: Membership,
        relation: Relation,
        unit: Unit = RECORD,
        *,
        run: str | None = None,
        may_move: bool = False,
        data_may_react: bool = False,
        participation_reacts: bool = False,
    ) -> "Federation":
        """Read the silos' releases from a ledger, and keep its head hashes for the guarantee.

        Where a ledger says that noise came from a test seed, its silos have no guarantee.

        Args:
            ledger: the ledger of all silos, or one for each of them.
            membership, relation, unit, may_move, data_may_react: as in `Federation`.
            run: one run alone, for a comparison; a guarantee for everybody needs the whole ledger (None).
            participation_reacts: price the declared schedule instead of the executed one.

        Raises:
            InvalidValue: when two ledgers hold the same silo.
            LedgerError: when participation reacts and a run declared no schedule.
        """
        found: dict[str, Ledger] = {}
        heads: dict[str, str] = {}
        for each in [ledger] if isinstance(ledger, Ledger) else ledger:
            for silo in each.silos():
                if silo in heads:
                    raise InvalidValue(f"Silo {silo!r} is in two ledgers; a silo has one.")
                heads[silo] = each.head(silo)
                if not is_law_chain(each, silo):
                    found[silo] = each
        silos: dict[str, Sequence[Mechanism | Release]] = dict.fromkeys(sorted(membership.named()), ())
        if participation_reacts:
            silos |= {silo: each.declared(silo, run) for silo, each in found.items()}
        else:
            silos |= _by_round({silo: each.charges(silo, run) for silo, each in found.items()})
        void = {each.path: voided(each) for each in found.values()}
        silos |= {silo: [*silos[silo], *void[each.path]] for silo, each in found.items()}
        return cls(
            silos,
            membership,
            relation,
            unit,
            may_move=may_move,
            data_may_react=data_may_react,
            participation_reacts=participation_reacts,
            heads=heads,
        )

    def epsilon(self, delta: float, *, method: Method = "auto") -> float:
        """The epsilon of the whole transcript at one delta in [0, 1]; inf where there is none."""
        return self.worst(EpsilonAt(delta), method).value

    def delta(self, epsilon: float, *, method: Method = "auto") -> float:
        """The delta of the whole transcript at one epsilon in [0, inf]."""
        return self.worst(DeltaAt(epsilon), method).value

    def true_positive_rate(self, false_positive_rate: float, *, method: Method = "auto") -> float:
        """The trade-off curve: the largest true positive rate of any attack at a false positive rate in [0, 1]."""
        return self.worst(PowerAt(false_positive_rate), method).value

    def price(self, exposure: Exposure, *, delta: float, method: Method = "auto") -> float:
        """The epsilon of one exposure alone, for looking behind the worst."""
        return worst(self.costs, [exposure], EpsilonAt(delta), method).value

    def worst(self, question: Question, method: Method = "auto") -> Answer:
        """The worst exposure for one question, with its answer and how it was computed."""
        if not self.silos:
            return Answer(value=question.of_nothing, exposure=Exposure(), method="pld", upper_bound=False)
        exposures = self.exposures()
        if exposures is None:
            return self._bound(question, method)
        otherwise = partial(self._bound, question, method) if self._combinatorial else None
        return worst(self.costs, exposures, question, method, otherwise)

    def exposures(self) -> Sequence[Exposure] | None:
        """Every exposure that may be the worst, equal ones once; None where there are more than `MAX_EXPOSURES`."""
        found = self.membership.moves(self._groups) if self.may_move else self._sets()
        if not self._combinatorial:
            return list(found)
        cap = self.membership.cap(len(self.silos))
        if min(cap, len(self._groups)) > DEEPEST and (self.may_move or cap < len(self.silos)):
            return None
        limited = list(islice(found, MAX_EXPOSURES + 1))
        return limited if len(limited) <= MAX_EXPOSURES else None

    def _sets(self) -> Iterator[Exposure]:
        return (_fixed(each, self.relation) for each in self.membership.sets(self._groups))

    @property
    def _combinatorial(self) -> bool:
        return self.may_move or self.membership.combinatorial

    def guarantee(
        self, *, delta: float | None = None, epsilon: float | None = None, method: Method = "auto"
    ) -> Guarantee:
        """The guarantee at one delta, or at one epsilon.

        Args:
            delta: in [0, 1]; exactly one of both is given.
            epsilon: in [0, inf].
            method: ``pld``, ``rdp`` or ``auto``.
        """
        if delta is not None and epsilon is None:
            answer = self.worst(EpsilonAt(delta), method)
            epsilon = answer.value
        elif epsilon is not None and delta is None:
            answer = self.worst(DeltaAt(epsilon), method)
            delta = min(answer.value, 1.0)
        else:
            raise InvalidValue("Expected either delta or epsilon, and not both.")
        return Guarantee(
            epsilon=epsilon,
            delta=delta,
            unit=self.unit,
            relation=self.relation,
            membership=self.membership.sentence(),
            method=answer.method,
            upper_bound=answer.upper_bound,
            worst=answer.exposure.silos,
            moved=bool(answer.exposure.leaves and answer.exposure.enters),
            void="; ".join(self._reasons()) if math.isinf(epsilon) else "",
            per_silo={silo: one.value for silo, one in self.per_silo(EpsilonAt(delta), method).items()},
            assumptions=self.assumptions(),
            heads=self.heads,
        )

    def _reasons(self) -> list[str]:
        """Why releases without protection were made, each reason once."""
        mechanisms = (release.mechanism for releases in self.releases().values() for release in releases)
        reasons = (each.reason for each in mechanisms if isinstance(each, NonPrivate) and each.steps)
        return list(dict.fromkeys(reason for reason in reasons if reason))

    def per_silo(self, question: Question, method: Method = "auto") -> dict[str, Answer]:
        """The answer for an individual in one silo alone, for each silo."""
        by_law: dict[Law, Answer] = {}
        for group in self._groups:
            only = _fixed(group[:1], self.relation)
            by_law[self.costs.laws[group[0]]] = worst(self.costs, [only], question, method)
        return {
            silo: replace(by_law[law], exposure=_fixed((silo,), self.relation)) for silo, law in self.costs.laws.items()
        }

    def ladder(self, delta: float) -> list[Rung]:
        """The same releases priced by every method that applies, the best first; see `accounting._ladder`."""
        return ladder(self, delta)

    def releases(self) -> dict[str, list[Release]]:
        """Each silo's releases, with the round where it is known."""
        return {silo: list(map(_as_release, each)) for silo, each in self.silos.items()}

    def assumptions(self) -> tuple[str, ...]:
        """What must hold for this federation's numbers, besides what always must."""
        shards = "Records may change in reaction to releases." if self.data_may_react else _FIXED_SHARDS
        price = _DECLARED if self.participation_reacts else _EXECUTED
        moving = ("The unit may be in other silos before the step than after it.",) if self.may_move else ()
        mechanisms = (_as_release(release).mechanism for releases in self.silos.values() for release in releases)
        schedule = _ALLOWED if any(isinstance(mechanism, Allowance) for mechanism in mechanisms) else _SCHEDULE
        return (*ASSUMPTIONS, shards, self.membership.sentence(), *moving, price, schedule)

    def _bound(self, question: Question, method: Method) -> Answer:
        """An upper bound without looking at each exposure."""
        return bound(self.costs, self.membership.cap(len(self.silos)), question, method, moves=self.may_move)

    @cached_property
    def costs(self) -> Costs:
        """What each silo released, coalesced."""
        return Costs({silo: law_of(releases) for silo, releases in self.releases().items()}, self.relation)

    @cached_property
    def _groups(self) -> list[list[str]]:
        """Silos by equal releases, in the order in which they come."""
        groups: dict[Law, list[str]] = {}
        for silo, law in self.costs.laws.items():
            groups.setdefault(law, []).append(silo)
        return list(groups.values())


def _by_round(charges: Mapping[str, Sequence[Charge]]) -> dict[str, list[Release]]:
    """What the charges cost, with the rounds of all runs numbered in one sequence."""
    keys = sorted({(one.key.run, one.key.round) for each in charges.values() for one in each})
    rounds = {key: index for index, key in enumerate(keys)}
    return {
        silo: [Release(mechanism=one.priced(), round=rounds[one.key.run, one.key.round]) for one in each]
        for silo, each in charges.items()
    }


def _as_release(release: Mechanism | Release) -> Release:
    return release if isinstance(release, Release) else Release(mechanism=release)


def _fixed(silos: Sequence[str], relation: Relation) -> Exposure:
    """An individual who is in these silos, under a relation that does not move it."""
    return Exposure(stays=tuple(silos)) if relation is Relation.REPLACE_ONE else Exposure(leaves=tuple(silos))
