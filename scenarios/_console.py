"""What the command line prints: live progress and tables, with rich."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.syntax import Syntax
from rich.table import Table

from accounting import Rung, round_up
from scenarios._groups import GroupRow
from scenarios._lifetime import Lifetime
from scenarios._outcome import headline, shown_metric, silo_rows
from scenarios._plan_parts import Plan
from scenarios.spec._scenario import Scenario

if TYPE_CHECKING:
    from scenarios._runner import RunResult
    from scenarios._simulation import Progress

_console = Console()
_PLAIN_LINES = 10
_REFRESH = 0.25
"""Seconds between two updates of the live bar; pricing each round of a fast run would slow it down."""


@contextmanager
def watch(scenario: Scenario) -> Iterator[Callable[["Progress"], None]]:
    """A callback that shows the run's progress: a live bar on a terminal, else about ten plain lines."""
    if not sys.stderr.isatty():
        yield _plain(time.monotonic())
        return
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True)) as bar:
        yield _live(bar, bar.add_task(scenario.name, total=scenario.training.rounds, state="preparing"))


def _live(bar: Bar, task: TaskID) -> Callable[["Progress"], None]:
    shown = -math.inf

    def show(now: "Progress") -> None:
        nonlocal shown
        if now.round == now.rounds or time.monotonic() - shown >= _REFRESH:
            shown = time.monotonic()
            bar.update(task, completed=now.round, state=_state(now))

    return show


def _plain(began: float) -> Callable[["Progress"], None]:
    def show(now: "Progress") -> None:
        if now.silo is None and now.round % max(1, now.rounds // _PLAIN_LINES) == 0:
            left = (time.monotonic() - began) / max(1, now.round) * (now.rounds - now.round)
            print(f"round {now.round}/{now.rounds}  {_state(now)}  {left:.0f} s left", file=sys.stderr, flush=True)

    return show


def _state(now: "Progress") -> str:
    silo = f"silo {now.silo}  " if now.silo else ""
    failed = f"  {now.failures} failed" if now.failures else ""
    return f"{silo}{now.spent} {now.epsilon:.3f}  {now.metric} {now.value:.4f}{failed}"


def print_result(result: "RunResult") -> None:
    """The table of silos, the guarantee and where the files are."""
    _print_warnings(result.plan)
    metric = shown_metric(result.metrics, result.scenario.data.task)
    table = _table("silo", "size", "q", "sigma", "steps", "epsilon", metric)
    for row in silo_rows(result.plan, result.guarantee, result.metrics, metric):
        table.add_row(
            row.silo,
            str(row.size),
            f"{row.sampling_rate:.4g}",
            f"{row.noise_multiplier:.4g}",
            str(row.steps),
            round_up(row.epsilon, 4),
            row.metric,
        )
    _console.print(table)
    print_groups(result.plan.group_rows(result.guarantee.per_silo))
    _console.print(headline(result.scenario, result.guarantee, result.metrics), style="bold")
    _console.print(result.guarantee.sentence())
    if len(result.plan.budget) > 1:
        _print_budget(result.plan)
    _console.print(f"Written to {result.folder}: {', '.join(sorted(each.name for each in result.folder.iterdir()))}")


def print_groups(rows: Sequence[GroupRow]) -> None:
    """What each group's silos spend, a line a group; nothing where there are none."""
    if not rows:
        return
    table = _table("group", "silos", "epsilon of a silo, at most")
    for row in rows:
        table.add_row(row.group, str(row.silos), round_up(row.epsilon, 4))
    _console.print(table)


def print_scenarios(scenarios: Sequence[Scenario]) -> None:
    """One line a scenario."""
    table = Table("name", "task", "what it is", box=None, header_style="bold")
    for scenario in scenarios:
        table.add_row(scenario.name, scenario.data.task, scenario.description)
    _console.print(table)


def print_shown(scenario: Scenario, plan: Plan) -> None:
    """The scenario and its plan, coloured on a terminal; elsewhere TOML to be read back, with the plan as comments."""
    text = scenario.to_toml()
    if _console.is_terminal:
        _console.print(Syntax(text, "toml", background_color="default"))
        print_plan(plan)
        return
    with _console.capture() as captured:
        print_plan(plan)
    print(text)
    for line in captured.get().splitlines():
        print(f"# {line}".rstrip())


def print_plan(plan: Plan) -> None:
    """The plan, a line a silo."""
    table = _table("silo", "size", "q", "divisor", "sigma", "steps", "weight", f"epsilon at delta {plan.delta:g}")
    for part in plan.silos:
        schedule = part.schedule
        table.add_row(
            part.silo,
            str(part.size),
            f"{schedule.sampling_rate:.4g}",
            f"{schedule.expected_batch:.4g}",
            f"{schedule.noise_multiplier:.4g}",
            str(part.steps),
            f"{schedule.weight:.4f}",
            round_up(part.price.epsilon, 4),
        )
    _console.print(table)
    print_groups(plan.group_rows())
    if plan.epsilon > plan.worst.price.epsilon:
        _console.print(f"In the worst set of silos that one unit may be in: epsilon = {round_up(plan.epsilon, 4)}.")
    _console.print(f"Sizes: {plan.sizes}.")
    _print_budget(plan)
    _print_warnings(plan)


def print_ladder(rungs: Sequence[Rung]) -> None:
    """The methods side by side, the best first."""
    table = Table("method", "epsilon", "what it composes", "delta", box=None, header_style="bold")
    for rung in rungs:
        table.add_row(rung.method, round_up(rung.epsilon, 4), rung.description, rung.split)
    _console.print(table)


def print_account(answer: Mapping[str, object]) -> None:
    """The answer to `silodp account`: the sentence, the silos, the methods."""
    _console.print(str(answer["sentence"]), highlight=False)
    table = _table("silo", "epsilon")
    for silo, value in cast(Mapping[str, float | str], answer["per_silo"]).items():
        table.add_row(silo, round_up(float(value), 4))
    _console.print(table)
    rungs = cast(Sequence[Mapping[str, str]], answer["ladder"])
    print_ladder([Rung(**{**rung, "epsilon": float(rung["epsilon"])}) for rung in rungs])
    for lifetime in cast(Sequence[Lifetime], answer.get("lifetimes", ())):
        _print_lifetime(lifetime)


def _print_lifetime(lifetime: Lifetime) -> None:
    table = _table("run", "charged", "released", "epsilon alone")
    table.columns[0].no_wrap = True  # a name that is cut short names no run
    table.add_column("asked by", overflow="fold")
    for run in lifetime["runs"]:
        counts = (", ".join(f"{count} {item}" for item, count in run[key].items()) for key in ("charged", "released"))
        by = "\n".join(f"{name} {value}" for name, value in run["by"].items() if value)
        table.add_row(run["run"], *counts, round_up(float(run["epsilon"]), 4), by)
    _console.print(
        f"Silo {lifetime['silo']} has used {math.ceil(1000 * lifetime['used']) / 10:g}% of its budget of epsilon = "
        f"{float(lifetime['epsilon']):g}, delta = {lifetime['delta']:g}. {lifetime['sentence']}",
        highlight=False,
    )
    _console.print(table)


def print_overlap(answer: Mapping[str, object]) -> None:
    """Who is where, in numbers, and whether the declared membership holds."""
    table = _table("silos", "individuals")
    for row in cast(Sequence[Mapping[str, object]], answer["sets"]):
        table.add_row(", ".join(cast(Sequence[str], row["silos"])), str(row["individuals"]))
    _console.print(table)
    for violation in cast(Sequence[str], answer["violations"]):
        _console.print(f"Violation: {violation}", style="red", highlight=False)
    if not answer["violations"]:
        _console.print(f"The declared membership {answer['membership']!r} holds.")
    _console.print("These counts are private: keep them where you ran this.")


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    return table


def _print_budget(plan: Plan) -> None:
    """What the budget of the silo that pays most is spent on."""
    table = Table("part", "epsilon", "what it buys", box=None, header_style="bold")
    for share in plan.budget:
        table.add_row(share.item, round_up(share.epsilon, 4), share.buys)
    _console.print(table)


def _print_warnings(plan: Plan) -> None:
    for warning in plan.warnings:
        _console.print(f"Warning: {warning}", style="yellow")
