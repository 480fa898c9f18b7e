"""Runners inside of a tool's process: one script per language, without imports from this package.

Each inherits two descriptors: `CALLBOARD_CALL_FD`, a file with the call, and `CALLBOARD_ASK_FD`, the socket for
questions (see `runner_protocol`). A runner waits for the word `go` on that socket.
"""
