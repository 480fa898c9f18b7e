"""Roles: system prompt, examples and options for a model without an agent.

`FILES` finds and stores roles; a role in the configuration directory (`roles/NAME.md`) takes precedence over the
built-in one of its name in `library`. `protocol.role` defines the file format.

`agent_in_role` makes an agent of a role. The role supplies options that the agent leaves open. Options of the run
(`--tool`, the temperature of a session, the system prompt stored in a Loki session) take precedence over the role's
file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ...protocol.agent import Agent
from ...protocol.chat import AssistantTurn, Turn, UserTurn
from ...protocol.errors import UsageError
from ...protocol.role import INPUT, Role, names_of, read_role, split_name
from ..io.named_files import FilePlace, NamedFiles
from .library import ROLES

FILES = NamedFiles(kind="role", scope="read:roles", folder="roles", suffix=".md", ours=ROLES, read=read_role)


MOST_EMBEDDED = 10_000_000
"""Maximum characters of an embedded prompt after inserting the user's prompt.

The product of two texts is not bounded by the limit of either.
"""

_SAMPLING = ("temperature", "top_p")
_THINKING = ("reasoning_effort", "thinking_budget")
_SKILLS = ("skills_enabled", "inject_skill_instructions", "skill_instructions")
_GOING_ON = ("auto_continue", "max_auto_continues", "inject_todo_instructions", "continuation_prompt")
_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Agent) if field.name in _GOING_ON}


def locate(name: str, base: Path) -> FilePlace:
    """Return the place of a role. The part of the name after `#` is ignored, since it contains arguments.

    Raises:
        NotFound: there is no such role.
    """
    return FILES.locate(split_name(name)[0], base)


def find(name: str, base: Path) -> Role:
    """Return the role of this name with its arguments inserted: `translate#it`.

    Raises:
        NotFound: there is no such role.
        InvalidFile: its file has errors, or is not text.
        UsageError: it takes more or fewer arguments.
    """
    return FILES.load(locate(name, base)).with_arguments(split_name(name)[1])


def save(name: str, text: str, base: Path, *, replace: bool = True) -> tuple[Role, bool]:
    """Store the text as the user's role of this name. Return the role, and True if its file is new.

    Raises:
        UsageError: the name is invalid for a role.
        Conflict: the role exists, and `replace` is False.
        InvalidFile: the text is not a valid role; nothing is written.
        NotKept: the file cannot be written.
    """
    if "#" in name:
        raise UsageError(f"Unable to save the role with arguments (whose name contains '#'): {name[:100]}")
    return FILES.save(name, text, base, replace=replace)


def agent_in_role(
    agent: Agent, role: Role, *, model: str | None, own_tools: bool, settings: Mapping[str, Any]
) -> Agent:
    """Return the agent with the role's options.

    Args:
        model: chosen for the run; it takes precedence over the role's.
        own_tools: the agent's tools and servers were chosen for this run, so the role's are ignored.
        settings: the user's settings for automatic continuation, where the role has none.
    """
    changes: dict[str, Any] = {}
    if not agent.instructions:
        changes["instructions"] = role.system
    if role.model and not model and agent.model is None:
        changes["model"] = role.model
    for key in _SAMPLING:
        if getattr(agent, key) is None:
            changes[key] = getattr(role, key)
    # Both or neither: an effort of the role must not combine with a budget of the agent.
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
    changes["workspace_instructions"] = False  # The role defines the whole system prompt.
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


def prompt_in_role(role: Role, prompt: str, environ: Mapping[str, str], cwd: Path | None) -> str:
    """Return the prompt inserted into the role's embedded prompt, or alone without one.

    Variables in the prompt are not expanded.

    Raises:
        UsageError: the result would exceed `MOST_EMBEDDED` characters.
    """
    if role.embedded is None:
        return prompt
    places = role.embedded.count(INPUT)
    size = len(role.embedded) + places * len(prompt)
    if size > MOST_EMBEDDED:
        raise UsageError(
            f"role '{role.called}' inserts the prompt in {places} places, which results in {size} characters "
            f"(at most {MOST_EMBEDDED} are allowed); shorten the prompt, or remove some `{INPUT}` from the "
            "role"
        )
    if "{{" not in role.embedded:
        return role.embedded.replace(INPUT, prompt)
    from .agent.prompt import filled_in  # completion and lists of roles do without

    # The prompt is one of the variables, all of which are replaced in one pass, so it is never expanded itself.
    template = role.embedded.replace(INPUT, f"{{{{{INPUT}}}}}")
    return filled_in(template, {INPUT: prompt}, environ, (), cwd)


def examples(role: Role, environ: Mapping[str, str], cwd: Path | None) -> tuple[Turn, ...]:
    """Return the role's example turns, with which its conversation begins."""
    from .agent.prompt import filled_in

    turns: list[Turn] = []
    for pair in role.examples:
        turns += [
            UserTurn(filled_in(pair.input, {}, environ, (), cwd)),
            AssistantTurn(filled_in(pair.output, {}, environ, (), cwd)),
        ]
    return tuple(turns)
