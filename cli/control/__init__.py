"""The terminal as a client of a server: what `ps`, `top`, `attach`, `answer`, `stop` and `logs` do.

`servers` finds the server that is meant, `connection` is one websocket to it, `client` keeps it
up, `subscriptions` are what it can be told about. `frame` plays a command inside of that; the commands are in
`commands`, `top` in a room of its own, and what both show is in `figures` and `told`.
"""
