"""What runs do: ask models, call tools and MCP servers, look things up. Knows `io`, and nothing of who decides."""
