"""Open session of a client: settings, directories and MCP servers.

Paths and commands belong to the server's machine, so only callers with the scope `run:files` may set them. For others
the session stores `cwd` only as text.
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
"""Permission modes of tools. `ask` follows the user's settings."""

MODEL = "model"
MODE = "mode"

MOST_SERVERS = 50
"""Maximum number of MCP servers of one session."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class AcpSession:
    """Session with its agent, directory and settings.

    Attributes:
        agent, model: agent and model; None for no agent, and for the agent's own model.
        workspace: directories and servers of the client.
        title: title known to the client.
        mode: one of `MODES`.
        prompting: current prompt.
        arrived: prompts that have not begun yet.
        spent: cost of its prompts in USD; None once a price was unknown.
    """

    def __init__(
        self, agent: str | None, model: str | None, workspace: SessionWorkspace, title: str | None = None
    ) -> None:
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
        """Cancel the client's prompts, including those not begun yet."""
        self._cancelled += self.arrived
        self.arrived = []
        if self.prompting is not None:
            self.prompting.cancel()

    def was_cancelled(self, prompt: Prompt) -> bool:
        """Return True if this prompt, which begins now, was cancelled before."""
        # Identity, because two prompts of a client may be equal.
        self.arrived = [each for each in self.arrived if each is not prompt]
        left = [each for each in self._cancelled if each is not prompt]
        cancelled = len(left) < len(self._cancelled)
        self._cancelled = left
        return cancelled

    def state(self, root: Root) -> dict[str, Json]:
        """Return the current and possible settings."""
        modes = [{"id": id, "name": name} for id, name in MODES.items()]
        return {"modes": {"currentModeId": self.mode, "availableModes": modes}, "configOptions": self.options(root)}

    def options(self, root: Root) -> list[Json]:
        """Return the options for the user: the model, and the mode for clients that show only options."""
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
        mode = {
            "id": MODE,
            "name": "Permissions",
            "category": "mode",
            "type": "select",
            "currentValue": self.mode,
            "options": [{"value": id, "name": name} for id, name in MODES.items()],
        }
        return [option, mode]


class SessionWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    """Directories and servers of a session: `cwd`, None for the process's; additional `roots`; additional `servers`."""

    cwd: Path | None = None
    roots: tuple[Path, ...] = ()
    servers: tuple[Server, ...] = ()

    def applied_to(self, request: RunRequest) -> RunRequest:
        """Apply them to a run request."""
        cwd = None if self.cwd is None else str(self.cwd)
        return msgspec.structs.replace(request, cwd=cwd, roots=tuple(map(str, self.roots)), servers=self.servers)


async def workspace_of(caller: Caller, place: Place, *, refused: str = "") -> SessionWorkspace:
    """Validate the directories and servers of a client.

    Args:
        refused: reason why servers are not possible; "" if they are.

    Raises:
        UsageError: a directory does not exist, or a server is invalid.
        Denied: the caller may not set servers or directories.
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
        return SessionWorkspace()
    for name, each in directories:
        if not await trio.to_thread.run_sync(Path(each).is_dir):
            raise UsageError(f"`{name}`: there is no directory {each[:1000]}")
    cwd, *roots = (Path(each) for _, each in directories)
    if len(place.mcp_servers or ()) > MOST_SERVERS:
        raise UsageError(f"`mcpServers`: a session brings {MOST_SERVERS} servers at most")
    servers = tuple(_server(each, cwd) for each in place.mcp_servers or ())
    return SessionWorkspace(cwd=cwd, roots=tuple(roots), servers=servers)


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
