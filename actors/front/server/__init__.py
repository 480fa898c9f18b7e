"""The process that serves: one port for websocket and HTTP, from `READY` to the end of the last run.

`serving` is the whole life of a server; `listener` has the port and picks each connection's protocol; `front/http`
answers HTTP, `front/access` admits callers. It imports the hub of `front/control` and everything below; only the
command line imports it. Start with `serving`.
"""
