"""Front ends: access to runs from outside, by websocket, HTTP, ACP, MCP, the web page and telemetry.

The packages move bytes and frames, and contain no rule about runs. Start with `control.hub.Hub`, which all front ends
share; `server.serving` is the process around it. They import each other in one direction: `mcp_server`, `server`, then
`http`, `acp`, `chat`, then `control`, `access`, `metrics`. Everything below `front/` may be imported.
"""
