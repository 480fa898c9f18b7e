"""`callboard mcp test` and `callboard mcp tools`: start servers, and print what they offer."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import trio

from .. import Root
from ..actors.work.mcp.client.client import McpClient
from ..actors.work.mcp.pool.catalog import Catalog
from ..actors.work.mcp.pool.scope import Scope
from ..actors.work.mcp.tools.direct import effect_of
from ..actors.work.mcp.tools.names import offered_name
from ..actors.work.tools.permissions import Permissions
from ..actors.work.tools.tool import Arguments, Json, Tool, ToolSpec
from ..protocol.errors import CallboardError, InvalidFile, McpLost, UsageError
from ..protocol.mcp.config import McpConfig, Server
from ..protocol.mcp.model import Tool as ServerTool
from ..protocol.problems import Problem, errors_in
from ..supervisors import Actor
from .acting import act
from .mcp_shelf import reached, remembered, tell_if_off, to_wire
from .render.lines import duration
from .render.plain import choose
from .render.progress import Progress
from .render.style import redrawable
from .render.table import columns, fitted
from .render.text import counted, json_object, one_line, safe

T = TypeVar("T")

_TOLD = 240
"""Characters of a server's instructions, and of what a tool is for."""


@dataclass(frozen=True, kw_only=True)
class Met:
    """How it went with one server.

    Attributes:
        entry: of `mcp.json`.
        seconds: from the start to the end of the handshake, or until it failed.
        facts: what it said of itself, as JSON shows it; empty if it could not be met.
        error: why not.
    """

    entry: Server
    seconds: float
    facts: dict[str, Any]
    error: CallboardError | None = None

    def to_wire(self) -> dict[str, Any]:
        """As JSON shows it."""
        error = None if self.error is None else {"code": self.error.code, "message": str(self.error)}
        return {"name": self.entry.name, "seconds": round(self.seconds, 3), **self.facts, "error": error}

    def as_text(self) -> str:
        """For people: one line, and what belongs to it below."""
        name, took = safe(self.entry.name), duration(self.seconds)
        if self.error is not None:
            lines = safe(str(self.error)).splitlines()
            return "\n".join([f"{name} FAILED in {took}", *(f"  {line}" for line in lines)]) + "\n"
        facts = self.facts
        told: list[list[str]] = [
            ["server", f"{facts['server']['name']} {facts['server']['version']}"],
            ["protocol", facts["protocol"]],
            ["reached", reached(self.entry)],
        ]
        for kind in ("tools", "resources", "prompts"):
            names: list[str] = facts[kind]
            told.append([kind, f"{len(names)}: {', '.join(names)}" if names else "none"])
        if facts["instructions"]:
            told.append(["says", one_line(facts["instructions"], _TOLD)])
        rows = columns([[safe(cell) for cell in row] for row in told])
        return f"{name} works, ready in {took}\n{fitted(rows)}"


def test_servers(names: tuple[str, ...], config_dir: str | None, *, as_json: bool) -> int:
    """Meets the servers, all of them without names, side by side; returns the exit code of the first that failed.

    Each is told as soon as it is known, JSON at the end. Without names, what is wrong with the file is told on stderr,
    and an entry that can't be used has failed as well.

    Raises:
        UsageError: there is no such server, or none at all.
        InvalidFile: no entry of the file can be used.
        OSError: stdout can't be written.
    """
    progress = _progress()
    unwritten: list[OSError] = []

    def tell(met: Met) -> None:
        try:
            with progress.aside():
                sys.stdout.write(met.as_text())
                sys.stdout.flush()
        except OSError as error:
            unwritten.append(error)

    async def meet_all(me: Actor, root: Root) -> tuple[list[Met], tuple[Problem, ...]]:
        servers = root.mcp
        problems = () if names else servers.config.problems
        wanted = [servers.get(name) for name in dict.fromkeys(names or servers.names)]
        if not wanted:
            raise _nothing_to_meet(servers.config)
        tell_if_off(root)
        for problem in problems:
            sys.stderr.write(safe(str(problem)) + "\n")
        met: dict[str, Met] = {}

        async def meet(server: Server) -> None:
            met[server.name] = await _meet(me, scope, server)
            if not as_json and not unwritten:
                tell(met[server.name])

        with servers.scope(run=me.stream.run, agent=me.path) as scope:
            async with trio.open_nursery() as nursery:
                for server in wanted:
                    nursery.start_soon(meet, server)
        return [met[server.name] for server in wanted], problems

    found, problems = act(meet_all, config_dir=config_dir, progress=progress)
    if unwritten:
        raise unwritten[0]
    if as_json:
        servers = [each.to_wire() for each in found]
        sys.stdout.write(json_object(servers=servers, problems=to_wire(problems)))
    errors = [each.error for each in found if each.error is not None]
    return errors[0].exit_code if errors else UsageError.exit_code if errors_in(problems) else 0


def _nothing_to_meet(config: McpConfig) -> CallboardError:
    problems = errors_in(config.problems)
    if problems:
        what = "has no entry that can be used" if config.broken else "can't be read"
        told = "\n".join(map(str, problems))
        return InvalidFile(f"{config.file} {what}:\n{told}", config.problems)
    if config.servers:
        all_of = "the only MCP server" if len(config.servers) == 1 else f"all {len(config.servers)} MCP servers"
        verb = "is" if len(config.servers) == 1 else "are"
        return UsageError(f'{all_of} of {config.file} {verb} disabled; remove "disabled" of one to use it')
    return UsageError(f"there is no MCP server in {config.file}; callboard mcp init writes some")


def _progress() -> Progress:
    """To start a server may take its time, which a person would like to see pass."""
    return choose(sys.stderr, quiet=not redrawable(sys.stderr), verbose=False)


async def _meet(me: Actor, scope: Scope, server: Server) -> Met:
    began = trio.current_time()
    seconds = 0.0
    facts: dict[str, Any] = {}
    error: CallboardError | None = None
    try:
        async with scope.client(server.name, me) as client:
            seconds = trio.current_time() - began
            facts = await _in_time(server, _facts(client, await scope.catalog(server.name, me)))
    except CallboardError as failed:
        error = failed
        seconds = trio.current_time() - began
    return Met(entry=server, seconds=seconds, facts=facts, error=error)


async def _in_time(server: Server, asking: Awaitable[T]) -> T:
    with trio.move_on_after(server.timeout_seconds):
        return await asking
    raise McpLost(
        f"MCP server '{server.name}' did not list its resources and prompts within {server.timeout_seconds:g} s "
        f"(timeout_seconds of its entry, {server.where})"
    )


async def _facts(client: McpClient, catalog: Catalog) -> dict[str, Any]:
    return {
        "server": {"name": catalog.server.name, "version": catalog.server.version},
        "protocol": client.version,
        "capabilities": sorted(client.capabilities),
        "instructions": catalog.instructions,
        "tools": [tool.name for tool in catalog.tools],
        "resources": [resource.uri for resource in await client.resources()],
        "prompts": [prompt.name for prompt in await client.prompts()],
    }


# --- tools ------------------------------------------------------------------------------------------------


def list_tools(name: str, config_dir: str | None, *, cached: bool, as_json: bool) -> int:
    """Prints the tools of a server that agents may use.

    Raises:
        UsageError: there is no such server, or with `cached` nothing is remembered of it.
        McpError, McpLost, ConfigError: it can't be asked.
    """
    if cached:
        root = Root(config_dir=config_dir)
        server, permissions = root.mcp.get(name), Permissions(root.shelf.permissions(root.settings.permissions))
        catalog = remembered(root.mcp, server)
        if catalog is None:
            raise UsageError(f"nothing is remembered of MCP server '{name}'; without --cached it is started and asked")
    else:
        server, catalog, permissions = act(partial(_ask, name), config_dir=config_dir, progress=_progress())
    rows = [_row(server, tool, permissions) for tool in catalog.tools]
    if as_json:
        sys.stdout.write(json_object(server=name, protocol=catalog.version, tools=rows))
        return 0
    who = f"{catalog.server.name} {catalog.server.version}".strip()
    sys.stdout.write(safe(f"{name} ({who}): {counted(len(rows), 'tool')}\n"))
    asks = {"allow": "", "ask": "asks first", "deny": "denied"}
    cells = [
        [safe(_signature(row["name"], row["parameters"])), asks[row["permission"]], one_line(row["description"], _TOLD)]
        for row in rows
    ]
    sys.stdout.write(fitted(columns(cells)))
    return 0


def _signature(tool: str, schema: dict[str, Any]) -> str:
    """`convert_time(source_timezone, time, format?)`; what may be left out has a question mark."""
    properties, required = schema.get("properties"), schema.get("required")
    names = list(properties) if isinstance(properties, dict) else []
    needed = required if isinstance(required, list) else []
    return f"{tool}({', '.join(name if name in needed else f'{name}?' for name in names)})"


async def _ask(name: str, me: Actor, root: Root) -> tuple[Server, Catalog, Permissions]:
    server = root.mcp.get(name)
    with root.mcp.scope(run=me.stream.run, agent=me.path) as scope:
        async with scope.client(name, me):
            catalog = await scope.catalog(name, me)
    return server, catalog, Permissions(root.shelf.permissions(root.settings.permissions))


def _row(server: Server, tool: ServerTool, permissions: Permissions) -> dict[str, Any]:
    shown = Tool(
        spec=ToolSpec(name=offered_name(server.name, tool.name)),
        run=_never,
        effect=effect_of(server, tool),
        origin="mcp",
        alias=f"{server.name}__{tool.name}",
    )
    hints = tool.annotations
    return {
        "name": tool.name,
        "offered_as": shown.name,
        "description": tool.description or tool.title or "",
        "parameters": tool.input_schema,
        "read_only": None if hints is None else hints.read_only_hint,
        "destructive": None if hints is None else hints.destructive_hint,
        "permission": permissions.verdict(shown, {}),
    }


async def _never(_me: Actor, _arguments: Arguments) -> Json:
    raise AssertionError("only its permission is looked up")
