"""A session as a client has it open: its settings, and what the client brings: directories and MCP servers.

Paths and commands are of our machine, so only callers with the scope `run:files` can bring them. From others the
session keeps `cwd` as a text only.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.control.acp import McpServer, Place, Prompt
from ....protocol.errors import UsageError
from ....protocol.mcp.config import NO_HEADER_VALUE, Server, is_header_value, is_web_address
from ....protocol.requests import RunRequest

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ...runs.root import Root
    from .prompting import Prompting

Json = Any

MODES = {"ask": "Ask first", "yes": "Allow all"}
"""Whether tools ask before they change something. `ask` is what the user's settings say."""

MODEL = "model"

MOST_SERVERS = 50
"""That one session may bring."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class AcpSession:
    """A session that a client has open: its agent, its directory, its settings.

    Attributes:
        agent, model: who answers; None for no agent, and for what it says itself.
        workspace: what the client has brought.
        title: as the client knows it.
        mode: one of `MODES`.
        prompting: the prompt that is played now.
        arrived: prompts that came just now and have not begun.
        spent: what its prompts have cost here, in USD; None once the price of one was not known.
    """

    def __init__(self, agent: str | None, model: str | None, workspace: Workspace, title: str | None = None) -> None:
        self.agent = agent
        self.model = model
        self.workspace = workspace
        self.title = title
        self.mode = "ask"
        self.prompting: Prompting | None = None
        self.arrived: list[Prompt] = []
        self._cancelled: list[Prompt] = []
        self.spent: float | None = 0.0

    def cancel(self) -> None:
        """Cancel the client's prompts, also those not begun yet."""
        self._cancelled += self.arrived
        self.arrived = []
        if self.prompting is not None:
            self.prompting.cancel()

    def was_cancelled(self, prompt: Prompt) -> bool:
        """Whether this prompt, which begins now, was cancelled before."""
        self.arrived = [each for each in self.arrived if each is not prompt]
        left = [each for each in self._cancelled if each is not prompt]
        cancelled = len(left) < len(self._cancelled)
        self._cancelled = left
        return cancelled

    def state(self, root: Root) -> dict[str, Json]:
        """How it is set, and how it might be."""
        modes = [{"id": id, "name": name} for id, name in MODES.items()]
        return {"modes": {"currentModeId": self.mode, "availableModes": modes}, "configOptions": self.options(root)}

    def options(self, root: Root) -> list[Json]:
        """What may be chosen: the model."""
        settings = root.settings
        known = [
            f"{client.name or client.type}:{model.name}"
            for client in settings.clients
            for model in client.models
            if model.type == "chat"
        ]
        models = list(dict.fromkeys(id for id in (settings.model, self.model, *known) if id))
        option = {
            "id": MODEL,
            "name": "Model",
            "category": "model",
            "type": "select",
            "currentValue": self.model or "",
            "options": [{"value": "", "name": "As the agent says"}, *({"value": id, "name": id} for id in models)],
        }
        return [option]


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """Attributes: `cwd`, None for ours; `roots` beside it; `servers` that the agent has beside its own."""

    cwd: Path | None = None
    roots: tuple[Path, ...] = ()
    servers: tuple[Server, ...] = ()

    def applied_to(self, request: RunRequest) -> RunRequest:
        """The request as it is played in them."""
        cwd = None if self.cwd is None else str(self.cwd)
        return msgspec.structs.replace(request, cwd=cwd, roots=tuple(map(str, self.roots)), servers=self.servers)


async def workspace_of(caller: Caller, place: Place, *, refused: str = "") -> Workspace:
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
        return Workspace()
    for name, each in directories:
        if not await trio.to_thread.run_sync(Path(each).is_dir):
            raise UsageError(f"`{name}`: there is no directory {each[:1000]}")
    cwd, *roots = (Path(each) for _, each in directories)
    if len(place.mcp_servers or ()) > MOST_SERVERS:
        raise UsageError(f"`mcpServers`: a session brings {MOST_SERVERS} servers at most")
    servers = tuple(_server(each, cwd) for each in place.mcp_servers or ())
    return Workspace(cwd=cwd, roots=tuple(roots), servers=servers)


def _server(given: McpServer, cwd: Path) -> Server:
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
