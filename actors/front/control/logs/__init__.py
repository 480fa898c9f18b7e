"""Logs of runs: `$XDG_STATE_HOME/callboard/runs/<id>/` has a summary, and a file with one event per line.

`runs` has the entry point `RunLogs`. `writer` is the thread that writes, and `files` defines the layout on disk.
`reading` reads events back, `remote_log` follows a run of another process, and `calls` reads recorded model calls.
"""
