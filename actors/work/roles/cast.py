"""An agent and a conversation as a role wants them.

The role fills in what the agent leaves open: what is given for a run (`--tool`, the temperature of a session, the
system prompt that a session of Loki's keeps) goes before the role's file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ....protocol.agent import Agent
from ....protocol.chat import AssistantTurn, Turn, UserTurn
from ....protocol.errors import UsageError
from ....protocol.role import INPUT, Role, names_of
from ..agent.prompt import filled_in

MOST_EMBEDDED = 10_000_000
"""Characters of an embedded prompt with what the user says in all its places. The product of two texts is bounded by
neither of their own limits."""

_SAMPLING = ("temperature", "top_p")
_THINKING = ("reasoning_effort", "thinking_budget")
_SKILLS = ("skills_enabled", "inject_skill_instructions", "skill_instructions")
_GOING_ON = ("auto_continue", "max_auto_continues", "inject_todo_instructions", "continuation_prompt")


def cast(agent: Agent, role: Role, *, model: str | None, own_tools: bool, settings: Mapping[str, Any]) -> Agent:
    """The agent in this role.

    Args:
        model: what was chosen for the run; it goes before the role's.
        own_tools: whether the agent's tools and servers were chosen for this run, so that the role's don't count.
        settings: what the user's settings say of going on by itself, where the role says nothing.
    """
    changes: dict[str, Any] = {}
    if not agent.instructions:
        changes["instructions"] = role.system
    if role.model and not model and agent.model is None:
        changes["model"] = role.model
    for key in _SAMPLING:
        if getattr(agent, key) is None:
            changes[key] = getattr(role, key)
    if agent.reasoning_effort is None and agent.thinking_budget is None:
        changes |= {key: getattr(role, key) for key in _THINKING}
    for key in _GOING_ON:
        own, said = getattr(agent, key), getattr(role, key)
        said = said if said is not None else settings.get(key)
        if said is not None and own == _DEFAULTS[key]:
            changes[key] = said
    for key in _SKILLS:
        if getattr(agent, key) is None:
            changes[key] = getattr(role, key)
    changes["workspace_instructions"] = False  # a role is all that is said
    if changes.get("skills_enabled") is None:
        changes["skills_enabled"] = role.enabled_skills is not None
    if agent.enabled_skills is None and role.enabled_skills is not None:
        changes["enabled_skills"] = names_of(role.enabled_skills)
    if not own_tools:
        if role.tools is not None:
            changes["global_tools"] = role.tools
        if role.servers is not None:
            changes["mcp_servers"] = role.servers
    return msgspec.structs.replace(agent, **changes)


def said(role: Role, prompt: str, environ: Mapping[str, str], cwd: Path | None) -> str:
    """What is said for a prompt: the embedded prompt with it, or it alone. It is not looked at for variables.

    Raises:
        UsageError: the embedded prompt with it would have more than `MOST_EMBEDDED` characters.
    """
    if role.embedded is None:
        return prompt
    places = role.embedded.count(INPUT)
    size = len(role.embedded) + places * len(prompt)
    if size > MOST_EMBEDDED:
        raise UsageError(
            f"role '{role.called}' puts the prompt in {places} places, which makes {size} characters (expected at most"
            f" {MOST_EMBEDDED}); shorten the prompt, or leave `{INPUT}` in the role fewer times"
        )
    if "{{" not in role.embedded:
        return role.embedded.replace(INPUT, prompt)
    template = role.embedded.replace(INPUT, f"{{{{{INPUT}}}}}")  # a variable: all are put in at once, none into another
    return filled_in(template, {INPUT: prompt}, environ, (), cwd)


def examples(role: Role, environ: Mapping[str, str], cwd: Path | None) -> tuple[Turn, ...]:
    """The turns with which a conversation in this role begins."""
    turns: list[Turn] = []
    for pair in role.examples:
        turns += [
            UserTurn(filled_in(pair.input, {}, environ, (), cwd)),
            AssistantTurn(filled_in(pair.output, {}, environ, (), cwd)),
        ]
    return tuple(turns)


_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Agent) if field.name in _GOING_ON}
