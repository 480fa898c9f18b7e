"""What may be called while an agent follows a skill: `allowed-tools`, which takes away and never gives.

An agent follows the skill that it has read last, until a person says the next thing. What it reads skills with, asks
people with and keeps its list of todos with goes on, and so does what it has of children that work already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....protocol.chat import AssistantTurn, ToolTurn, Turn, UserTurn
from ....protocol.others_names import ours, split_pattern
from ....protocol.permissions import PermissionRule, Permissions, Verdict
from ..told import ToldSkill

NAME = "skill"
_ALWAYS = (NAME, "user__*", "todo__*", "agent__check*", "agent__collect", "agent__list*", "agent__reply_escalation")


def narrowed(told: Sequence[ToldSkill], said: Sequence[Turn]) -> Permissions:
    """The rules of the skill that is followed; empty if none is, or it allows everything.

    Args:
        told: the skills that may be read.
        said: the conversation, oldest first.
    """
    allows = {skill.name: skill.allows for skill in told}
    if not any(allows.values()):
        return {}
    done: set[str] = set()
    for turn in reversed(said):
        if isinstance(turn, UserTurn):
            break
        if isinstance(turn, ToolTurn) and not turn.error:
            done.add(turn.call)
        if isinstance(turn, AssistantTurn):
            for call in reversed(turn.tool_calls):
                if call.name == NAME and call.id in done:
                    return rules(allows.get(str(_arguments(call.arguments).get("name")), ()))
    return {}


def rules(patterns: Sequence[str]) -> Permissions:
    """What these patterns say as permissions: all else is denied. None say nothing."""
    if not patterns:
        return {}
    found: dict[str, Verdict | PermissionRule] = {"*": "deny", **dict.fromkeys(_ALWAYS, "allow")}
    limited: dict[str, list[str]] = {}
    for pattern in patterns:
        name, inner = split_pattern(pattern)
        for tool in ours(name):
            if inner:
                limited.setdefault(tool, []).append(inner)
            else:
                found[tool] = "allow"
    for tool, inners in limited.items():
        if tool not in found:
            found[tool] = PermissionRule(allow=tuple(inners), deny=("*",))
    return found


def _arguments(given: object) -> Mapping[str, object]:
    return given if isinstance(given, Mapping) else {}
