"""Journals of durable runs: rows on disk, so that a run can be resumed after `kill -9`.

This package stores bytes; `actors/work/journal` gives them a meaning. It imports `protocol/kernel` only.

Five names to know:

    Journal, RunJournal   append rows without waiting, and wait for the disk with `barrier` (`journal`)
    SqliteStore           the SQLite database of one process (`store`)
    LivenessLock          proves that a process is alive (`liveness_lock`)
    claim                 takes over the runs of a dead process (`claiming`)
    read_run, kept_runs   read the runs of all processes; damage raises `Damaged` (`reading`)

`row` defines rows, blocks and checksums; `retention` removes old runs. Start with `journal`, then `store`.
"""
