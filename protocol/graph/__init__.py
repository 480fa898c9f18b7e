"""The language of `graph.yaml`, schema "1.0": what a graph agent may say.

`model` holds the structs (one per node type) and describes them to editors, `read` fills them from text and reports
every problem. Pure: no I/O, no trio, no idea of how a graph runs.
"""
