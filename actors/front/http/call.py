"""One request as its handler sees it, and what all handlers share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ....protocol.control.caller import Caller
from ....protocol.errors import UsageError
from .shapes.client_tools import Remembered

if TYPE_CHECKING:
    from ...runs.root import Root
    from ..control.hub import Hub
    from ..metrics import Metrics
    from .health import Health


@dataclass(frozen=True)
class Api:
    """What all handlers share.

    Attributes:
        hub: runs and questions, of all front ends.
        health: the state of the process.
        metrics: its figures; None where they are not kept.
        started: when we began to serve, by trio's clock.
        remembered: runs that wait for tools of their clients.
    """

    hub: Hub
    root: Root
    health: Health
    metrics: Metrics | None = None
    started: float = 0.0
    remembered: Remembered = field(default_factory=Remembered)


class Call:
    """A request whose caller is known."""

    def __init__(self, api: Api, request: Request) -> None:
        self.api = api
        self.hub = api.hub
        self.request = request

    @property
    def caller(self) -> Caller:
        """The caller; public routes have none and must not read it."""
        caller = self.request.state.caller
        assert isinstance(caller, Caller)
        return caller

    @property
    def id(self) -> str:
        """What the reply calls this request, and the logs too."""
        return getattr(self.request.state, "request_id", "")

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def accepts(self, media: str) -> bool:
        """Whether the client asks for this kind of reply."""
        return media in self.request.headers.get("accept", "")

    def last_seen(self) -> int | None:
        """The number of the last event that a client has, which comes back for the rest.

        Raises:
            UsageError: `Last-Event-ID` is none of ours.
        """
        given = self.request.headers.get("last-event-id")
        if given is None or not given.strip():
            return None
        if not (given.isascii() and given.isdigit() and len(given) < 16):
            raise UsageError("Last-Event-ID: the number of an event was expected")
        return int(given)


def reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A reply in JSON."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")
