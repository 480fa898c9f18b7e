"""Parts of LLM agents (`config.yaml`): prompt, history and its compaction, and the families of built-in tools.

The families are `todo`, `user_tools`, `message_tools`, `knowledge_tool`, `team_tools` (with `children`, `tasks`) and
`escalations`; `tool_families` is their common part. `engine/conversation` uses them to execute an agent; this package
imports no decider. Names to know: `prompt.system_prompt`, `history.History`, `compaction.Compaction`,
`children.Children`, `tool_families.family_tool`. Start with `tool_families`, then `children`.
"""
