"""Rows of runs on disk, so that a run can go on after `kill -9`. Bytes only: what a row means, others know.

`journal` is the way in: rows are appended without waiting, and `barrier` waits until they are on disk. A thread writes
them in groups, into the one database of this process (`store`). `reading` gets back what any process has written, and
refuses by name what is not as it was written; `claiming` takes the runs of a process that has died; `retention` removes
old ones. `sign` tells whether a process lives, `place` where no journal can be kept, `row` what is kept.
"""
