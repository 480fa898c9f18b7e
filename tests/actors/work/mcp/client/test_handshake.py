"""Which era a server is of, however it says so; and that a handshake that fails leaves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import trio
import trio.testing
from support.messages import says

from callboard.actors.work.mcp.client import handshake
from callboard.protocol.errors import McpError, McpLost
from callboard.protocol.mcp.model import HANDSHAKE, META_SERVER, MODERN


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that has the pid of every scripted server that was started."""
    path = tmp_path / "starts"
    monkeypatch.setenv("STARTS", str(path))
    return path


def pids(starts: Path) -> list[int]:
    return [int(line) for line in starts.read_text().split()] if starts.exists() else []


async def test_a_server_of_both_eras_is_spoken_to_in_the_newer(connector: Any) -> None:
    async with connector.connected() as client:
        assert (client.version, client.modern) == ("2026-07-28", True)


@pytest.mark.parametrize("revision", HANDSHAKE)
async def test_every_older_revision_is_accepted(connector: Any, revision: str) -> None:
    async with connector.connected("--legacy", "--revision", revision) as client:
        assert (client.version, client.modern) == (revision, False)
        assert len(await client.tools()) > 20


async def test_a_revision_that_nobody_knows_is_refused_with_both_sides_named(connector: Any, starts: Path) -> None:
    with pytest.raises(
        McpError,
        match=says(
            "work.mcp.client.handshake.Handshake._choose", supported="1999-01-01", HANDSHAKE="2026-07-28, 2025-11-25…"
        ),
    ):
        async with connector.connected("--legacy", "--revision", "1999-01-01"):
            pytest.fail("connected")
    assert not any(psutil.pid_exists(pid) for pid in pids(starts))


async def test_a_refusal_that_names_an_older_revision_leads_to_it(connector: Any) -> None:
    async with connector.connected("--refuse", "--versions", "2025-06-18,2024-11-05") as client:
        assert client.version == "2025-06-18"


async def test_a_server_that_knows_discover_but_only_old_revisions_gets_the_newest_of_those(connector: Any) -> None:
    async with connector.connected("--versions", "2025-03-26,2025-06-18") as client:
        assert client.version == "2025-06-18"


async def test_a_refusal_without_a_common_revision_is_final(connector: Any, starts: Path) -> None:
    with pytest.raises(McpError, match=says("work.mcp.client.handshake.Handshake._choose", supported="2031-01-01")):
        async with connector.connected("--refuse", "--versions", "2031-01-01"):
            pytest.fail("connected")
    assert len(pids(starts)) == 1


async def test_silence_on_discover_leads_to_initialize(connector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "DISCOVER_WITHIN", 0.05)
    async with connector.connected("--legacy", "--discover", "silent") as client:
        assert client.version == "2025-11-25"


@pytest.mark.parametrize(("flag", "version"), [("--modern", "2026-07-28"), ("--legacy", "2025-11-25")])
async def test_a_server_that_starts_slowly_is_understood_in_its_era(
    connector: Any, monkeypatch: pytest.MonkeyPatch, flag: str, version: str
) -> None:
    monkeypatch.setattr(handshake, "DISCOVER_WITHIN", 0.05)
    async with connector.connected(flag, "--slow-start", "0.3") as client:
        assert client.version == version
        assert len(await client.tools()) > 20


async def test_a_server_that_dies_of_discover_is_started_once_more(connector: Any, starts: Path) -> None:
    async with connector.connected("--legacy", "--discover", "exit") as client:
        assert client.version == "2025-11-25"
        assert client.pid == pids(starts)[1]
    assert len(pids(starts)) == 2


async def test_what_is_remembered_skips_the_probe(connector: Any, starts: Path) -> None:
    async with connector.connected("--legacy", "--discover", "exit", remembered="2025-06-18") as client:
        assert client.version == "2025-11-25"
    assert len(pids(starts)) == 1


async def test_what_is_remembered_wrongly_is_forgotten(connector: Any) -> None:
    async with connector.connected("--modern", remembered="2025-06-18") as client:
        assert client.modern
    async with connector.connected("--legacy", remembered="2026-07-28") as client:
        assert not client.modern


async def test_a_program_that_is_not_there_is_told(connector: Any) -> None:
    with pytest.raises(McpLost, match=says("work.mcp.links.stdio.open_stdio", name="play", error="…no-such-program…")):
        async with connector.connected(command="no-such-program") as _:
            pytest.fail("connected")


async def test_a_server_that_exits_at_once_is_told_with_its_last_words(connector: Any) -> None:
    with pytest.raises(McpLost, match=says("work.mcp.links.texts.unsent", server="play")):
        async with connector.connected("--complain", "no config file", "--exit", "4"):
            pytest.fail("connected")


async def test_a_server_that_never_answers_is_given_up_in_time(connector: Any, starts: Path) -> None:
    with pytest.raises(
        McpLost, match=says("work.tools.files.call.instructions", failed="…`start_timeout_seconds`…", said="thinking")
    ):
        async with connector.connected("--never", "--complain", "thinking", start_timeout_seconds=4.0):
            pytest.fail("connected")
    assert len(pids(starts)) == 1
    assert not psutil.pid_exists(pids(starts)[0])


async def test_cancel_during_initialize(connector: Any, starts: Path) -> None:
    """The child is gone, and the next connect works."""
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_connect, connector, "--never")
            with trio.fail_after(60):
                while not pids(starts):
                    await trio.sleep(0.005)
            scope.cancel()
    assert not psutil.pid_exists(pids(starts)[0])
    async with connector.connected() as client:
        assert await client.tools()


async def _connect(connector: Any, flag: str) -> None:
    async with connector.connected(flag):
        pytest.fail("connected")


async def test_a_refusal_is_told_although_discover_was_never_answered(
    connector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "DISCOVER_WITHIN", 0.05)
    with pytest.raises(McpError, match=r"refused initialize: Method not found"):
        async with connector.connected("--modern", "--discover", "silent"):
            pytest.fail("connected")


@pytest.mark.parametrize("odd", ["x", None, {"name": 3}])
async def test_a_server_that_does_not_say_who_it_is_is_spoken_to_all_the_same(odd: Any) -> None:
    async def ask(_method: str, _params: Any) -> msgspec.Raw:
        about = {"supportedVersions": [MODERN], "_meta": {META_SERVER: odd}}
        return msgspec.Raw(msgspec.json.encode(about))

    agreed = await handshake.Handshake("odd", ask, {}).shake("")
    assert (agreed.version, agreed.server.name) == (MODERN, "unknown")
