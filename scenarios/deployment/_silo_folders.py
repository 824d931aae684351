"""Folders of deployed silos, made from a scenario: each with its own shard and a law that allows just this scenario.

This is for prototypes, where one machine has all records. A real silo writes its own `silo.toml` over its own file.
"""

import math
from pathlib import Path

from accounting import epsilon, round_up
from scenarios._asked import asked_of_silos, check_deployable
from scenarios._errors import RunError
from scenarios._plan_parts import Plan, SiloPlan
from scenarios._price import terms, unit_of
from scenarios._run_key import run_key, run_name
from scenarios.data._dataset import Dataset, held_out_shard
from scenarios.spec._scenario import Scenario
from silos._files import write_atomically
from silos._folder import LEDGER
from silos._law import LAW, AllowedModel, BudgetLaw, EngineLaw, InsecureTestSeed, Item, Law, Limits, SiloData
from silos._shard_files import write_shard

SHARD, HELD_OUT_SHARD = "shard.npz", "held-out.npz"


def laws_of(
    scenario: Scenario,
    dataset: Dataset,
    plan: Plan,
    *,
    server: str = "",
    budget: float | None = None,
    insecure_test_seed: bool = False,
) -> dict[str, Law]:
    """A law for each silo, which allows what the plan asks and nothing beyond.

    Args:
        scenario, dataset, plan: of the run.
        server: who will ask, in words.
        budget: epsilon over the lifetime of each ledger; None is what one run takes, as a filter counts it.
        insecure_test_seed: let noise come from the simulation's key, for the same bytes; no guarantee is left.

    Raises:
        ScenarioError: for a scenario that a deployment does not offer.
    """
    check_deployable(scenario)
    key = run_key(scenario, dataset)
    seed = InsecureTestSeed(run=run_name(scenario, key), key=key.hex()) if insecure_test_seed else None
    fixed, unit = terms(scenario), unit_of(scenario)
    asked: tuple[Item, ...] = tuple(one.item for one in asked_of_silos(scenario))  # pyright: ignore  # the law checks
    laws = {
        part.silo: Law(
            name=part.silo,
            relation=plan.relation,
            unit="individual" if unit.individual else "record",
            records=unit.records,
            membership=fixed["membership"],
            participation=fixed["participation"],  # pyright: ignore[reportArgumentType]  # the law checks
            server=server,
            releases=("update", *asked),
            data=_data(scenario, dataset, part.size),
            models=(AllowedModel(**scenario.model.model_dump()),),
            budget=BudgetLaw(epsilon=math.inf if budget is None else budget, delta=plan.delta),
            limits=_limits(part),
            engine=EngineLaw(
                name=scenario.training.engine,
                device=scenario.training.device,
                max_physical_batch=scenario.training.max_physical_batch,
            ),
            insecure_test_seed=seed,
        )
        for part in plan.silos
    }
    if budget is not None:
        return laws
    return {part.silo: _afford(laws[part.silo], part) for part in plan.silos}


def write_silo_folder(folder: Path, law: Law, dataset: Dataset) -> None:
    """Write a silo's law and its own records.

    Args:
        folder: of the silo; made for its owner alone where there is none.
        law: one of `laws_of`.
        dataset: whose shard of the law's name is written.

    Raises:
        RunError: where the folder has a ledger: law and data stay as they are under it.
    """
    if (folder / LEDGER).exists():
        raise RunError(f"{folder}: has a ledger already; its law and data stay as they are. Choose another folder.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_shard(folder / law.data.path, dataset.shards[law.name])
    if law.data.held_out is not None:
        write_shard(folder / law.data.held_out, held_out_shard(dataset, law.name, law.held_out_chain))
    write_atomically(folder / LAW, law.to_toml().encode())


def _afford(law: Law, part: SiloPlan) -> Law:
    """The law with the least budget, to three digits, under which its filter admits every round of the plan."""
    round = part.schedule.mechanism()
    whole = round.repeated(part.steps)
    least = epsilon([whole], relation=law.relation, delta=law.budget.delta, method="rdp").epsilon
    while True:
        law = law.model_copy(update={"budget": law.budget.model_copy(update={"epsilon": float(round_up(least, 3))})})
        limit = law.filter()
        if limit.spent([whole]) <= limit.total:
            return law
        least *= 1.01


def _data(scenario: Scenario, dataset: Dataset, size: int) -> SiloData:
    return SiloData(
        path=SHARD,
        held_out=HELD_OUT_SHARD if scenario.evaluation.silo_metrics else None,
        task=dataset.task,
        classes=dataset.outputs if dataset.task == "multiclass" else None,
        size=size,
    )


def _limits(part: SiloPlan) -> Limits:
    asked = part.schedule
    return Limits(
        noise_multiplier=asked.noise_multiplier,
        clip_norm=asked.clip_norm,
        sampling_rate=asked.sampling_rate,
        steps=asked.steps,
        rounds=part.models,
        sampling="individuals" if asked.by_individual else "records",
    )
