"""Our own tools, with the names and parameters of Loki's: files, commands, the web.

`table` describes them to models and makes them. Files: `allowed_paths` decides what may be touched,
then `reading`, `finding`, `writing` (`diff` is its pure half). Programs: `running`, with `commands` above it. The web:
`fetching`, with `searches` above it. `workers/` are small programs that run as processes of their own and import
nothing of callboard. Start with `table`, then `allowed_paths`.
"""
