"""ASGI middleware: three layers, each a class around the next.

`Frame` gives every request an id and every reply its headers, and counts both; `Door` lets callers in by way of the
gate; `Bounds` limits bodies and time. An endpoint finds `request.state.caller` and `request.state.request_id`.
"""

from __future__ import annotations

from starlette.types import ASGIApp

from ...access.gate import Gate
from ...metrics import Metrics
from .bounds import Bounds
from .door import Door
from .frame import Frame

__all__ = ["Bounds", "Door", "Frame", "guarded"]


def guarded(app: ASGIApp, gate: Gate, *, metrics: Metrics | None = None) -> ASGIApp:
    """The application with everything before it."""
    settings = gate.settings
    bounded = Bounds(app, max_body=settings.limits.max_body_bytes, timeout=settings.request_timeout_seconds)
    return Frame(Door(bounded, gate), force_https=settings.force_https, metrics=metrics)
