"""Our own tools, with the names and parameters of Loki's: files, commands, the web.

`table.builtin_tools` makes them and imports nothing heavy; `specs` describes them to models. Files: `places` decides
what may be touched, then `reading`, `finding`, `writing`, `patching` (`diff` is its pure half). Programs: `running`,
with `commands` above it. The web: `fetching`, with `web`, `searches` and `readable` above it. `workers/` are small
programs that run as processes of their own and import nothing of callboard. Start with `table`, then `places`.
"""

from .table import builtin_tools

__all__ = ["builtin_tools"]
