"""The body of every error."""

from __future__ import annotations

import msgspec


class ErrorShape(msgspec.Struct, frozen=True, kw_only=True):
    """`code` is stable, `message` is for people, `request_id` is in the server's logs too."""

    code: str
    message: str
    request_id: str


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every reply that is no success."""

    error: ErrorShape
