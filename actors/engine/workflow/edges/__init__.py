"""Edges: `conditions` select, `processors` transform, `splits` divide messages for nodes that run per unit.

They use messages and the structs of the file, and do not depend on nodes or runs.
"""
