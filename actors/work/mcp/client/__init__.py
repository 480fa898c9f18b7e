"""MCP client for both eras of the protocol and every link."""
