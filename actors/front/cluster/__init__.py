"""Clusters: many workers that execute runs, and gateways that serve clients, around one PostgreSQL database.

    callboard worker --cluster postgresql://...     a server that executes runs from the queue of the cluster
    callboard serve --cluster postgresql://...      a server that puts its runs into that queue

The database is the only shared state (`supervisors.cluster`). `membership` connects a process to it. `worker` claims
runs and executes them with an ordinary hub; `worker_logs` writes their events into the database, and `asking` their
questions. `gateway` is the hub's interface to runs of workers, and `gateway_logs` reads their events. `placing` starts
remote children. `bundle` sends the files of an agent to workers. `spending` shares daily limits and the usage ledger,
`provider_limits` the rate limits of providers.
"""
