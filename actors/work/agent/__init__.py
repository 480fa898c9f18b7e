"""Parts of LLM agents (`config.yaml`): prompt, history and its compaction, and the families of built-in tools.

`todo`, `tasks`, `mail`, `user`, `lookup`, `children` with `team_tools`, and `escalations` are the families.
`engine/conversation` uses them to execute an agent.
"""
