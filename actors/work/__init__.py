"""Work of runs: requests to models, tool calls, MCP servers, knowledge bases. May import `io`, but no deciders."""
