"""Control channel: clients start, watch, answer, cancel and inspect runs.

Start with `hub.Hub`, which all front ends of a process share; `methods.open_hub` constructs it. `peer.ControlPeer` is
one JSON-RPC connection to it, `methods.METHODS` the table of its methods, and `websocket` carries the frames.
`subscriptions.Subscription` follows the events of a run. `runs/` has the runs under way and `logs/` their logs: the hub
receives events in memory, and a thread writes them, so watching does not slow a run down. `sessions.HubSessions` runs
turns of sessions, `resuming.Resuming` continues runs of killed processes. `durable_runs` has steps, rows and forks,
`run_records` model calls and file changes. The package imports `access` and the layers below `front/`.
"""
