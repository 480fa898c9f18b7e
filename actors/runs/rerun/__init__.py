"""Repetition of recorded runs: forks, replays, cassettes, and cases.

    Fork, ForkChanges   another run that begins with the first rows of a durable one, with changes (`fork`)
    steps               names for the rows of a run, as lists and forks show them (`run_steps`)
    replay              a durable run executed again from its rows (`replay`; its parts are `replaying/`)
    playback_of         recording of a run into a file, or its replay from one (`cassettes/`)
    run_cases           test cases of an agent, compared with their expectations (`cases`)

May import runs/, engine/, work/ and the layers below; only `runs.run` imports it, for cassettes. Start with `fork`.
"""
