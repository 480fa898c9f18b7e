"""Replay of a durable run from its rows: no request is sent, no process started, and no row written.

    JournalIndex     the rows, and which of them the replay has used (`journal_index`)
    Sequencer        returns external results one by one, in the order of the rows (`sequencer`)
    RowEffects       external results, reconstructed from the rows (`effects`)
    Difference       a result of the replay that deviates from its row

May import runs/, work/journal and the layers below. Start with `sequencer`; `rerun.replay` puts the parts together, and
has the journal of the replayed run, which compares rows with the recorded ones.
"""
