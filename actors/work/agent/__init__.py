"""LLM agents (`config.yaml`): the loop, its prompt and history, and the families of built-in tools.

`agent` puts an agent together and plays it; `loop` is the conversation, which llm nodes use as well. `todo`, `tasks`,
`mail`, `user`, `children` with `spawn`, and `escalations` are the families. Start with `loop`, then `agent`.
"""
