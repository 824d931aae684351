"""The report of one run: a single HTML page that needs no network."""

from typing import TYPE_CHECKING

import pandas as pd
from markupsafe import Markup

from scenarios._outcome import headline, shown_metric, silo_rows
from scenarios._price import participation_reacts, spent_in_words
from scenarios.reports._page import render_page
from scenarios.reports._plots import epsilon_by_round, metric_by_round, svg

if TYPE_CHECKING:
    from scenarios._runner import RunResult

_BODY = """<h1>{{ scenario.name }}</h1>
<p class="headline">{{ headline }}</p>
{% for warning in plan.warnings %}<p class="warning">{{ warning }}</p>{% endfor %}
<h2>What was given away</h2>
<p class="guarantee">{{ guarantee.sentence() }}</p>
<h3>Assumptions</h3>
<ul>{% for line in guarantee.assumptions %}<li>{{ line }}</li>{% endfor %}</ul>
<h3>Not covered</h3>
<ul>{% for line in guarantee.not_covered %}<li>{{ line }}</li>{% endfor %}</ul>
<h2>Utility by round</h2>
<figure>{{ metric_plot }}</figure>
<h2>Privacy by round</h2>
<figure>{{ epsilon_plot }}
{% if reacts %}<figcaption>This run could end by what it saw (training.stop_at), so the guarantee prices all
{{ scenario.training.rounds }} declared rounds: epsilon {{ guarantee.epsilon|round_up(4) }}. The curve is what the
executed rounds would have cost, had their number been fixed in advance. It is no guarantee.</figcaption>{% endif %}
</figure>
<h2>Silos</h2>
<div class="scroll"><table>
<thead><tr><th>silo</th><th>public size</th><th>q</th><th>sigma</th><th>steps</th><th>epsilon</th>
<th>{{ metric }}</th></tr></thead>
<tbody>
{% for row in rows %}<tr><td>{{ row.silo }}</td><td>{{ row.size }}</td><td>{{ "%.4g"|format(row.sampling_rate) }}</td>
<td>{{ "%.4g"|format(row.noise_multiplier) }}</td><td>{{ row.steps }}</td><td>{{ row.epsilon|round_up(4) }}</td>
<td>{{ row.metric }}</td></tr>
{% endfor %}</tbody></table></div>
{% if groups %}<h2>Groups of silos</h2>
<p>What a silo of the group spent, at most.</p>
<div class="scroll"><table>
<thead><tr><th>group</th><th>silos</th><th>epsilon</th></tr></thead>
<tbody>
{% for row in groups %}<tr><td>{{ row.group }}</td><td>{{ row.silos }}</td><td>{{ row.epsilon|round_up(4) }}</td></tr>
{% endfor %}</tbody></table></div>{% endif %}
<h2>What the budget bought</h2>
<p>Sizes: {{ plan.sizes }}. The prices are each part's own, in the silo that pays most.</p>
<div class="scroll"><table>
<thead><tr><th>part</th><th>epsilon</th><th>what it bought</th></tr></thead>
<tbody>
{% for share in plan.budget %}<tr><td>{{ share.item }}</td><td>{{ share.epsilon|round_up(4) }}</td>
<td class="words">{{ share.buys }}</td></tr>
{% endfor %}</tbody></table></div>
<h2>How to reproduce</h2>
<p>Save the scenario below as <code>scenario.toml</code>, then run <code>silodp run scenario.toml</code>.
The silos were trained by the {{ engine }} engine.</p>
<pre>{{ scenario_text }}</pre>
"""


def render_report(result: "RunResult", prices: pd.DataFrame) -> str:
    """The page.

    Args:
        result: of the run.
        prices: rows with columns round, silo, epsilon.
    """
    scenario, plan, guarantee, metrics = result.scenario, result.plan, result.guarantee, result.metrics
    metric = shown_metric(metrics, scenario.data.task)
    spent = spent_in_words(scenario)
    values: dict[str, object] = {
        "engine": result.engine,
        "scenario": scenario,
        "scenario_text": scenario.to_toml(),
        "plan": plan,
        "guarantee": guarantee,
        "metric": metric,
        "headline": headline(scenario, guarantee, metrics),
        "metric_plot": Markup(svg(metric_by_round(metrics, metric), "utility", f"{metric} by round")),
        "epsilon_plot": Markup(
            svg(epsilon_by_round(prices, scenario.privacy.epsilon, spent), "privacy", "epsilon by round")
        ),
        "reacts": participation_reacts(scenario),
        "groups": plan.group_rows(guarantee.per_silo),
        "rows": silo_rows(plan, guarantee, metrics, metric),
    }
    return render_page(_BODY, title=scenario.name, values=values)
