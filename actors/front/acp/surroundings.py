"""What a client brings to a session: the directory to work in, more of them, MCP servers.

Paths and commands are of our machine, so only callers with the scope `run:files` can bring them. From others the
session keeps `cwd` as a text only.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.control.acp import McpServer, Place
from ....protocol.errors import UsageError
from ....protocol.mcp.config import NO_HEADER_VALUE, Server, is_header_value, is_web_address
from ....protocol.requests import RunRequest

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller

MOST_SERVERS = 50
"""That one session may bring."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Attributes: `cwd`, None for ours; `roots` beside it; `servers` that the agent has beside its own."""

    cwd: Path | None = None
    roots: tuple[Path, ...] = ()
    servers: tuple[Server, ...] = ()

    def put_into(self, request: RunRequest) -> RunRequest:
        """The request as it is played in them."""
        cwd = None if self.cwd is None else str(self.cwd)
        return msgspec.structs.replace(request, cwd=cwd, roots=tuple(map(str, self.roots)), servers=self.servers)


async def surroundings_of(caller: Caller, place: Place, *, refused: str = "") -> Surroundings:
    """What is brought.

    Args:
        refused: why there can be no servers; "" if there can.

    Raises:
        UsageError: a directory is not there, or a server can't be like this.
        Denied: the caller may not bring servers or directories.
    """
    directories = [
        ("cwd", place.cwd),
        *(("additionalDirectories", each) for each in place.additional_directories or ()),
    ]
    for name, each in directories:
        if not Path(each).is_absolute() or "\0" in each:
            raise UsageError(f"`{name}` is an absolute path, not {each[:100]!r}")
    if place.mcp_servers or place.additional_directories:
        caller.need("run:files")
    if place.mcp_servers and refused:
        raise UsageError(f"`mcpServers`: {refused}")
    if not caller.has("run:files"):
        return Surroundings()
    for name, each in directories:
        if not await trio.to_thread.run_sync(Path(each).is_dir):
            raise UsageError(f"`{name}`: there is no directory {each[:1000]}")
    cwd, *roots = (Path(each) for _, each in directories)
    if len(place.mcp_servers or ()) > MOST_SERVERS:
        raise UsageError(f"`mcpServers`: a session brings {MOST_SERVERS} servers at most")
    servers = tuple(_server(each, cwd) for each in place.mcp_servers or ())
    return Surroundings(cwd=cwd, roots=tuple(roots), servers=servers)


def _server(given: McpServer, cwd: Path) -> Server:
    """As `mcp.json` would have it; its values are taken as they are."""
    name = re.sub(r"[^\w.-]", "-", given.name)[:60] or "server"
    where = f"`mcpServers`: '{given.name[:60]}'"
    if given.type == "stdio":
        if not given.command:
            raise UsageError(f"{where} has no `command`")
        env = {each.name: each.value for each in given.env or ()}
        if "\0" in "".join((given.command, *(given.args or ()), *env, *env.values())) or any("=" in key for key in env):
            raise UsageError(
                f"{where}: a NUL can't be in `command`, `args` and `env`, nor `=` in the name of a variable"
            )
        return Server(
            name=name, type="stdio", command=given.command, args=tuple(given.args or ()), env=env, cwd=str(cwd)
        )
    if not is_web_address(given.url):
        raise UsageError(f"{where}: `url` is an http:// or https:// address, not {given.url[:100]!r}")
    for each in given.headers or ():
        if not _HEADER_NAME.fullmatch(each.name):
            raise UsageError(f"{where}: {each.name[:60]!r} can't be the name of a header")
        if not is_header_value(each.value):
            raise UsageError(f"{where}: the value of header {each.name[:60]} {NO_HEADER_VALUE}")
    return Server(
        name=name, type=given.type, url=given.url, headers={each.name: each.value for each in given.headers or ()}
    )
