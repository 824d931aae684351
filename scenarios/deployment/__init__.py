"""A scenario on Flower's SuperLink and SuperNodes: folders for every party, processes, the run and its resumption.

Start with `_cli`; `docs/deploying.md` tells it from the outside.
"""
