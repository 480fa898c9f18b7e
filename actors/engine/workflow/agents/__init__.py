"""Parts of an agent node: its model, its tools, its shared resources.

`resources` are shared by the agents of one graph while it runs. `request` converts the file's model settings to a
request. `tools` collects functions, MCP tools and skills. `nodes.agent` runs the node. Start with `tools`.
"""
