"""Callboard as an MCP server: agents and graphs are its tools, a call is a run.

    service      agents as tools, calls with their progress, questions and results, and what all clients share
    session      messages with one client, in both eras of the protocol
    serving      transport over stdin and stdout, or HTTP; `asgi` is the HTTP side without a server

Start with `session`. `serve_stdio(root, offers)` and `serve_http(root, offers, port=...)` serve the result of
`read_agents`. The package imports `runs`, `access`, `server` for its listener, and `http.streams`.
"""
