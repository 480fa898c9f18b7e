"""Conversations with models: of LLM agents, of llm nodes, of a workflow's agent nodes.

    ConversationDecider   decides each turn; `Rounds` selects the tool calls of one reply (`decider`)
    Conversation          executes the decider in an actor and calls the model (`run`)
    CallRounds            executes tool calls without a model (`run`)
    Team                  child agents, tasks, and questions of children (`team`)
    run_agent             a whole agent: prompt, built-in tools, MCP servers (`agent`)

Llm nodes and workflows use `run` without `agent`. May import `driver`, but neither graph/ nor workflow/. Start with
`decider`.
"""
