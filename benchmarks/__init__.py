"""How fast silodp is, as ratios to what one would run instead, all measured in one run on one machine.

`make bench` runs `python -m benchmarks`. Each module measures one kind of work and gives `Comparison`s; the rivals are
scripts of their own, since they need other processes or other environments.
"""
