"""MCP client: servers owned by one actor each, shared by key, and stopped when idle.

files      loading of mcp.json
links/     transports: stdio, Streamable HTTP, HTTP with server-sent events
client/    protocol: handshake of both eras, calls, cancellation, questions
pool/      sharing and lifetime of servers, and the cache of their tool lists
tools/     tools of servers for models, and requests of servers to users and models
"""
