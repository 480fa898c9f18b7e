"""Control channel: clients start, watch, answer, cancel and inspect runs.

`hub` is shared by all front ends of a process: runs with their logs, questions, the actor tree. `peer` is one JSON-RPC
connection to it, `methods` is the table of methods, `websocket` carries frames that `io.outbox` collects, and `acp`
serves editors. Watching does not slow a run down: the hub receives events in memory (`runs`), and `logs` writes them
from a thread.
"""
