"""Callboard as an MCP server: agents and graphs are the tools, a call is a run.

offers       which agents are served, and how a client sees them
call         one run for a client: its progress, its questions, its result
elicitation  a question as a form for the client's user, and the form's answer
service      what all clients share: the offers, the runs under way, their bounds
session      what is said to one client, in both eras of the protocol
serving      how it gets there: over stdin and stdout, or HTTP; `asgi` is the HTTP side without a server

Start with `session`. `serve_stdio(root, offers)` and `serve_http(root, offers, port=...)` serve what `read_agents`
found.
"""
