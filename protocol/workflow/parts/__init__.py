"""Readers for the parts of a graph, each from a tree with positions to structs.

- `nodes` reads nodes with their memories.
- `edges` reads edges with their conditions and processors.
- `ends` checks the ids that edges and ends refer to.
- `reading` has the shared rules: the habits of DevAll's files, and the reports of mistakes.
"""
