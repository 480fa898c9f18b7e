"""A chat on a real hub, with a scripted person; see tests/support/chat_person.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.chat_person import Scripted
from support.control_fixtures import agent_runner, root
from support.control_hub import hub_of
from support.waiting import PATIENCE

import callboard
from callboard.actors.front.chat import prompting
from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.control.hub import Hub

__all__ = ["agent_runner", "root"]


@pytest.fixture(autouse=True)
def own_directories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a chat keeps for the person at this machine is kept for each test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of an interrupted line has as much time as a slow machine needs; it takes no longer because of it."""
    monkeypatch.setattr(prompting, "END_WITHIN", PATIENCE)
    monkeypatch.setattr(prompting, "PUT_BACK_WITHIN", PATIENCE)


@pytest.fixture
async def hub(root: callboard.Root, tmp_path: Path) -> AsyncIterator[Hub]:
    async with hub_of(root, tmp_path / "state") as hub:
        yield hub


@pytest.fixture
def chat(hub: Hub) -> Chat:
    return Chat(hub, "local")


@pytest.fixture
def person() -> Scripted:
    return Scripted()
