"""Selection is not free: what all runs that were looked at cost together, and how the report says so."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from accounting import Guarantee, InvalidValue, round_up
from scenarios.reports._findings import Headline
from scenarios.reports._study import Study
from scenarios.reports._together import RunLedger, price_together, read_run_ledger
from scenarios.reports._words import number
from scenarios.sweeps._runs import ALONE


@dataclass(frozen=True, kw_only=True)
class Together:
    """What all runs over a study's data cost together.

    Attributes:
        runs: of the federation, finished or not.
        guarantee: of them; None where there is no common price.
        alone: how many runs of silos alone there are beside them.
        with_alone: the guarantee if all of these were published too.
        missing: why there is none.
        elsewhere: runs of other studies of the page among them.
    """

    runs: int
    guarantee: Guarantee | None = None
    alone: int = 0
    with_alone: Guarantee | None = None
    missing: str = ""
    elsewhere: int = 0

    def guarantees(self) -> dict[str, Guarantee]:
        """The guarantees of many runs, by what they are of."""
        found: dict[str, Guarantee] = {}
        if self.guarantee is not None and self.runs > 1:
            found[f"all {self.runs} runs"] = self.guarantee
        if self.with_alone is not None:
            found[f"with {self.alone} of silos alone"] = self.with_alone
        return found


def prices_of(studies: Sequence[Study]) -> list[Together]:
    """What the runs of each study, and of the page's others over the same data, cost together."""
    federated = [_ledgers(study, alone=False) for study in studies]
    alone = [_ledgers(study, alone=True) for study in studies]
    known: dict[frozenset[str], Together] = {}
    found = []
    for own in federated:
        data = frozenset(run.data for run in own)
        if data not in known:
            mine, theirs = ([run for each in runs for run in each if run.data in data] for runs in (federated, alone))
            known[data] = _price(mine, theirs)
        whole = known[data]
        found.append(replace(whole, elsewhere=whole.runs - len(own)) if whole.runs else whole)
    return found


def _ledgers(study: Study, *, alone: bool) -> list[RunLedger]:
    """What the study's private runs of the federation, or of silos alone, released."""
    finite = study.runs["epsilon"] != float("inf")
    own = study.runs[finite & (study.runs["method"] == ALONE)] if alone else study.contenders
    folders = [study.path(run) for run in own["run"]] + ([] if alone else study.unfinished)
    return [found for folder in folders if (found := read_run_ledger(folder)) is not None]


def _price(federated: Sequence[RunLedger], alone: Sequence[RunLedger]) -> Together:
    if not federated:
        return Together(runs=0)
    try:
        return Together(
            runs=len(federated),
            guarantee=price_together(federated),
            alone=len(alone),
            with_alone=price_together([*federated, *alone]) if alone else None,
        )
    except InvalidValue as error:
        return Together(runs=len(federated), missing=str(error))


def selection_words(headline: Headline, together: Together) -> list[str]:
    """That selection is not free: what was picked from what, and what all of it cost."""
    if not together.runs:
        return []
    picked = (
        f"{headline.best.label} is named because it was the best of {headline.candidates} methods at this epsilon. "
        if headline.candidates > 1
        else ""
    )
    if together.runs == 1:
        return [
            "The server saw one run: its guarantee is the whole price, where no other run over these data was made."
        ]
    runs = f"all {together.runs} private runs of the federation"
    if together.elsewhere:
        runs += f", {together.elsewhere} of them in other parts of this page"
    if together.guarantee is None:
        return [f"{picked}Selection is not free: the server saw {runs}. {together.missing}"]
    said = [
        f"{picked}Selection is not free: the server saw {runs}, and an individual may be in each. Together they cost "
        f"epsilon {round_up(together.guarantee.epsilon, 3)} at delta {round_up(together.guarantee.delta, 3)}, the "
        "price of what the server saw, if this list of runs was fixed in advance. Epsilon "
        f"{number(headline.epsilon)} is the price of one run that was chosen in advance and is the only one."
    ]
    if together.with_alone is not None:
        said.append(
            f"A silo that trains alone need show its model to nobody, so that the {together.alone} runs of silos alone "
            f"are not in that number. If their models are shown as well, all together cost epsilon "
            f"{round_up(together.with_alone.epsilon, 3)}."
        )
    return said
