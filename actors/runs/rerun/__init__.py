"""Fork, replay and test of recorded runs.

`fork` begins another run with the first rows of a durable one; `steps` names the rows. `replay` executes a durable
run again from its rows. `cassettes/` has recordings of runs as files, for tests.
"""
