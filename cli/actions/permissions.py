"""Permissions of tool calls for `callboard permissions`: decisions with their reasons, and stored answers."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ...actors.runs.target import load_agent
from ...actors.work.tools.stored_answers import StoredAnswer, StoredAnswers
from ...protocol.errors import UsageError
from ..render.text import columns, counted, json_object, one_line, safe
from .tools import PERMISSION_TEXTS, Toolbox


def explain_call(
    call: str, name: str, agent_name: str | None, allowed: tuple[str, ...], config_dir: str | None, *, as_json: bool
) -> str:
    """Return the decision about a call, and the reasons for it.

    Raises:
        UsageError: there is no such tool, or it needs all of its arguments.
    """
    agent = None if agent_name is None else load_agent(agent_name, config_dir=config_dir)
    box = Toolbox(config_dir)
    tool = box.one(name, agent).tool
    try:
        given = msgspec.json.decode(call) if call.lstrip().startswith("{") else None
    except msgspec.DecodeError:
        # A shell command may begin with a brace too: `{ make; }`.
        given = None
    if not isinstance(given, dict):
        if not tool.subject:
            raise UsageError(f"'{name}' has no argument that patterns are compared with: give all arguments as JSON")
        given = {tool.subject: call}
    found = box.explained(tool, given, agent, allowed)
    if as_json:
        return json_object(tool=tool.name, **msgspec.to_builtins(found))
    rows = [
        [
            safe(reason.command or tool.name),
            reason.verdict or "-",
            f"{reason.who}{f', `{safe(reason.rule)}`' if reason.rule else ''}",
            safe("; ".join(part for part in (reason.pattern and f"by {reason.pattern!r}", reason.why) if part)),
        ]
        for reason in found.reasons
    ]
    return "\n".join([f"{found.verdict}: {PERMISSION_TEXTS[found.verdict]}", *columns(rows)]) + "\n"


def list_stored(*, as_json: bool) -> str:
    """Return the answers `always` that are stored for this directory."""
    kept = StoredAnswers(Path.cwd(), os.environ)
    if as_json:
        return json_object(directory=kept.directory, allowed=msgspec.to_builtins(kept.all()))
    rows = [[safe(each.tool), _what(each)] for each in kept.all()]
    where = safe(kept.directory)
    return "\n".join([f"approvals stored for {where}", *columns(rows)] if rows else [f"nothing in {where}"]) + "\n"


def _what(answered: StoredAnswer) -> str:
    what = one_line(answered.subject)
    return f"may {what}" if answered.beyond else what or "with any arguments"


def forget_stored(tool: str | None) -> str:
    """Remove stored answers for this directory: of one tool, or all."""
    number = StoredAnswers(Path.cwd(), os.environ).forget(tool)
    return f"{counted(number, 'answer')} forgotten\n"
