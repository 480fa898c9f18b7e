"""Batches: one target, run for many tasks, with a file of results that a second call resumes from.

    BatchTask      one task, a row of a CSV, JSON Lines or Excel file (`tasks`)
    BatchDecider   which task begins next, and when to give up; pure (`decider`)
    run_batch      the actor that drives the decider (`batch`)
    BatchJournal   the file of results, and of failures (`journal`)
    TaskRuns       the durable run of each task (`journal`)

May import runs/, engine/ and the layers below. Start with `batch`.
"""
