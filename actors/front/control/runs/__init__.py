"""Runs of the hub.

`running` has the runs under way, each a `live_run`, and checks ownership. `dormant` unloads runs that wait for users.
`summary` computes summaries and outcomes.
"""
