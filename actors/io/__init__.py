"""What reaches the outside world and knows nothing of agents: HTTP, files, lines for slow readers.

The lowest floor of `actors`; start with `http/transport`.
"""
