"""What runs inside of a tool's process: one runner per language, each a script that imports nothing of ours.

They are given two descriptors: `CALLBOARD_CALL_FD`, a file with the call in it (see `call_file`), and
`CALLBOARD_ASK_FD`, the socket for questions (see `questions`), over which they are first told `go`.
"""
