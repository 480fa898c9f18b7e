"""A conversation's access to servers, and what they need of its run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from .....protocol.chat import ChatReply, ChatRequest
    from .....protocol.mcp.config import Server
    from .....protocol.permissions import Permissions as Rules
    from .....protocol.settings import Settings
    from .....supervisors import Actor
    from ...tools.permissions import Permissions
    from ..pool.servers import McpServers, Scope


class RunServers(Protocol):
    """Which servers a run may use; see `RunContext`."""

    @property
    def mcp(self) -> Callable[[], McpServers] | None:
        """Makes those of `mcp.json` when it is first called; None in a run that has none."""

    @property
    def settings(self) -> Settings:
        """What `config.yaml` says."""

    @property
    def servers(self) -> tuple[Server, ...]:
        """Those that the run brings along."""


class RunModel(Protocol):
    """How a server may have the run's model asked; see `RunContext`."""

    @property
    def model(self) -> str:
        """The model that the user asked for; "" for none."""

    @property
    def permissions(self) -> Permissions:
        """Which calls may go ahead."""

    async def chat(self, me: Actor, request: ChatRequest) -> ChatReply:
        """Ask it, within the run's limits and on its account."""


class Run(RunServers, RunModel, Protocol):
    """All that the tools of servers need of a run."""


class Talk(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A conversation, as far as servers are concerned.

    Attributes:
        scope: what it has leased.
        context: the run.
        own: `permissions` of the agent's file.
        model: answers the servers that may ask a model; "" for the default.
        timeout: seconds of a call in place of the servers' own; None for those.
        told: what the user was warned of already.
    """

    scope: Scope
    context: RunModel
    own: Rules = {}
    model: str = ""
    timeout: float | None = None
    told: set[str] = msgspec.field(default_factory=set)
