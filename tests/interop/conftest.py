"""What the tests against other people's servers share; see environments.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from interop.environments import ABSENT

from callboard.protocol.mcp.model import Progress
from callboard.supervisors import Actor, Root


@pytest.fixture
async def me() -> AsyncIterator[Actor]:
    """An actor that owns what the test starts. When the test is over, nothing of it is left."""
    async with Root() as root:
        yield root.actor
    assert not root.tasks


class Person:
    """Answers what servers ask, and keeps it. Attributes: `action`, `content` (of the answer), `asked`."""

    def __init__(self) -> None:
        self.action = "accept"
        self.content: dict[str, Any] = {"name": "Ada", "times": 3}
        self.asked: list[Mapping[str, Any]] = []

    async def elicit(self, me: Actor, server: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """A person's answer."""
        self.asked.append(params)
        return {"action": self.action} | ({"content": self.content} if self.action == "accept" else {})

    async def sample(self, me: Actor, server: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """A model's answer."""
        self.asked.append(params)
        return {
            "role": "assistant",
            "content": {"type": "text", "text": "42"},
            "model": "deep",
            "stopReason": "endTurn",
        }


@pytest.fixture
def person() -> Person:
    """Whom servers ask."""
    return Person()


@pytest.fixture
def progress() -> list[Progress]:
    """For `Caller.on_progress`."""
    return []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many interop tests were skipped."""
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ()) if report.longrepr]
    if count := sum(ABSENT in reason for reason in reasons):
        terminalreporter.write_line(
            f"{count} tests against other people's MCP servers were skipped: run `make interop` once", yellow=True
        )
