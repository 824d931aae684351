"""What people look at: pages and pictures of runs and sweeps, statistics over seeds, comparisons, prices of many runs.

Start with `_sweep_report` (sweeps) and `_report` (a single run); `_page` and `_plots` are the style of both.
"""
