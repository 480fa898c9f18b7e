"""The files of sessions: their paths, atomic writes, locks, names, and lists of them.

All of it blocks. Only `SessionStore` (`store`) calls what changes files here. Begin with `places`.
"""
