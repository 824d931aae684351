"""What silos release beside training: the question before round 1 and after the last, the same at plan and at run time.

A plan needs the noisy counts before the run has asked for them. Since all noise of a simulation is drawn from its key,
the counts of the plan are those that the run's silos will release, and the run checks that they did.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray

from accounting import Ledger
from scenarios._asked import ALLOWANCE, Asked, asked_of_silos, held_out_chain
from scenarios._errors import RunError
from scenarios._plan_parts import Plan
from scenarios._price import terms
from scenarios._run_key import run_key
from scenarios.data._dataset import Dataset, held_out_shard
from scenarios.spec._scenario import Scenario
from server import InProcessGrid, ask_public, ask_silos
from silos import Streams, Weights
from silos._public import public_numbers

_NOTHING = np.empty((0, 1))


def foreseen(scenario: Scenario, dataset: Dataset, item: str) -> dict[str, NDArray[np.generic]]:
    """What each silo will release as an item before round 1, by silo; empty where it is not asked.

    Args:
        scenario, dataset: of the run; the dataset as it was read.
        item: ``size`` or ``moments``.
    """
    streams = Streams(run_key(scenario, dataset))
    inputs = int(np.prod(dataset.input_shape))
    return {
        name: one.statistic.released(shard, _NOTHING, streams.generator(name, 0, one.statistic.item))[item]
        for one in asked_of_silos(scenario, inputs=inputs, outputs=dataset.outputs)
        if one.item == item and one.statistic is not None
        for name, shard in dataset.shards.items()
    }


def declare(scenario: Scenario, plan: Plan, ledger: Ledger, run: str) -> None:
    """Declare everything beside training, and charge what is paid for in advance."""
    for part in plan.silos:
        for one in part.asked:
            payer = held_out_chain(scenario, part.silo) if one.apart else part.silo
            for name, value in terms(scenario).items():
                ledger.fix(payer, name, value)
            ledger.declare(payer, run, 1, one.mechanism, item=one.item)
        paid = [(one.item, one.mechanism) for one in part.asked if one.statistic is None]
        if part.allowance is not None:
            ledger.declare(part.silo, run, 1, part.allowance, item=ALLOWANCE)
            paid.append((ALLOWANCE, part.allowance))
        for item, mechanism in paid:
            ledger.charge(
                silo=part.silo, run=run, round=0, attempt=0, item=item, mechanism=mechanism, request=scenario.name
            )


def ask(
    grid: Grid,
    silos: Mapping[int, str],
    ledger: Ledger | None,
    asked: Asked,
    models: Mapping[str, Weights] | None = None,
) -> tuple[dict[str, NDArray[np.generic]], dict[str, str]]:
    """Ask every silo for one statistic; see `server.ask_silos`."""
    if asked.statistic is None:
        return {}, {}
    return ask_silos(
        grid=grid,
        silos=silos,
        statistics=dict.fromkeys(silos.values(), asked.statistic),
        round=asked.round,
        models=models,
        ledger=ledger,
    )


def ask_before(
    scenario: Scenario, dataset: Dataset, grid: InProcessGrid, silos: Mapping[int, str], ledger: Ledger
) -> None:
    """Ask what the plan was made from, and see that it was.

    Raises:
        RunError: for a silo that does not answer, or answers otherwise.
    """
    for one in _asked(scenario, dataset, 0):
        answers, failures = ask(grid, silos, ledger, one)
        expected = foreseen(scenario, dataset, one.item)
        for silo in silos.values():
            if silo in failures or not np.array_equal(answers[silo], expected[silo]):
                reason = failures.get(silo, "the answer is not what the plan was made from")
                raise RunError(f"Silo {silo!r} did not release its {one.item!r}: {reason}.")
    expected = declared_public(scenario, dataset)
    for silo, numbers in ask_public(grid=grid, silos=silos, names=sorted(set(scenario.silos.public))).items():
        if numbers != expected[silo]:
            raise RunError(f"Silo {silo!r} gave other public numbers than the plan was made from.")


def declared_public(scenario: Scenario, dataset: Dataset) -> dict[str, dict[str, int]]:
    """The numbers that the scenario declares public, by silo and name."""
    if not scenario.silos.public:
        return {}
    found = {
        name: public_numbers(shard, held_out_shard(dataset, name, held_out_chain(scenario, name)))
        for name, shard in dataset.shards.items()
    }
    return {
        silo: {name: numbers[name] for name in sorted(set(scenario.silos.public))} for silo, numbers in found.items()
    }


def ask_after(
    scenario: Scenario,
    outputs: int,
    grid: Grid,
    silos: Mapping[int, str],
    models: Mapping[str, Weights],
    ledger: Ledger | None = None,
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """What each silo says of its last model, by silo and item; a silo that does not answer is left out.

    Args:
        scenario: what to ask.
        outputs: of the model.
        grid, silos, ledger: as for `server.ask_silos`.
        models: each silo's last.
    """
    found: dict[str, dict[str, NDArray[np.float64]]] = {}
    for one in asked_of_silos(scenario, outputs=outputs):
        if one.round != scenario.training.rounds:
            continue
        answers, _ = ask(grid, silos, ledger, one, models)
        for silo, sums in answers.items():
            found.setdefault(silo, {})[one.item] = sums.astype(np.float64)
    return found


def _asked(scenario: Scenario, dataset: Dataset, round: int) -> Iterator[Asked]:
    inputs = int(np.prod(dataset.input_shape))
    for one in asked_of_silos(scenario, inputs=inputs, outputs=dataset.outputs):
        if one.round == round and one.statistic is not None:
            yield one
