"""Reads the parts of a graph, each from a positioned tree to structs.

`nodes` with their memories, `edges` with their conditions and what they carry; `ends`: what names refer to.
`reading` is what they share: the habits of DevAll's files, and how mistakes are reported.
"""
