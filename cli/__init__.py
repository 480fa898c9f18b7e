"""How people drive it: the commands, what they print, the prompts they show.

No rule of the domain lives here. `start` begins the process, `main` finds the command. The modules of the commands are
cheap to import; their work (trio, rich, ...) stands in other modules, which are imported when it is to be done.
`running` is what `callboard run` and `ask` do from parsed flags to exit code, inside of `frame`, the root with all that
hangs on it; `agent_catalog`, `tool_catalog`, `mcp_servers` and `session_files` are behind `agents`, `tools`, `mcp` and
`sessions`, the room `bases` behind `kb`, the room `control` (a client of the control channel) behind `remote` and
`runs`. `render` holds everything that reaches a terminal; start there with `narration`.
"""
