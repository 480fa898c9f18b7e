"""The hub's runs.

`running` has those that are under way, each a `live_run`, and says whose a caller may see; `summary` keeps count and
reads how one has ended.
"""
