"""What is kept of a durable run while it is played, and what it goes on from: `of_run` the run, `scope` a part of it.

Rows are in `protocol/journal`, how they get to the disk in `supervisors/journal`. Drivers, nodes and tools ask for the
`scope` that they are in; a run that is not durable has none.
"""
