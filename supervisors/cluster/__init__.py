"""Cluster store: durable runs of many processes in one PostgreSQL database.

This package stores bytes; `actors/front/cluster` gives them a meaning. It imports `protocol/kernel` and `journal.row`.

Five names to know:

    ClusterStore     writes the journal of a worker (`store`), in place of `journal.store.SqliteStore`
    submit, take     put a run into the queue, and take runs that this worker has room for (`queue`)
    register, renew  the worker's row and its lease (`workers`)
    Database         a connection that reopens itself after an error (`database`)
    migrate          creates or updates the tables (`tables`, which describes each of them)

`queries` reads run status, events and questions; `spending` holds the ledger of daily limits and the usage book;
`forks` submits a run that begins with rows of another one. Start with `tables`, then `store`.

Invariant: a worker that writes anything of a run checks in the same transaction that it owns the run (`owner` and
`life`), and writes nothing if it does not. So a worker that was disconnected, or stopped for longer than its lease,
learns of it before its next effect, because the effect waits for its row.
"""
