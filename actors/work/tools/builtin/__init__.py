"""Built-in tools, with the names and parameters of Loki's: files, commands, the web.

`table` describes them to models and creates them. Files: `allowed_paths` decides which paths are accessible, then
`reading`, `finding` and `writing` (`diff` is its pure half). Programs: `running`, and `commands` based on it. The web:
`fetching`, and `searches` based on it. `workers/` are small programs that run as separate processes and import nothing
from callboard. Start with `table`, then `allowed_paths`.
"""
