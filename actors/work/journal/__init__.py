"""Journal of a durable run on the actors' side.

`protocol/journal` defines the rows, and `supervisors/journal` writes them to disk. May import these, `actors/io`, and
`spending`, `playback` and `call_clock` of this layer.

Five names to know:

    JournaledRun     a run in this process: writes its rows, and holds its rows of earlier incarnations (`run_journal`)
    scope_of         the rows of one actor, for drivers, nodes and tools; None in a run that is not durable
                     (`actor_journal`)
    JournalPlayer    recorder and source of the messages of one decider (`actor_journal`)
    may_run          decision whether a side effect with unknown outcome is repeated (`unknown_outcome`)
    past_of          state of a run from its rows (`run_journal`)

Others: `fork_prefix` (rows that `callboard fork` copies), `pending_answers` (answers to a run that no process
executes), `directory` (files of a run that rows can't hold). Start with `run_journal`.
"""
