"""What LLM agents (`config.yaml`) are made of: prompt, history and its shortening, the families of built-in tools.

`todo`, `tasks`, `mail`, `user`, `lookup`, `children` with `team_tools`, and `escalations` are the families. How an
agent works with them is in `engine/conversation`.
"""
