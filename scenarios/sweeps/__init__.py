"""A scenario over values, seeds and baselines, in processes of their own, and one table of what came of it.

Start with `_sweep.sweep`.
"""
