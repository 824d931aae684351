"""What a scenario file says: its sections and keys, how it is read, and errors that name the line at fault.

Start with `_scenario.Scenario` and `_load.load`. May import `accounting`, and of the rest of
`scenarios` its errors alone.
"""
