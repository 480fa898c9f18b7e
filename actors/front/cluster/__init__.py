"""Many machines: workers that play runs, and gateways that people and programs come to, with one PostgreSQL database.

    callboard worker --cluster postgresql://...     a server whose runs come from the queue of the cluster
    callboard serve --cluster postgresql://...      a server that puts its runs into that queue

What is true stands in the database (`supervisors.cluster`). `seat` is a process's place at it. `worker` takes runs and
plays them with a hub as it is on one machine; `worker_logs` has it write their events into the database, `asking` its
questions. `gateway` is what a hub knows of runs that workers play, `gateway_logs` reads their events. `bundle` carries
the files of an agent to whoever plays it. `spending` has daily limits and what was spent kept for all of them,
`provider_limits` shares what providers allow.
"""
