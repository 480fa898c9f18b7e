"""A run once more.

`fork` begins another run with the first rows of a durable one, which `steps` names; `replay` plays one by its rows.
`cassettes/` are records of runs as files, for tests.
"""
