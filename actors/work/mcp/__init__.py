"""MCP client: servers owned by one actor each, shared by key, and stopped when idle.

    files      loading of mcp.json
    auth/      OAuth sign-in to servers over HTTP
    links/     transports: stdio, Streamable HTTP, HTTP with server-sent events
    client/    protocol: handshake of both eras, calls, cancellation, questions
    pool/      sharing and lifetime of servers, and the cache of their tool lists
    tools/     tools of servers for models, and requests of servers to users and models
    throttle   rate limit for what untrusted servers cause, used by `pool` and `tools`

May import `protocol`, `supervisors`, `actors/io`, and `sandbox`, `tools`, `journal`, `playback` of this layer. Lower
folders of the list import only those above them.

Five names to know:

    McpServers     all servers of a process (`pool/servers`)
    ServerScope    leases of one agent, and its calls (`pool/servers`)
    McpClient      requests to one server, over any link (`client/client`)
    Link           interface of the transports (`links/link`)
    ServerView     a server as one conversation may use it (`tools/view`)

Start with `ServerView.call`, then `ServerScope.call` and `McpClient.call_tool`.
"""
