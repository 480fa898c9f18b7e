"""Files of sessions: `layout` has their paths, `files` writes and locks them, `catalog` finds them by id and name, and
`stored` lists them. Imported by `sessions.store` only.
"""
