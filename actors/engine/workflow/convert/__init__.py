"""Conversion of a workflow to a graph agent.

`reasons` lists the obstacles, `convert` writes the files. `replay` is the part of these files that passes messages
on; it imports only the standard library, because it is copied next to the graph.
"""
