"""Write events of runs to `logging`.

    async with callboard.Root() as root:
        with root.bus.listen(callboard.log_events(logging.getLogger("app.agents"))):  # of all runs
            await root.run("researcher", question)
        await root.run("writer", text, on_event=callboard.log_events())  # of one

A record's message has the event's kind, run, actor and data: `tool.call.finished run-7f3a /run-7f3a/clerk tool=look_up
seconds=0.012`. The record's attribute `event` is the whole `callboard.Event`, for formatters that write JSON
(`callboard.events.to_wire(record.event)`).

Levels:

    ERROR      failed runs and MCP servers
    WARNING    warnings; failed actors, requests and calls; retries
    DEBUG      pieces of text, and events that occur many times a second
    INFO       all others
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ....protocol.events import Event, EventData

ERRORS = frozenset({"run.failed", "mcp.failed"})
WARNINGS = frozenset(
    {"run.warning", "llm.retry", "llm.fallback", "llm.failed", "actor.failed", "actor.restarted", "actor.stuck"}
)
DETAILS = frozenset(
    {
        *("llm.delta", "llm.reasoning", "llm.waiting", "usage.update", "state.patch", "step.started", "step.finished"),
        *("tool.call.delta", "tool.call.progress", "journal.checkpoint", "knowledge.building", "history.compacting"),
        *("actor.spawned", "actor.stopped", "actor.busy", "actor.waiting", "actor.paused", "actor.resumed"),
        *("pool.opened", "pool.closed"),
    }
)
CONTENT = frozenset({"prompt", "text", "arguments", "result", "diff", "question", "value", "outcome"})
"""Fields with texts of users and models, which logs often must not contain."""

LONGEST = 500
"""Maximum number of characters of one value."""


def log_events(
    logger: logging.Logger | logging.LoggerAdapter[Any] | str = "callboard.events", *, content: bool = False
) -> Callable[[Event], None]:
    """Return a function that writes events to a logger, for `on_event` of a run or `root.bus.listen`.

    Args:
        logger: a logger, or its name.
        content: whether messages include prompts, texts of models, and arguments and results of tools.
    """
    target = logging.getLogger(logger) if isinstance(logger, str) else logger

    def log(event: Event) -> None:
        level = _level(event)
        if target.isEnabledFor(level):
            text = " ".join(filter(None, (event.run, event.actor, _data_text(event.data, content=content))))
            target.log(level, "%s %s", event.kind, text, extra={"event": event})

    return log


def _level(event: Event) -> int:
    kind = event.kind
    if kind in ERRORS:
        return logging.ERROR
    if kind in WARNINGS:
        return logging.WARNING
    if kind in DETAILS:
        return logging.DEBUG
    return logging.WARNING if getattr(event.data, "error", None) else logging.INFO


def _data_text(data: EventData, *, content: bool) -> str:
    shown: list[str] = []
    outcome: Any = getattr(data, "outcome", None)
    if isinstance(outcome, dict) and (error := outcome.get("error")):
        shown.append(f"code={error.get('code')} error={_short(str(error.get('message')))!r}")
    for name in data.__struct_fields__:
        value = getattr(data, name)
        if value in (None, "", [], {}) or (name in CONTENT and not content):
            continue
        if isinstance(value, float):
            shown.append(f"{name}={value:.4g}")
        elif isinstance(value, str):
            short = _short(value)
            shown.append(f"{name}={short}" if short.isprintable() and " " not in short else f"{name}={short!r}")
        else:
            shown.append(f"{name}={_short(str(value))}")
    return " ".join(shown)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
