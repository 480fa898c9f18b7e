"""The logs of runs: `$XDG_STATE_HOME/callboard/runs/<id>/`, a summary and one event a line.

`runs` is the way in. `writer` is the thread that writes, `files` where things lie, `reading` gets events back,
`elsewhere` follows a run of another process.
"""
