"""One request as its handler sees it, and what all handlers share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ....protocol.control.caller import LOCAL, Caller
from ....protocol.control.own import StartRun
from ....protocol.control.things import RunInfo
from ....protocol.errors import UsageError
from ....protocol.requests import RunRequest
from ...runs.hooks import NO_HOOKS, Hooks
from .shapes.handed import HandedOut, Remembered

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
        metrics, health: figures and state of the process; None where not served.
        started: when we began to serve, by trio's clock.
        remembered: runs that wait for tools of their clients.
    """

    hub: Hub
    root: Root
    metrics: Metrics | None = None
    health: Health | None = None
    started: float = 0.0
    remembered: Remembered = field(default_factory=Remembered)

    def end(self, run: str) -> None:
        """End a run that a request of ours has started, whatever its caller may do to runs."""
        self.hub.cancel(LOCAL, run)

    async def over(self, run: str) -> None:
        """Wait until it has ended."""
        await self.hub.wait(LOCAL, run)


class Call:
    """A request whose caller is known."""

    def __init__(self, api: Api, request: Request) -> None:
        self.api = api
        self.request = request

    @property
    def hub(self) -> Hub:
        """See `Api`."""
        return self.api.hub

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

    async def asked(self, wanted: StartRun) -> RunRequest:
        """What the caller wants, as far as it may want it; the route may put in what no caller can give."""
        return await self.hub.request(self.caller, wanted)

    async def begin(self, request: RunRequest, hooks: Hooks = NO_HOOKS, *, session: str | None = None) -> RunInfo:
        """Start a run for the caller."""
        return await self.hub.begin(self.caller, request, hooks, session=session)

    def handed(self, call: str) -> HandedOut | None:
        """The caller's run that ended with this call of a tool of the client's, if it is remembered."""
        return self.api.remembered.find(self.caller.subject, call)

    def hand_out(self, handed: HandedOut) -> None:
        """Remember a run until its client comes back with what the tools gave."""
        self.api.remembered.keep(self.caller.subject, handed)

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
