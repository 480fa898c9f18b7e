"""How the outside world reaches runs: websocket, HTTP, ACP, MCP, the page, telemetry. Transport, no rule of runs."""
