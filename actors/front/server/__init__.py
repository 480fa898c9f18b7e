"""The server process: one port for websocket and HTTP, from `READY` to the end of the last run.

`serving` contains the life cycle of a server. `listener` owns the port and selects each connection's protocol.
`front/http` answers HTTP, and `front/access` admits callers. The package imports the hub of `front/control` and
everything below; only the command line imports it. Start with `serving`.
"""
