"""Paths of actors, as people read them: who asks, who calls.

    /run-7f/boss/children/agent_scout_9/scout/children/agent_dig_4/dig/user__ask   ->   agent_scout_9 > agent_dig_4

Left out is what readers know or don't need: the run, the agent that was started (unless it is meant itself), the
supervisors of children, and the name of an agent behind the id that has it in it.
"""

from __future__ import annotations

from .text import one_line

_CHILDREN = "children"
_OF_A_SERVER = "question"
"""What asks on behalf of an MCP server in the middle of a call: the call is who people know."""

_SHOWN = 4


def caller(actor: str) -> str:
    """Who makes a call, given the call's own actor; "" for the agent that was started.

    A child is named by its id alone: the line of its beginning names its parent.
    """
    above = actor.rpartition(f"/{_CHILDREN}/")[2] if f"/{_CHILDREN}/" in actor else ""
    if above.count("/") > 1:
        id, _, *below = above.split("/")
        return _joined([id, *below[:-1]])
    return _joined(_known(actor)[1:-1])


def asker(question: dict[str, object]) -> str:
    """Who asks a question (as it is on the wire)."""
    node = str(question.get("node") or "")
    names = _known(str(question.get("actor") or ""))
    if len(names) > 1 and names[-1].partition("#")[0] == _OF_A_SERVER:
        del names[-1]
    if node:
        last = names[-1] if names else ""
        names[-1:] = [last if last.partition("[")[0] == node else node]  # of a map which item's
    elif names and _is_known_tool(names[-1].partition("#")[0], question):
        del names[-1]
    return _joined(names[1:] or names)


def name(actor: str) -> str:
    """The name of an actor that the reader knows by its path."""
    names = _known(actor)
    return _joined(names[1:] or names)


def child(actor: str) -> str:
    """The id of the child that the actor plays, if it is the actor of a child agent; else ""."""
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
