"""Memories of nodes: the stores of a graph's `memory`, read and written at the stages that its nodes name.

Start with `memories`, the only module that nodes use. `stores` is the interface of a store; `simple`, `documents`,
`mem0` and the blackboard of `notebook` are its four kinds. `notebook` stores texts and vectors in one file that
several processes can use concurrently. `similarity` measures the similarity of two texts.
"""
