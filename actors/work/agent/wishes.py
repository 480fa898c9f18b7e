"""What a request wants of the agent that it names, beside what the agent's file says: for one run, and for it alone.

Neither the agents that it has working for it nor graphs and workflows know anything of it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ....protocol.agent import Agent
from ....protocol.chat import ChatRequest


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """See the module.

    Attributes:
        sampling: fields of every `ChatRequest` (`temperature`, `max_tokens` ...) that go before the agent's own.
        auto_continue: in place of the file's; None leaves it to that.
    """

    sampling: dict[str, Any] = {}
    auto_continue: bool | None = None

    def of(self, agent: Agent) -> Agent:
        """The agent as this run has it."""
        if self.auto_continue is None:
            return agent
        return msgspec.structs.replace(agent, auto_continue=self.auto_continue)

    def asked(self, request: ChatRequest) -> ChatRequest:
        """The request as this run makes it."""
        return msgspec.structs.replace(request, **self.sampling)
