"""Actor paths as display names: the origin of a question or a call.

    /run-7f/boss/children/agent_scout_9/scout/children/agent_dig_4/dig/user__ask   ->   agent_scout_9 > agent_dig_4

Omitted are parts that readers know or do not need: the run, the root agent (unless it is the actor itself), the
supervisors of children, and an agent's name after an id that contains it.
"""

from __future__ import annotations

from ...protocol.kernel.questions import NETWORK_ACTOR
from .text import one_line

_CHILDREN = "children"
_SANDBOX = "the sandbox"
_OF_A_SERVER = "question"
"""Actor that asks on behalf of an MCP server during a call: the call is the name that users know."""

_SHOWN = 4


def caller(actor: str) -> str:
    """Return the caller, given the path of the call's actor; "" for the root agent.

    A child is named by its id alone, because the line of its start names its parent.
    """
    above = actor.rpartition(f"/{_CHILDREN}/")[2] if f"/{_CHILDREN}/" in actor else ""
    if above.count("/") > 1:
        id, _, *below = above.split("/")
        return _joined([id, *below[:-1]])
    return _joined(_known(actor)[1:-1])


def asker(question: dict[str, object]) -> str:
    """Return the display name of the actor behind a question (in wire format); "" if it names none.

    The tool that asks is left out. A node's name replaces that of its actor.
    """
    node = str(question.get("node") or "")
    permission = question.get("permission")
    names = _known(str(question.get("actor") or ""))
    if len(names) > 1 and names[-1].partition("#")[0] == _OF_A_SERVER:
        del names[-1]
    if node:
        last = names[-1] if names else ""
        names[-1:] = [last if last.partition("[")[0] == node else node]  # for a map the item's name, `node[3]`
    elif names and _is_known_tool(names[-1].partition("#")[0], question):
        del names[-1]
    elif permission and names and names[-1] == NETWORK_ACTOR:
        return _SANDBOX  # it concerns the whole run, not only the agent above it
    return _joined(names[1:] or names)


def name(actor: str) -> str:
    """Return the display name of an actor."""
    names = _known(actor)
    return _joined(names[1:] or names)


def child(actor: str) -> str:
    """Return the id of a child agent, given the path of its actor; "" for other actors."""
    parts = actor.split("/")
    return one_line(parts[-2], 60) if len(parts) > 3 and parts[-3] == _CHILDREN else ""


def _is_known_tool(name: str, question: dict[str, object]) -> bool:
    return name.startswith("user__") or name == question.get("permission")


def _known(actor: str) -> list[str]:
    parts = actor.split("/")[2:]  # before it: "" and the run
    names: list[str] = []
    while parts:
        name = parts.pop(0)
        if name == _CHILDREN and len(parts) > 1:
            names.append(parts.pop(0))
            del parts[:1]
        else:
            names.append(name)
    return names


def _joined(names: list[str]) -> str:
    shown = names if len(names) <= _SHOWN else [names[0], "...", *names[2 - _SHOWN :]]
    return " > ".join(one_line(name, 60) for name in shown)
