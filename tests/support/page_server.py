"""A server of the page with agents behind it: what a browser is sent to."""

from __future__ import annotations

from support.agent_runs import AgentRunner


class PageServer(AgentRunner):
    """`page`: the address that `callboard serve` prints."""

    page: str
