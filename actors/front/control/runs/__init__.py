"""The hub's runs.

`running` has those that are under way, each with its `record`; `summary` keeps count, `outcomes` reads how one has
ended, `access` says whose runs a caller may see.
"""
