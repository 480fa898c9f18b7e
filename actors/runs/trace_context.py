"""Trace attributes of a run that its events do not have: the requester's trace context, and the conversation.

Both are context variables, so they reach the run through the tasks that start it. Setting them is cheap, with or
without tracing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar

caller: ContextVar[Mapping[str, str] | None] = ContextVar("callboard_trace_context", default=None)
"""W3C headers `traceparent` and `tracestate` of the request that is being answered."""

conversation: ContextVar[str] = ContextVar("callboard_conversation", default="")
"""Id of the session in which the task runs."""


def continue_trace(headers: Mapping[str, str]) -> None:
    """Assign runs that this task or its descendants start to the trace that a request's headers name, if any."""
    if "traceparent" in headers:
        caller.set({name: headers[name] for name in ("traceparent", "tracestate") if name in headers})
