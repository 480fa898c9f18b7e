"""Clusters: many workers that execute runs, and gateways that serve clients, around one PostgreSQL database.

    callboard worker --cluster postgresql://...     a server that executes runs from the queue of the cluster
    callboard serve --cluster postgresql://...      a server that puts its runs into that queue

The database is the only shared state (`supervisors.cluster`). `membership` connects a process to it. Start with
`worker.ClusterWorker`, which claims runs, executes them with an ordinary hub, and relays their questions, and with
`gateway.ClusterGateway`, the hub's interface to runs of workers. `logs` writes events into the database at a worker,
and reads them at a gateway; `relay` asks a worker for what only it has. `remote_children` runs parts of a run on other
workers. `bundle` sends the files of an agent. `shared_limits` shares daily limits, the usage ledger, and the rate
limits of providers. The package imports `control`.
"""
