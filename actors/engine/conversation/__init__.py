"""Conversations with models: of LLM agents, of llm nodes, of a workflow's agent nodes.

Start with `decider`, which decides each turn; `rounds` handles the tool calls of one reply. `agent` runs a whole
agent with its prompt, built-in tools and MCP servers. `calls` runs tool calls without a model. `Conversation`
executes the decider in an actor.
"""
