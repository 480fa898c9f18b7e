"""Model Context Protocol: its messages, their contents, and the file that configures servers.

`model` has the messages, `config` the structs of `mcp.json`, and `read_config` fills and checks them; `jsonc` parses
JSON with comments and positions, `editing` changes a file and keeps its text, `status` describes running servers. Pure:
no I/O. Names to know: `Server` and `McpConfig`. Start with `config`.
"""
