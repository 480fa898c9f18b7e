"""Model Context Protocol: its messages, their contents, and the file that configures servers.

`model` has the messages, `config` the structs of `mcp.json` and their reader; `jsonc` parses JSON with comments and
positions, `editing` changes a file and keeps its text. The package does no I/O. It imports other modules of `protocol/`
and nothing above it. Names to know: `Server`, `McpConfig`. Start with `config`.
"""
