"""Logs of runs: `$XDG_STATE_HOME/callboard/runs/<id>/` has a summary, and a file with one event per line.

Start with `run_logs.RunLogs`, the index of all logs. `writer` is the thread that writes; `files` defines the layout on
disk and reads events back. `run_logs.RemoteLog` follows a run of another process, and `model_calls` reads recorded
requests and replies. Only `control` and `cluster` write logs.
"""
