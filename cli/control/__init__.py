"""The terminal as a client of a server: what `ps`, `top`, `attach`, `answer`, `stop` and `logs` do.

`servers` finds the server that is meant, `connection` is one websocket to it, `client` keeps it up, finds a run by the
beginning of its id and is the frame around a command, `subscriptions` bring what changes. The commands are in
`commands`, `top` in a room of its own; `figures` words times and amounts.
"""
