"""Command `callboard top`: live view of a server's actors, with keys to control them.

`table` selects the visible actors and tracks the cursor, without a terminal. `terminal` draws rows and reads keys;
`app` connects both, or prints a snapshot.
"""
