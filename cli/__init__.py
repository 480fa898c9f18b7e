"""How people drive it: the commands, what they print, the prompts they show.

No rule of the domain lives here. `start` begins the process, `main` finds the command; each command has a file of its
own that is cheap to import and brings in its work (trio, rich, ...) only when it runs. `running` is what `callboard
run` and `ask` do from parsed flags to exit code, inside of `frame`, the root with everything that hangs on it;
`casting` and `making` are behind `agents`, `shelf` and `calling` (above `toolbox`) behind `tools`, the room `bases`
behind `kb`, the room `control` (a client of the control channel) behind `ps`, `top`, `attach`, `answer`, `stop`,
`logs` and `runs`. `render` holds everything that reaches a terminal; start there with `narration`.
"""
