"""Conversations with models: of LLM agents, of llm nodes, of a workflow's agent nodes.

`decider` is what a conversation decides, with `rounds` for the calls of each reply; `play` plays it in an actor and
does what it decides; `agent` is a whole agent, with its prompt, families and MCP servers; `calls` plays calls that no
model has made. Start with `decider`.
"""
