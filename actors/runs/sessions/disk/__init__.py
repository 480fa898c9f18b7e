"""The files of sessions: where they lie, how one is written whole and locked, what they are called, and lists of them.

All of it blocks. `SessionStore` (`store`) is the door; nobody else changes anything here. Begin with `places`.
"""
