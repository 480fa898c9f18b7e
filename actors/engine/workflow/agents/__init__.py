"""The parts of an agent node: its model, its tools, its reflection.

`resources` is what the agents of one graph share while it runs; `request` turns what the file says about a model into
a request, `tooling` and `skills` find the tools. The node itself is `nodes.agent`.
"""
