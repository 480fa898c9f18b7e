"""Built-in tools, with the names and parameters of Loki's: files, commands, the web.

`table` describes them to models and creates them. Files: `allowed_paths` decides which paths are accessible, then
`reading` and `writing`; `text_edits` is the pure half of patches and edits. Programs: `commands`. The web: `web`.
`workers/` are small programs that run as separate processes and import nothing from callboard. Start with `table`, then
`allowed_paths`.
"""
