"""Package runners that are still downloading a server: that time is not counted as its start."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from support.mcp_processes import McpProcesses

from callboard.actors.work.mcp.client.connect import is_of_runner, is_runner
from callboard.protocol.errors import McpLost
from callboard.protocol.mcp.config import Server
from callboard.supervisors import Root


@pytest.mark.parametrize(
    ("words", "is_runners"),
    [
        (["npx", "-y", "server"], True),
        (["npm exec @modelcontextprotocol/server-everything"], True),
        (["/usr/bin/node", "/usr/bin/npx", "-y", "server"], True),
        (["/usr/bin/node", "--no-warnings", "/usr/lib/node_modules/npm/bin/npx-cli.js", "server"], True),
        (["bwrap", "--ro-bind", "/", "/"], True),
        (["/root/.local/bin/uvx", "mcp-server-time"], True),
        (["uv", "tool", "uvx", "mcp-server-time"], True),
        (["sh", "-c", "mcp-server-everything"], False),
        (["node", "/root/.npm/_npx/1/node_modules/.bin/mcp-server-everything"], False),
        (["/root/.cache/uv/archive/bin/python", "/root/.cache/uv/archive/bin/mcp-server-time"], False),
    ],
)
def test_processes_of_runners_are_told_from_those_of_servers(words: list[str], is_runners: bool) -> None:
    assert is_of_runner(words) == is_runners


def test_commands_that_download_are_known() -> None:
    assert [is_runner(command) for command in ("npx", "/usr/bin/uvx", "node", "mcp-server-sqlite")] == [
        True,
        True,
        False,
        False,
    ]


async def test_a_download_is_no_part_of_the_start(tmp_path: Path) -> None:
    """The runner takes longer than the timeout, and the server that it then becomes never begins."""
    runner = tmp_path / "uvx"
    runner.write_text("#!/bin/bash\nexec -a uvx bash -c '(exec -a uvx sleep 6); exec sleep 600'\n")
    runner.chmod(0o755)
    async with Root() as root:
        mcp_processes = McpProcesses(root, tmp_path)
        mcp_processes.build(Server(name="s", type="stdio", command=str(runner), start_timeout_seconds=3))
        with mcp_processes.scope() as scope, pytest.raises(McpLost) as raised, trio.fail_after(60):
            await scope.catalog("s", root.actor)
    assert "downloading" in str(raised.value)
    assert "start_timeout_seconds" in str(raised.value)
