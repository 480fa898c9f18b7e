"""How people drive it: the commands, what they print, the prompts they show.

No rule of the domain lives here. `main` finds the command; each command has a file of its own that is cheap
to import and brings in its work (trio, rich, ...) only when it runs. `running` is what `callboard run` does
from parsed flags to exit code; `render` holds everything that reaches a terminal.
"""
