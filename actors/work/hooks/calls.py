"""Hooks of one tool call, before and after it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from ....protocol.errors import HookRefused, ToolFailed
from ....protocol.others_names import arguments_back, arguments_of, theirs
from ...io.imports import imported
from ...io.json_schema import LIBRARY, schema_errors
from ..tools.tool import Arguments, Json, Tool, text_of
from .answers import HookAnswers

if TYPE_CHECKING:
    from ....supervisors import Actor
    from .hooks import Hooks


async def before(hooks: Hooks, me: Actor, tool: Tool, arguments: Arguments, id: str) -> tuple[Arguments, HookAnswers]:
    """Run the hooks before a call. Return the arguments for the call, and the hooks' answer.

    Raises:
        ToolFailed: a hook refused the call, or replaced its arguments by invalid ones; the model receives the reason.
        HookRefused: a hook ends the run.
    """
    name = theirs(tool.name, mcp=tool.origin == "mcp")
    given = {"tool_name": name, "tool_input": _hook_arguments(hooks, tool, arguments), "tool_use_id": id}
    said = await hooks.ask(me, "PreToolUse", name, given, _subject(tool, arguments))
    if said.ends is not None:
        raise HookRefused(said.ends)
    if said.refused is not None:
        raise ToolFailed(f"'{tool.name}' was not run: {said.refused}")
    if said.input is None:
        return arguments, said
    # Arguments from a hook have not been validated yet, unlike those from the model.
    changed = arguments_back(tool.name, said.input)
    await imported(*LIBRARY)
    wrong = schema_errors(changed, tool.spec.parameters)
    if wrong:
        raise ToolFailed(f"'{tool.name}' was not run: a hook has changed its arguments, and they don't fit: {wrong[0]}")
    return changed, said


async def after(hooks: Hooks, me: Actor, tool: Tool, arguments: Arguments, value: Json, id: str) -> str:
    """Run the hooks after a call. Return text to append to the call's result; "" for none.

    Raises:
        HookRefused: a hook ends the run.
    """
    name = theirs(tool.name, mcp=tool.origin == "mcp")
    given = {
        "tool_name": name,
        "tool_input": _hook_arguments(hooks, tool, arguments),
        "tool_response": _plain(value),
        "tool_use_id": id,
    }
    said = await hooks.ask(me, "PostToolUse", name, given, _subject(tool, arguments))
    if said.ends is not None:
        raise HookRefused(said.ends)
    told = [said.refused] if said.refused is not None else []
    return "\n\n".join(f"[A hook says:]\n{text}" for text in (*told, *said.context))


def _hook_arguments(hooks: Hooks, tool: Tool, arguments: Arguments) -> Arguments:
    """Return the arguments under Claude Code's names; a path argument of a tool becomes absolute."""
    path = arguments.get("path")
    if tool.subject == "path" and isinstance(path, str):
        # Hooks written for Claude Code expect absolute paths.
        arguments = {**arguments, "path": os.path.normpath(hooks.here / path)}
    return arguments_of(tool.name, arguments)


def _subject(tool: Tool, arguments: Arguments) -> str:
    value = arguments.get(tool.subject) if tool.subject else None
    return value if isinstance(value, str) else ""


def _plain(value: Json) -> Json:
    """Return a result as JSON values, or as text if it has no JSON form."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return text_of(value)
