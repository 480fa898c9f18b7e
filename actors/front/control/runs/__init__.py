"""Runs of the hub.

Start with `running.Running`: the runs under way, each a `live_run.LiveRun`, and the check of their owners. `dormant`
unloads runs that wait for users. `summary` computes summaries and outcomes, from events or from a log.
"""
