"""Implementation of `callboard mcp`: servers that `mcp.json` configures, and Callboard itself as an MCP server.

`list` starts no server and prints cached catalogs; `test` and `tools` start servers, and `.tool_calls` executes a call
by hand. `serve` is the other direction: agents as tools of an MCP client, over stdio or HTTP. `.mcp_status` asks the
running processes.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec
import trio

from ...actors.io.directories import config_dir as configured
from ...actors.io.directories import user_folder
from ...actors.io.secret_redaction import hide_in
from ...actors.runs.root import Root
from ...actors.work.mcp.client.client import McpClient
from ...actors.work.mcp.pool.pool import ServerCatalog
from ...actors.work.mcp.pool.servers import McpServers, ServerScope
from ...actors.work.mcp.tools.direct import effect_of
from ...actors.work.mcp.tools.names import offered_name
from ...actors.work.tools.permissions import Permissions
from ...actors.work.tools.tool import Arguments, Json, Tool, ToolSpec
from ...protocol.environment import REFERENCE
from ...protocol.errors import CallboardError, ConfigError, InvalidFile, McpLost, UsageError
from ...protocol.mcp.config import McpConfig, Server, entry_of
from ...protocol.mcp.model import McpTool as ServerTool
from ...protocol.problems import Problem, errors_in
from ...supervisors import Actor
from .. import flag_values
from ..frame import act, choose_display, exit_code_of, play
from ..new_files import write_files
from ..render.narration import duration
from ..render.progress import ProgressDisplay
from ..render.text import ASKS, columns, counted, fitted, json_object, one_line, redrawable, safe

HIDDEN = "***"
_SECRET_NAME = re.compile(r"token|key|secret|passw|auth|credential|bearer", re.IGNORECASE)
# Prefixes of keys: OpenAI, Anthropic and Stripe (sk, pk, rk), GitHub, GitLab, Slack, AWS, a JWT (base64 of `{"`),
# Google, Hugging Face.
_SECRET = re.compile(r"(sk|pk|rk)[-_]\w|gh[opsu]_|github_pat_|glpat-|xox[a-z]-|AKIA|eyJ|AIza|hf_", re.ASCII)


def list_servers(config_dir: str | None, *, as_json: bool) -> tuple[str, bool]:
    """Return all servers of the file as text or JSON, and True if the file has errors. Problems go to stderr.

    An entry whose variables have no value is only a warning.
    """
    root = Root(config_dir=config_dir)
    servers = root.mcp
    config = servers.config
    for problem in config.problems:
        sys.stderr.write(safe(str(problem)) + "\n")
    warn_if_off(root)
    rows: list[dict[str, Any]] = []
    for server in config.servers.values():
        known, lacks = None, None
        # A disabled entry may lack variables, which is no reason for a warning.
        if not server.disabled:
            try:
                known = cached_catalog(servers, server)
            except ConfigError as error:
                lacks = str(error)
                sys.stderr.write(f"warning: {safe(lacks)}\n")
        rows.append(_row(server, known, lacks))
    rows += [{"name": name, "error": str(problem)} for name, problem in config.broken.items()]
    broken = bool(errors_in(config.problems))
    if as_json:
        return json_object(file=config.file, servers=rows, problems=msgspec.to_builtins(config.problems)), broken
    if not rows and broken:
        return f"{safe(config.file)} can't be read; stderr lists its problems\n", broken
    if not rows:
        return f"no MCP servers in {safe(config.file)}; to write some: callboard mcp init\n", broken
    cells = [[row["name"], _state(row), row.get("share", ""), row.get("reached", "")] for row in rows]
    return "\n".join([config.file, *(safe(line) for line in columns(cells))]) + "\n", broken


def warn_if_off(root: Root) -> None:
    """Warn on stderr if `mcp_server_support` is false: no run will use the servers then."""
    if not root.settings.mcp_server_support:
        text = f"MCP is turned off for all runs: `mcp_server_support` in {root.settings.file} is false"
        sys.stderr.write(f"callboard: {safe(text)}\n")


def lacks_program(server: Server) -> bool:
    """True if the server's program is not on the PATH; False if that depends on variables or on the run's directory."""
    command = server.command
    if not command or REFERENCE.search(command) or (os.sep in command and not Path(command).is_absolute()):
        return False
    path = server.env.get("PATH")
    return not (path and REFERENCE.search(path)) and shutil.which(command, path=path) is None


def address_text(server: Server) -> str:
    """Return the URL or the command line of the file's entry, without anything that looks like a secret."""
    if server.type != "stdio":
        return _address(server.url)
    return " ".join(_words((server.command, *server.args)))


def cached_catalog(servers: McpServers, server: Server) -> ServerCatalog | None:
    """Return the stored catalog of a server, reduced to the tools that its entry admits; None if it was never asked.

    Raises:
        ConfigError: its entry lacks a value, so the server is unknown.
    """
    catalog = servers.catalog(server.name)
    return None if catalog is None else catalog.within(server.tools)


def _row(server: Server, known: ServerCatalog | None, lacks: str | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": server.name,
        "type": server.type,
        "reached": address_text(server),
        "share": server.share,
        "trust": server.trust,
        "disabled": server.disabled,
        "found": not lacks_program(server),
        "tools": None,
        "asked": None,
        "error": lacks,
    }
    if known is not None:
        row |= {
            "tools": len(known.tools),
            "asked": datetime.fromtimestamp(known.fetched, UTC).isoformat(timespec="seconds"),
            "server": {"name": known.server.name, "version": known.server.version},
            "protocol": known.version,
        }
    return row


def _state(row: dict[str, Any]) -> str:
    if row["error"]:
        # Entries that could not be read have only a name and an error.
        return "can't be used" if "share" not in row else "lacks a value"
    if row["disabled"]:
        return "disabled"
    if not row["found"]:
        return "not found"
    return "never connected" if row["tools"] is None else counted(row["tools"], "tool")


def _words(words: tuple[str, ...]) -> Iterator[str]:
    """Yield the words of a command line with secrets masked:

    `--token x`, `KEY=x`, `X-Key: x`, `sk-x`, `http://me:x@host`.
    """
    named = False
    for word in words:
        name, equals, value = word.partition("=")
        header, colon, text = word.partition(":")
        # `${TOKEN}` is the name of a secret, not its value.
        if REFERENCE.fullmatch(value or word):
            yield word
        elif (named and not word.startswith("-")) or _SECRET.match(word):
            yield HIDDEN
        elif colon and _SECRET_NAME.search(header) and not text.startswith("//"):
            yield shlex.quote(word if REFERENCE.search(text) else f"{header}: {HIDDEN}")
        elif equals and (_SECRET_NAME.search(name) or _SECRET.match(value)):
            yield f"{name}={HIDDEN}"
        else:
            yield shlex.quote(_address(word) if "://" in word else word)
        named = not equals and word.startswith("-") and _SECRET_NAME.search(word) is not None


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return HIDDEN
    host = parts.netloc.rpartition("@")[2]
    if "@" in parts.netloc:
        host = f"{HIDDEN}@{host}"
    # All values: services take keys in the query under any name.
    query = re.sub(r"=[^&]+", f"={HIDDEN}", parts.query)
    return urlunsplit((parts.scheme, host, parts.path, query, ""))


T = TypeVar("T")

_TOLD = 240
"""Characters shown of a server's instructions, and of a tool's description."""


@dataclass(frozen=True, kw_only=True)
class ServerProbe:
    """Result of a connection test with one server.

    Attributes:
        entry: entry of `mcp.json`.
        seconds: duration of the handshake, or until it failed.
        facts: the server's description of itself, in the form of `-o json`; empty after a failure.
        error: failure, if any.
    """

    entry: Server
    seconds: float
    facts: dict[str, Any]
    error: CallboardError | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return the fields of `-o json`."""
        error = None if self.error is None else {"code": self.error.code, "message": str(self.error)}
        return {"name": self.entry.name, "seconds": round(self.seconds, 3), **self.facts, "error": error}

    def as_text(self) -> str:
        """Return the result as one line, with details below."""
        name, took = safe(self.entry.name), duration(self.seconds)
        if self.error is not None:
            lines = safe(str(self.error)).splitlines()
            return "\n".join([f"{name} FAILED in {took}", *(f"  {line}" for line in lines)]) + "\n"
        facts = self.facts
        told: list[list[str]] = [
            ["server", f"{facts['server']['name']} {facts['server']['version']}"],
            ["protocol", facts["protocol"]],
            ["reached", address_text(self.entry)],
        ]
        for kind in ("tools", "resources", "prompts"):
            names: list[str] = facts[kind]
            told.append([kind, f"{len(names)}: {', '.join(names)}" if names else "none"])
        if facts["instructions"]:
            told.append(["says", one_line(facts["instructions"], _TOLD)])
        rows = columns([[safe(cell) for cell in row] for row in told])
        return f"{name} works, ready in {took}\n{fitted(rows)}"


def test_servers(names: tuple[str, ...], config_dir: str | None, *, as_json: bool) -> int:
    """Test the servers concurrently, all of them without names; return the exit code of the first that failed.

    Each result is printed as soon as it is known, JSON at the end. Without names, problems of the file go to stderr,
    and an unusable entry counts as failed.

    Raises:
        UsageError: there is no such server, or none at all.
        InvalidFile: no entry of the file is usable.
        OSError: stdout can't be written.
    """
    progress = _progress()
    # Servers that are being probed end in order first; then the write error is raised.
    unwritten: list[OSError] = []

    def print_probe(met: ServerProbe) -> None:
        try:
            with progress.aside():
                sys.stdout.write(met.as_text())
                sys.stdout.flush()
        except OSError as error:
            unwritten.append(error)

    async def probe_all(me: Actor, root: Root) -> tuple[list[ServerProbe], tuple[Problem, ...]]:
        servers = root.mcp
        problems = () if names else servers.config.problems
        # dict.fromkeys: results are stored by name, so a name given twice is probed once.
        wanted = [servers.config.get(name) for name in dict.fromkeys(names or servers.config.names)]
        if not wanted:
            raise _nothing_to_probe(servers.config)
        warn_if_off(root)
        for problem in problems:
            sys.stderr.write(safe(str(problem)) + "\n")
        met: dict[str, ServerProbe] = {}

        async def probe(server: Server) -> None:
            met[server.name] = await _probe(me, scope, server)
            if not as_json and not unwritten:
                print_probe(met[server.name])

        with servers.scope(run=me.stream.run, agent=me.path) as scope:
            async with trio.open_nursery() as nursery:
                for server in wanted:
                    nursery.start_soon(probe, server)
        return [met[server.name] for server in wanted], problems

    found, problems = act(probe_all, config_dir=config_dir, progress=progress)
    if unwritten:
        raise unwritten[0]
    if as_json:
        servers = [each.to_wire() for each in found]
        sys.stdout.write(json_object(servers=servers, problems=msgspec.to_builtins(problems)))
    errors = [each.error for each in found if each.error is not None]
    return errors[0].exit_code if errors else UsageError.exit_code if errors_in(problems) else 0


def _nothing_to_probe(config: McpConfig) -> CallboardError:
    problems = errors_in(config.problems)
    if problems:
        what = "has no valid entry" if config.broken else "can't be read"
        told = "\n".join(map(str, problems))
        return InvalidFile(f"{config.file} {what}:\n{told}", config.problems)
    if config.servers:
        all_of = "the only MCP server" if len(config.servers) == 1 else f"all {len(config.servers)} MCP servers"
        verb = "is" if len(config.servers) == 1 else "are"
        return UsageError(f'{all_of} of {config.file} {verb} disabled; to use one, remove "disabled" from its entry')
    return UsageError(f"there is no MCP server in {config.file}; to write some: callboard mcp init")


def _progress() -> ProgressDisplay:
    return choose_display(sys.stderr, quiet=not redrawable(sys.stderr), verbose=False)


async def _probe(me: Actor, scope: ServerScope, server: Server) -> ServerProbe:
    began = trio.current_time()
    seconds = 0.0
    facts: dict[str, Any] = {}
    error: CallboardError | None = None
    try:
        async with scope.client(server.name, me) as client:
            seconds = trio.current_time() - began
            # A server may complete the handshake, which has its own limit, and never answer `resources/list`.
            facts = await _in_time(server, _facts(client, await scope.catalog(server.name, me)))
    except CallboardError as failed:
        # `..failure` hides secrets of errors that end a command; this one is printed by `as_text`.
        hide_in(failed)
        error = failed
        seconds = trio.current_time() - began
    return ServerProbe(entry=server, seconds=seconds, facts=facts, error=error)


async def _in_time(server: Server, asking: Awaitable[T]) -> T:
    with trio.move_on_after(server.timeout_seconds):
        return await asking
    raise McpLost(
        f"MCP server '{server.name}' did not list its resources and prompts within {server.timeout_seconds:g} s "
        f"(timeout_seconds of {entry_of(server)})"
    )


async def _facts(client: McpClient, catalog: ServerCatalog) -> dict[str, Any]:
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
    """Print the tools of a server that agents may use, and return 0. Starts the server unless `cached` is set.

    Raises:
        UsageError: there is no such server, or with `cached` no stored catalog.
        McpError, McpLost, ConfigError: the server can't be queried.
    """
    if cached:
        root = Root(config_dir=config_dir)
        server = root.mcp.config.get(name)
        permissions = Permissions(root.registry.permissions(root.settings.permissions))
        catalog = cached_catalog(root.mcp, server)
        if catalog is None:
            raise UsageError(
                f"MCP server '{name}' was never started, so its tools are not known; to start it, leave out --cached"
            )
    else:
        server, catalog, permissions = act(partial(_ask, name), config_dir=config_dir, progress=_progress())
    rows = [_tool_row(server, tool, permissions) for tool in catalog.tools]
    if as_json:
        sys.stdout.write(json_object(server=name, protocol=catalog.version, tools=rows))
        return 0
    who = f"{catalog.server.name} {catalog.server.version}".strip()
    sys.stdout.write(safe(f"{name} ({who}): {counted(len(rows), 'tool')}\n"))
    cells = [
        [safe(_signature(row["name"], row["parameters"])), ASKS[row["permission"]], one_line(row["description"], _TOLD)]
        for row in rows
    ]
    sys.stdout.write(fitted(columns(cells)))
    return 0


def _signature(tool: str, schema: dict[str, Any]) -> str:
    """Format a signature: `convert_time(source_timezone, time, format?)`; optional arguments have a question mark."""
    properties, required = schema.get("properties"), schema.get("required")
    names = list(properties) if isinstance(properties, dict) else []
    needed = required if isinstance(required, list) else []
    return f"{tool}({', '.join(name if name in needed else f'{name}?' for name in names)})"


async def _ask(name: str, me: Actor, root: Root) -> tuple[Server, ServerCatalog, Permissions]:
    server = root.mcp.config.get(name)
    with root.mcp.scope(run=me.stream.run, agent=me.path) as scope:
        async with scope.client(name, me):
            catalog = await scope.catalog(name, me)
    return server, catalog, Permissions(root.registry.permissions(root.settings.permissions))


def _tool_row(server: Server, tool: ServerTool, permissions: Permissions) -> dict[str, Any]:
    # Permissions are decided for a `Tool`, by its name, its alias (`server__tool` in rules) and its effect; it is never
    # called.
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


# --- a first mcp.json --------------------------------------------------------------------------------------

_LACKS = (
    "uvx, which starts the server 'time', was not found on the PATH: install uv (https://docs.astral.sh/uv/),\n"
    "or configure another server there\n"
)


def make_mcp_json(config_dir: str | None, *, force: bool) -> str:
    """Write `mcp.json` into the configuration directory; return a message for the user.

    Raises:
        UsageError: it can't be written; or it or Loki's `functions/mcp.json` exists, and `force` is False.
    """
    base, _ = configured(config_dir, os.environ)
    file, loki = base / "mcp.json", user_folder("functions", base) / "mcp.json"
    # Loki's file counts too: once mcp.json exists, functions/mcp.json is no longer read.
    for there in (file, loki):
        if there.exists() and not force:
            hint = "--force overwrites it" if there == file else f"--force writes {file}, which replaces it"
            raise UsageError(f"{there} exists, and was not changed; {hint}")
    write_files({file: (Path(__file__).parents[1] / "templates" / "mcp.json").read_bytes()})
    hidden = f"{loki} is no longer used\n" if loki.exists() else ""
    then = "\ncallboard mcp test time\n" if shutil.which("uvx") else _LACKS
    return f"wrote {file}\n{hidden}{then}"


HOST, PORT = "127.0.0.1", 8808


def serve_agents(
    *,
    agents: tuple[str, ...],
    http: bool,
    host: str | None,
    port: int | None,
    token_file: str | None,
    model: str | None,
    yes: bool,
    allow: tuple[str, ...],
    roots: tuple[str, ...],
    quiet: bool,
    config_dir: str | None,
) -> int:
    """Serve until the client disconnects (0) or a signal arrives (128 plus its number); return that exit code.

    The arguments are the flags of `callboard mcp serve`.

    Raises:
        UsageError: there is no such agent, or the address can't be bound.
        ConfigError: a package for serving over HTTP is not installed.
    """
    # Deferred: loads what a run needs, which no other command of this module does.
    from ...actors.front.mcp_server.service import ServiceOptions, read_agents

    flag_values.directories(roots)
    token = None if token_file is None else _token(Path(token_file))
    options = ServiceOptions(model=model, allow=allow, yes=yes, roots=roots)

    def say(text: str) -> None:
        if not quiet:
            sys.stderr.write(f"callboard: {safe(text)}\n")
            sys.stderr.flush()

    async def serve(root: Root) -> int:
        offers, problems = await trio.to_thread.run_sync(read_agents, root, agents)
        for problem in problems:
            say(f"warning: {problem}")
        names = ", ".join(offers)
        if root.settings.mcp_server_support:
            # link=False: a server that can't be started must not end this one; it is tried again later.
            root.kernel.spawn(lambda _: root.mcp.warm(), name="warm", link=False)
        if http:
            from ...actors.front.mcp_server.serving import serve_http

            await serve_http(
                root,
                offers,
                host=host or HOST,
                port=PORT if port is None else port,
                token=token,
                options=options,
                on_listening=lambda url: say(f"serving {names} at {url} (Ctrl-C ends it)"),
            )
        else:
            from ...actors.front.mcp_server.serving import serve_stdio

            if sys.stdin.isatty():
                say(f"serving {names} over stdin and stdout, where an MCP client should be (Ctrl-C ends it)")
            await serve_stdio(root, offers, options=options)
        return exit_code_of(root)

    # person=False: over stdio, standard input belongs to the MCP client.
    return play(serve, ProgressDisplay(), config_dir=config_dir, person=False, serving=True)


def _token(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"--token-file {file}: can't be read: {reason}") from error
    # A bearer token in a header has neither blanks nor other characters (RFC 6750, section 2.1).
    if not text or not text.isascii() or any(char.isspace() for char in text):
        raise UsageError(f"--token-file {file}: a token is one line of ASCII characters without blanks")
    return text
