"""What stands on the page of a report of sweeps: a template for `scenarios.reports._page`."""

BODY = """
{% for section in sections %}
<section>
<h1>{{ section.study.name }} · {{ section.study.counted() }}</h1>
<p class="headline">{{ section.words.headline }}</p>
<p>{{ section.words.meaning }}</p>
{% for line in section.selection %}<p class="warning">{{ line }}</p>
{% endfor %}
{% for line in section.words.warnings %}<p class="warning">{{ line }}</p>
{% endfor %}
{% for picture in section.pictures %}
<h2>{{ picture.title }}</h2>
<figure>{{ picture.inline() }}<figcaption>{{ picture.caption }}</figcaption></figure>
{% endfor %}

<h2>All results</h2>
<p class="small">Means over seeds, with {{ section.around }}. Gain kept: 0 is predicting the majority, 1 is no privacy,
by the same seed. Spread: standard deviation over silos. Epsilon spent: the most that any one run spent.</p>
<div class="scroll bleed"><table>
<thead><tr>{% for name in section.columns %}<th scope="col">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in section.rows %}<tr class="{{ "named" if row.named }}{{ " first" if row.first }}">
{%- for text, range in row.cells %}<td>{{ text }}{% if range %}<span class="range">{{ range }}</span>{% endif %}</td>
{%- endfor %}</tr>
{% endfor %}</tbody></table></div>
{% if section.silo_rows %}
<details><summary>Silo by silo, {{ section.silo_rows|length }} of them</summary>
<div class="scroll tall"><table>
<thead><tr>{% for name in section.silo_columns %}<th scope="col">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in section.silo_rows %}<tr>{% for text in row %}<td>{{ text }}</td>{% endfor %}</tr>
{% endfor %}</tbody></table></div></details>
{% endif %}

<h2>What was given away</h2>
{% if section.guarantee %}<h3>By one run alone, chosen in advance</h3>
<p class="guarantee">{{ section.guarantee.sentence() }}</p>
{% endif %}
{% if section.together.guarantee and section.together.runs > 1 %}
<h3>By all {{ section.together.runs }} runs of the federation</h3>
<p class="guarantee">{{ section.together.guarantee.sentence() }}</p>
{% endif %}
<p>{{ section.comparisons }}</p>
{% if section.guarantee %}
<h3>Assumptions</h3>
<ul>{% for line in section.guarantee.assumptions %}<li>{{ line }}</li>{% endfor %}</ul>
<h3>Not covered</h3>
<ul>{% for line in section.guarantee.not_covered %}<li>{{ line }}</li>{% endfor %}
<li>runs over the same data that are not in the folders of this page</li></ul>
{% endif %}

<h2>How to reproduce</h2>
{% set name, text = section.study.specification() %}
<p>Save this as <code>{{ name }}</code>, then run
<code>silodp {{ "sweep" if name == "sweep.toml" else "run" }} {{ name }}</code> and
<code>silodp report</code> on its folder. The same seeds give the same bytes.</p>
<details><summary>{{ name }}</summary><pre>{{ text }}</pre></details>
</section>
{% endfor %}
<p class="small">This page: <code>{{ command }}</code>. Beside it is each picture as PNG and SVG with its numbers
as CSV, and the table as <code>table.csv</code>.</p>
"""
