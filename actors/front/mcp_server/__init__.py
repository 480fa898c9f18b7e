"""Callboard as an MCP server: agents and graphs are its tools, a call is a run.

    offers       served agents, and their description for clients
    call         one run for a client: its progress, its questions as forms, its result
    service      shared by all clients: the offers, the active runs, their limits
    session      messages with one client, in both eras of the protocol
    serving      transport over stdin and stdout, or HTTP; `asgi` is the HTTP side without a server

Start with `session`. `serve_stdio(root, offers)` and `serve_http(root, offers, port=...)` serve the result of
`read_agents`. The package imports `runs`, `access`, `server` for its listener, and `http.streams`.
"""
