"""The control channel: people and programs outside start, watch, question, answer and stop runs.

`hub` is what all front ends of a process share, however it is reached: runs with their logs, questions, the tree.
`peer` is one JSON-RPC connection on it, `methods` says what may be called, `websocket` carries frames, which
`io.outbox` gathers, `acp` speaks to editors. Watching does not slow a run down: the hub hears its events in memory
(`runs`), and `logs` writes them from a thread.
"""
