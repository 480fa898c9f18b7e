"""Access to the outside world, independent of agents: HTTP, files, output to slow readers.

The lowest layer of `actors`; start with `http/transport`.
"""
