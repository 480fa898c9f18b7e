"""Language of `graph.yaml`, schema "1.0": the contents of a graph agent.

`model` has the structs (one per node type) and describes them to editors. `read` fills them from text and reports
every problem. Pure: no I/O, no trio, no knowledge of execution.
"""
