"""Tool restriction while an agent follows a skill: `allowed-tools`.

The restriction only removes permissions and never grants any. An agent follows the skill that it read last, until the
user's next message. The tools to read skills, ask the user, manage todos, and check running children remain allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....protocol.chat import AssistantTurn, ToolTurn, Turn, UserTurn
from ....protocol.others_names import ours, split_pattern
from ....protocol.permissions import PermissionRule, Permissions, Verdict
from ..opening_instructions import ListedSkill

NAME = "skill"
_ALWAYS = (NAME, "user__*", "todo__*", "agent__check*", "agent__collect", "agent__list*", "agent__reply_escalation")


def narrowed(told: Sequence[ListedSkill], said: Sequence[Turn]) -> Permissions:
    """Return the rules of the followed skill; empty if none is followed, or it allows everything.

    Args:
        told: the skills that may be read.
        said: the conversation, oldest first.
    """
    allows = {skill.name: skill.allows for skill in told}
    if not any(allows.values()):
        return {}
    done: set[str] = set()
    for turn in reversed(said):
        # A new message of the user ends the restriction.
        if isinstance(turn, UserTurn):
            break
        # A failed read does not make the agent follow the skill.
        if isinstance(turn, ToolTurn) and not turn.error:
            done.add(turn.call)
        if isinstance(turn, AssistantTurn):
            for call in reversed(turn.tool_calls):
                if call.name == NAME and call.id in done:
                    return rules(allows.get(str(_arguments(call.arguments).get("name")), ()))
    return {}


def rules(patterns: Sequence[str]) -> Permissions:
    """Return these patterns as permissions that deny everything else; empty for no pattern."""
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
        # A pattern without arguments already allows the tool completely.
        if tool not in found:
            found[tool] = PermissionRule(allow=tuple(inners), deny=("*",))
    return found


def _arguments(given: object) -> Mapping[str, object]:
    return given if isinstance(given, Mapping) else {}
