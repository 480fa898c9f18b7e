"""MCP servers for tests: real processes, counted; see tests/actors/work/mcp/servers."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

from callboard.actors.work.mcp.client.connect import OfferedCapabilities
from callboard.actors.work.mcp.links.link import CallOrigin
from callboard.actors.work.mcp.pool.servers import McpServers, ServerScope
from callboard.protocol.events import Event
from callboard.protocol.mcp.config import McpConfig, PoolSettings, Server
from callboard.supervisors import Root
from support.descendants import is_alive

SERVERS = Path(__file__).parents[1] / "actors" / "work" / "mcp" / "servers"


class McpProcesses:
    """`McpServers` under a root, and what becomes of them.

    Attributes:
        directory: its cache, its sockets, and the file of starts.
        environ: ours, as far as servers know.
        secrets: what `${NAME}` stands for.
        config: what `mcp.json` says; `reload` reads it again.
        events: all of the root's.
    """

    def __init__(self, root: Root, directory: Path) -> None:
        self.root = root
        self.directory = directory
        self.environ = {**os.environ, "XDG_RUNTIME_DIR": str(directory), "STARTS": str(directory / "starts")}
        self.secrets: dict[str, str] = {}
        self.config = McpConfig()
        self.events: list[Event] = []
        self.servers: McpServers

    def build(self, *servers: Server, pool: PoolSettings | None = None, serving: bool = False) -> McpServers:
        """Have these servers in `mcp.json`."""
        self.config = McpConfig(file="mcp.json", servers={server.name: server for server in servers})
        self.servers = McpServers(
            self.root,
            self.config,
            environ=self.environ,
            cache=self.directory,
            secrets=self.secrets,
            abilities=OfferedCapabilities(),
            settings=pool,
            serving=serving,
            read_again=lambda: self.config,
            rand=random.Random(7),
        )
        return self.servers

    def scope(self, agent: str = "/agent", run: str = "run-1") -> ServerScope:
        """What that agent has."""
        return self.servers.scope(run=run, agent=agent)

    async def call(self, scope: ServerScope, server: str, tool: str = "pid", **arguments: Any) -> str:
        """The text of the tool's result."""
        result = await scope.call(server, tool, arguments, CallOrigin(me=self.root.actor))
        text: str = result["content"][0]["text"]
        return text

    @property
    def starts(self) -> list[int]:
        """The pids of all servers that ever started, in order."""
        path = self.directory / "starts"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    @property
    def alive(self) -> list[int]:
        """Those that run now."""
        return [pid for pid in self.starts if is_alive(pid)]

    def of(self, kind: str) -> list[Any]:
        """The data of the events of this kind so far, without warnings of labels: tests run without a sandbox."""
        found = [event.data for event in self.events if event.kind == kind]
        return [data for data in found if getattr(data, "code", "") != "labels"]


def scripted(name: str, *flags: str, **options: Any) -> Server:
    """The entry of a scripted server with these flags."""
    args = ("-S", str(SERVERS / "scripted.py"), *flags)
    return Server(name=name, **{"type": "stdio", "command": sys.executable, "args": args, **options})


def tiny(name: str, *args: str, **options: Any) -> Server:
    """The entry of a server that starts in no time and has one tool, `pid`."""
    return Server(name=name, type="stdio", command="/bin/sh", args=(str(SERVERS / "tiny.sh"), *args), **options)
