"""Parts of LLM agents (`config.yaml`): prompt, history and its compaction, and the families of built-in tools.

`tool_families` has the common part of the families, and the tools that ask the user or search knowledge bases. The
other families are `todo` and `team_tools`; `team_state` is the data of a team's lead, and `children` runs the agents
that it has spawned. `engine/conversation` uses all of them to execute an agent; this package imports no decider. Names
to know: `prompt.system_prompt`, `history.History`, `history.Compaction`, `children.Children`,
`tool_families.family_tool`. Start with `tool_families`, then `children`.
"""
