"""The parts of an agent node: its model, its tools, its reflection.

`company` is what the agents of one graph share while it runs; `providers` and `asking` turn what the file says about a
model into a request, `tooling` and `skills` find the tools, `thinking` has the model look at its answer once more. The
node itself is `nodes.agent`.
"""
