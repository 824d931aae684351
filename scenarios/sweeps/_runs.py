"""The runs of a sweep: every combination of swept values for every seed, then the baselines.

Each run is a scenario of its own, an ordinary one that `silodp run` would run, but for the baseline `majority`, which
trains nothing. What a baseline changes of the scenario:

| baseline   | changes                                                                                          |
|------------|--------------------------------------------------------------------------------------------------|
| no-privacy | epsilon is inf for every silo, without budgets; gradients are clipped as before                  |
| alone      | the strategy: no silo's model reaches another                                                    |
| pooled     | one trusted trainer holds all records, at the same epsilon, delta, relation, q and number of steps |
| majority   | no model: the most frequent class, or the mean, of all training records, exact and not private   |

No-privacy keeps the scenario's strategy. Alone and pooled run at every swept epsilon, the others once for each seed.
"""

import itertools
import json
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from scenarios._errors import ScenarioError
from scenarios.data._dataset import prepare
from scenarios.spec._explain import nearest
from scenarios.spec._load import changed
from scenarios.spec._scenario import Scenario
from scenarios.spec._sweep import Sweep, Value

EPSILON, STRATEGY = "privacy.epsilon", "training.strategy"
NO_PRIVACY, ALONE, POOLED, MAJORITY = "no-privacy", "alone", "pooled", "majority"

Values = Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class SweepRun:
    """One run of a sweep.

    Attributes:
        name: unique in the sweep; the name of its folder.
        method: its strategy as the sweep names it, or its baseline.
        epsilon: the target; inf without noise, nan where the scenario gives a noise multiplier instead.
        values: of the other swept keys, dotted.
        scenario: what is run.
    """

    name: str
    method: str
    epsilon: float
    values: Values
    scenario: Scenario


def expand(scenario: Scenario) -> list[SweepRun]:
    """The runs of the scenario's sweep, in the order of the table of results.

    Raises:
        ScenarioError: for a key that is not known or not to be swept, a value that it does not take, or a baseline
            that has no price.
    """
    sweep = scenario.sweep or Sweep()
    over = {_key(scenario, key): values for key, values in sweep.over.items()}
    if len(over) < len(sweep.over):
        raise scenario.error("sweep.over", f"names one key twice: {', '.join(sweep.over)}")
    base = scenario.model_copy(update={"sweep": None})
    found: dict[str, SweepRun] = {}
    for baseline in (None, *sweep.baselines):
        for values in _combinations(over, baseline):
            for seed in range(scenario.seed, scenario.seed + sweep.seeds):
                run = _run(base, values, baseline, seed)
                # A strategy that was swept may be a baseline too: it is the same run.
                if found.setdefault(run.name, run).scenario != run.scenario:
                    raise scenario.error("sweep.over", f"leaves two runs the name {run.name!r}")
    return list(found.values())


def text_of(value: Value) -> str:
    """A value as names and messages show it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)


def _combinations(over: Mapping[str, Sequence[Value]], baseline: str | None) -> Iterator[Values]:
    without = {None: (), ALONE: (STRATEGY,), POOLED: (STRATEGY,)}.get(baseline, (STRATEGY, EPSILON))
    kept = {key: values for key, values in over.items() if key not in without}
    for chosen in itertools.product(*kept.values()):
        yield dict(zip(kept, chosen, strict=True))


def _run(base: Scenario, values: Values, baseline: str | None, seed: int) -> SweepRun:
    scenario = changed(base, [_override(key, value) for key, value in values.items()], seed)
    if baseline is not None:
        scenario = _BASELINES[baseline](scenario)
    method = baseline or str(values.get(STRATEGY, scenario.training.strategy.name))
    private = baseline not in (NO_PRIVACY, MAJORITY)
    epsilon = scenario.privacy.epsilon if private else math.inf
    shown = [f"{key.rpartition('.')[2]}={text_of(value)}" for key, value in values.items() if key != STRATEGY]
    name = "-".join([method, *shown, f"seed={seed}"])
    return SweepRun(
        name=re.sub(r"[^\w.=+-]+", "-", name),
        method=method,
        epsilon=math.nan if epsilon is None else epsilon,
        values={key: value for key, value in values.items() if key not in (STRATEGY, EPSILON)},
        scenario=scenario,
    )


def _override(key: str, value: Value) -> str:
    if key != STRATEGY:
        return f"{key}={json.dumps(value) if isinstance(value, str | bool) else repr(value)}"
    name, *options = str(value).split(":")
    return f"{key}={{{', '.join([f'name={json.dumps(name)}', *options])}}}"


def _no_privacy(scenario: Scenario) -> Scenario:
    target = {"epsilon": math.inf, "noise_multiplier": None, "budget": None, "silos": {}, "groups": {}}
    return changed(scenario.model_copy(update={"privacy": scenario.privacy.model_copy(update=target)}))


def _alone(scenario: Scenario) -> Scenario:
    return changed(scenario, [_override(STRATEGY, ALONE)])


def _pooled(scenario: Scenario) -> Scenario:
    overrides = ["silos.pooled=true", "events={}", _override(STRATEGY, "fedavg"), "training.fine_tune_rounds=0"]
    if (batch := scenario.training.expected_batch) is not None:
        # As many records in a step as all silos together have in theirs.
        silos = scenario.silos.count or len(prepare(scenario).records)
        overrides.append(f"training.expected_batch={batch * silos!r}")
    return changed(scenario, overrides)


_BASELINES = {NO_PRIVACY: _no_privacy, ALONE: _alone, POOLED: _pooled, MAJORITY: _no_privacy}


def parse_over(texts: Iterable[str]) -> dict[str, tuple[Value, ...]]:
    """Swept keys and their values from ``KEY=VALUE,VALUE...`` each; values in TOML, a bare word is a string.

    Raises:
        ScenarioError: for anything else, or a key that is given twice.
    """
    over: dict[str, tuple[Value, ...]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not key.strip() or not all(part.strip() for part in values.split(",")):
            raise ScenarioError(f"--over {text}: must read key=value,value..., as in epsilon=0.5,1,2")
        if key.strip() in over:
            raise ScenarioError(f"--over {text}: {key.strip()} is given twice; give all of its values at once")
        over[key.strip()] = tuple(_value(part.strip()) for part in values.split(","))
    return over


def _value(text: str) -> Value:
    try:
        value: object = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, bool | int | float | str) else text


def _key(scenario: Scenario, given: str) -> str:
    """The dotted key that a swept key means."""
    known = list(_keys(Scenario, ""))
    if given == "seed":
        raise scenario.error("sweep.over.seed", "is not swept: give sweep.seeds (--seeds), how many seeds to run")
    if given in known:
        return given
    if "." in given:
        return given  # of an open table, such as privacy.groups; what is wrong with it is told when it is applied
    meant = [key for key in known if key.rpartition(".")[2] == given]
    if len(meant) == 1:
        return meant[0]
    told = f"could be {' or '.join(meant)}; give one" if meant else f"is no key;{nearest(given, known)} see silodp show"
    raise scenario.error(("sweep", "over", given), told)


def _keys(section: type[BaseModel], prefix: str) -> Iterator[str]:
    """The dotted keys of a section that hold one value each; a strategy counts as one."""
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(field.annotation, f"{prefix}{name}.")
        elif name != "sweep":
            yield prefix + name
