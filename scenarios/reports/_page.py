"""What all reports look like: one HTML page that needs no network, light and dark, on a phone and on paper."""

from collections.abc import Mapping

import jinja2

from accounting import round_up
from scenarios.reports._plots import DARK_PALETTE, PALETTE

_BASE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{ title }} · silodp</title>
<link rel="icon" href="data:,">
<style>
:root {
  color-scheme: light dark;
  --paper: #fdfdfb; --ink: #1d2126; --faint: #5c646e; --line: #d9dcdf; --soft: #f2f3f1;
  --serif: Charter, "Bitstream Charter", "Sitka Text", Cambria, "Liberation Serif", Georgia, serif;
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", "DejaVu Sans", sans-serif;
  {% for colour in light %}--c{{ loop.index0 }}: {{ colour }}; {% endfor %}

}
@media (prefers-color-scheme: dark) { :root {
  --paper: #15181c; --ink: #e4e6e8; --faint: #9aa3ad; --line: #353b43; --soft: #1e2329;
  {% for colour in dark %}--c{{ loop.index0 }}: {{ colour }}; {% endfor %}

} }
* { box-sizing: border-box; }
body { font: 1.0625rem/1.6 var(--serif); color: var(--ink); background: var(--paper); max-width: 46rem;
  margin: 0 auto; padding: 2.5rem 1.25rem 4rem; overflow-wrap: break-word; }
h1, h2, h3, th, td, figcaption, summary, .small, svg text { font-family: var(--sans) !important; }
h1 { font-size: 1.05rem; font-weight: 600; letter-spacing: .01em; margin: 0 0 1.25rem; color: var(--faint); }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 3rem 0 .75rem; }
h3 { font-size: 1rem; margin: 2rem 0 .5rem; }
.headline { font-size: 1.5rem; line-height: 1.35; margin: 0 0 1rem; text-wrap: pretty; }
.small, figcaption { font-size: .875rem; line-height: 1.5; color: var(--faint); }
.guarantee, .warning { margin: 1rem 0; padding: .75rem 1rem; background: var(--soft); border-radius: 0 .3rem .3rem 0;
  border-left: .25rem solid var(--c0); }
.warning { border-left-color: var(--c1); }
figure { margin: 1.25rem 0 2rem; }
figcaption { margin-top: .5rem; }
figcaption strong { color: var(--ink); }
svg { display: block; width: 100%; height: auto; color: var(--ink); }
.narrow { display: none; }
@media screen and (max-width: 34rem) { .wide { display: none; } .narrow { display: block; }
  body { padding-top: 1.5rem; } .headline { font-size: 1.3rem; } }
.scroll { overflow: auto; max-width: 100%; -webkit-overflow-scrolling: touch; }
@media screen and (min-width: 78rem) { .bleed { width: 75rem; margin-left: -15.75rem; max-width: none; } }
.tall { max-height: 28rem; border: 1px solid var(--line); border-radius: .3rem; }
table { border-collapse: collapse; width: 100%; font-size: .84rem; line-height: 1.4;
  font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .35rem .55rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); }
th:first-child { z-index: 1; }
td.words { white-space: normal; min-width: 14rem; text-align: left; }
th { white-space: normal; font-weight: 600; color: var(--faint); background: var(--paper); position: sticky; top: 0;
  vertical-align: bottom; }
td .range { display: block; font-size: .75rem; color: var(--faint); }
tr.named td { background: var(--soft); font-weight: 600; } tr.named .range { font-weight: 400; }
tr.first td { border-top: 1px solid var(--faint); }
details { margin: 1rem 0; } summary { cursor: pointer; font-size: .9rem; font-weight: 600; }
pre, code { font: .82rem/1.5 ui-monospace, "DejaVu Sans Mono", "Liberation Mono", Menlo, Consolas, monospace; }
pre { overflow-x: auto; background: var(--soft); padding: .75rem 1rem; border-radius: .3rem; }
ul { padding-left: 1.2rem; } li { margin: .2rem 0; }
@media print {
  :root { --paper: #fff; --ink: #000; --faint: #444; --line: #bbb; --soft: #f4f4f4;
    {% for colour in light %}--c{{ loop.index0 }}: {{ colour }}; {% endfor %}}
  body { margin: 0; max-width: none; padding: 0; font-size: 10.5pt; }
  figure, tr, .guarantee, .warning { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .scroll { overflow: visible; max-height: none; } pre { white-space: pre-wrap; }
  table { font-size: 7pt; } th, td { white-space: normal; padding: .2rem .25rem; } td .range { font-size: 6pt; }
}
</style>
</head>
<body>
{% block body %}{% endblock %}
</body>
</html>
"""


def render_page(body: str, *, title: str, values: Mapping[str, object]) -> str:
    """A whole page.

    Args:
        body: a Jinja template of what stands between the body's tags.
        title: of the window.
        values: what the template names.
    """
    loader = jinja2.DictLoader(
        {"base": _BASE, "page": "{% extends 'base' %}{% block body %}" + body + "{% endblock %}"}
    )
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["round_up"] = round_up
    return environment.get_template("page").render(title=title, light=PALETTE, dark=DARK_PALETTE, **values)
