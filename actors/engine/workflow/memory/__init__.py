"""Memories of nodes: the stores of a graph's `memory`, read and written at the stages its nodes name.

Start with `memories`, which is all that nodes see. `stores` says what a store is; `simple`, `documents`, `mem0` and the
blackboard of `notebook` are the four kinds; `notebook` keeps texts and vectors in one file that several processes may
use at once, and `likeness` is how alike two texts are.
"""
