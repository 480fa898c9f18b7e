"""MCP servers: each owned by one actor, shared by key, reaped when idle, never left behind.

files      which servers there are: mcp.json
links/     how messages reach one and come back
client/    what is said over a link: both eras, calls, cancellation, questions
pool/      who shares which, for how long, and what is known of those that don't run
tools/     what models see of it
"""
