"""Runs of many processes in one PostgreSQL database: the queue, who plays what, rows, events, questions. Bytes only.

`tables` are the tables and their versions, `database` is a connection and what its errors mean. `store` writes what the
journal of a worker has (`journal.journal`), `queue` hands runs out and takes them back, `workers` says who lives, and
`telling` reads what anybody may want to know of runs. `spending` has what they spend, and `forks` begins one with rows
of another.

One rule holds all of it together: whoever writes anything of a run says in the same transaction that the run is his
(`owner` and `life`), and writes nothing if it is not. So a worker that was cut off, or stopped for longer than its
lease, finds that out before its next effect, because that waits for its row.
"""
