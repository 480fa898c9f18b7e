"""What traces say of a run and its events do not: who requested it, and the conversation that it is a turn of.

Both are context variables, so they reach the run through the tasks that start it. Setting them is cheap, with
or without tracing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar

caller: ContextVar[Mapping[str, str] | None] = ContextVar("callboard_trace_context", default=None)
"""The W3C headers `traceparent` and `tracestate` of the request that we are answering."""

conversation: ContextVar[str] = ContextVar("callboard_conversation", default="")
"""The id of the session that we are in."""


def continue_trace(headers: Mapping[str, str]) -> None:
    """Runs that this task starts, and those below it, belong to the trace that a request's headers name, if any."""
    if "traceparent" in headers:
        caller.set({name: headers[name] for name in ("traceparent", "tracestate") if name in headers})
