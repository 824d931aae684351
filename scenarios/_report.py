"""The report of one run: a single HTML page that needs no network."""

from typing import TYPE_CHECKING

import jinja2
import pandas as pd
from markupsafe import Markup

from accounting import round_up
from scenarios._outcome import headline, shown_metric, silo_rows
from scenarios._plots import epsilon_by_round, metric_by_round, svg

if TYPE_CHECKING:
    from scenarios._runner import RunResult

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ scenario.name }} · silodp</title>
<style>
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.headline { font-size: 1.15rem; }
.guarantee { border-left: 4px solid #3b82f6; padding: .5rem 1rem; background: var(--soft); }
.warning { border-left: 4px solid #f59e0b; padding: .5rem 1rem; background: var(--soft); }
svg { width: 100%; height: auto; } .scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
pre { overflow-x: auto; background: var(--soft); padding: .75rem; font-size: .85rem; }
@media print { body { margin: 0; max-width: none; } }
</style>
</head>
<body>
<h1>{{ scenario.name }}</h1>
<p class="headline">{{ headline }}</p>
{% for warning in plan.warnings %}<p class="warning">{{ warning }}</p>{% endfor %}
<h2>What was given away</h2>
<p class="guarantee">{{ guarantee.sentence() }}</p>
<h3>Assumptions</h3>
<ul>{% for line in guarantee.assumptions %}<li>{{ line }}</li>{% endfor %}</ul>
<h3>Not covered</h3>
<ul>{% for line in guarantee.not_covered %}<li>{{ line }}</li>{% endfor %}</ul>
<h2>Utility by round</h2>
{{ metric_plot }}
<h2>Privacy by round</h2>
{{ epsilon_plot }}
<h2>Silos</h2>
<div class="scroll"><table>
<thead><tr><th>silo</th><th>public size</th><th>q</th><th>sigma</th><th>steps</th><th>epsilon</th>
<th>{{ metric }}</th></tr></thead>
<tbody>
{% for row in rows %}<tr><td>{{ row.silo }}</td><td>{{ row.size }}</td><td>{{ "%.4g"|format(row.sampling_rate) }}</td>
<td>{{ "%.4g"|format(row.noise_multiplier) }}</td><td>{{ row.steps }}</td><td>{{ row.epsilon|round_up(4) }}</td>
<td>{{ row.metric }}</td></tr>
{% endfor %}</tbody></table></div>
<h2>What the budget bought</h2>
<p>Sizes: {{ plan.sizes }}. The prices are each part's own, in the silo that pays most.</p>
<div class="scroll"><table>
<thead><tr><th>part</th><th>epsilon</th><th>what it bought</th></tr></thead>
<tbody>
{% for share in plan.budget %}<tr><td>{{ share.item }}</td><td>{{ share.epsilon|round_up(4) }}</td>
<td>{{ share.buys }}</td></tr>
{% endfor %}</tbody></table></div>
<h2>How to reproduce</h2>
<p>Save the scenario below as <code>scenario.toml</code>, then run <code>silodp run scenario.toml</code>.
The silos were trained by the {{ engine }} engine.</p>
<pre>{{ scenario_text }}</pre>
</body>
</html>
"""


def render_report(result: "RunResult", prices: pd.DataFrame) -> str:
    """The page.

    Args:
        result: of the run.
        prices: rows with columns round, silo, epsilon.
    """
    scenario, plan, guarantee, metrics = result.scenario, result.plan, result.guarantee, result.metrics
    metric = shown_metric(metrics, scenario.data.task)
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["round_up"] = round_up
    return environment.from_string(_PAGE).render(
        engine=result.engine,
        scenario=scenario,
        scenario_text=scenario.to_toml(),
        plan=plan,
        guarantee=guarantee,
        metric=metric,
        headline=headline(scenario, guarantee, metrics),
        metric_plot=Markup(svg(metric_by_round(metrics, metric))),
        epsilon_plot=Markup(svg(epsilon_by_round(prices, scenario.privacy.epsilon))),
        rows=silo_rows(plan, guarantee, metrics, metric),
    )
