"""Journal of a durable run on the actors' side: `of_run` for the run, `scope` for one actor in it.

`protocol/journal` defines the rows, and `supervisors/journal` writes them to disk. Drivers, nodes and tools get the
scope of their actor from `scope`; a run that is not durable has none.
"""
