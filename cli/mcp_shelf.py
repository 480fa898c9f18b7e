"""What `callboard mcp list` prints: the servers of `mcp.json`, and what is remembered of them. None is started."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from .. import Root
from ..actors.work.mcp.pool.catalog import Catalog
from ..actors.work.mcp.pool.servers import McpServers
from ..protocol.errors import ConfigError
from ..protocol.mcp.config import Server
from ..protocol.problems import Problem, errors_in
from ..protocol.references import REFERENCE
from .render.table import columns
from .render.text import counted, json_object, safe

HIDDEN = "***"
_SECRET_NAME = re.compile(r"token|key|secret|passw|auth|credential|bearer", re.IGNORECASE)
_SECRET = re.compile(r"(sk|pk|rk)[-_]\w|gh[opsu]_|github_pat_|glpat-|xox[a-z]-|AKIA|eyJ|AIza|hf_", re.ASCII)


def list_servers(config_dir: str | None, *, as_json: bool) -> tuple[str, bool]:
    """All servers of the file, and whether an entry can't be used. Problems go to stderr."""
    root = Root(config_dir=config_dir)
    servers = root.mcp
    config = servers.config
    for problem in config.problems:
        sys.stderr.write(safe(str(problem)) + "\n")
    tell_if_off(root)
    rows: list[dict[str, Any]] = []
    for server in config.servers.values():
        known, lacks = None, None
        if not server.disabled:
            try:
                known = remembered(servers, server)
            except ConfigError as error:
                lacks = str(error)
                sys.stderr.write(f"warning: {safe(lacks)}\n")
        rows.append(_row(server, known, lacks))
    rows += [{"name": name, "error": str(problem)} for name, problem in config.broken.items()]
    broken = bool(errors_in(config.problems))
    if as_json:
        return json_object(file=config.file, servers=rows, problems=to_wire(config.problems)), broken
    if not rows and broken:
        return f"{safe(config.file)} can't be read; stderr says what to mend\n", broken
    if not rows:
        return f"no MCP servers in {safe(config.file)}; callboard mcp init writes some to begin with\n", broken
    cells = [[row["name"], _state(row), row.get("share", ""), row.get("reached", "")] for row in rows]
    return "\n".join([config.file, *(safe(line) for line in columns(cells))]) + "\n", broken


def tell_if_off(root: Root) -> None:
    """To say on stderr that no run will use the servers, whatever comes of this."""
    if not root.settings.mcp_server_support:
        text = f"MCP is turned off for all runs: `mcp_server_support` in {root.settings.file} is false"
        sys.stderr.write(f"callboard: {safe(text)}\n")


def to_wire(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """Problems as JSON shows them."""
    found: list[dict[str, Any]] = msgspec.to_builtins(list(problems))
    return found


def lacks_program(server: Server) -> bool:
    """Whether its program is not here, as far as that can be seen without starting it."""
    command = server.command
    if not command or REFERENCE.search(command) or (os.sep in command and not Path(command).is_absolute()):
        return False
    path = server.env.get("PATH")
    return not (path and REFERENCE.search(path)) and shutil.which(command, path=path) is None


def reached(server: Server) -> str:
    """How the server is reached, as the file says it, without what looks like a secret."""
    if server.type != "stdio":
        return _address(server.url)
    return " ".join(_words((server.command, *server.args)))


def remembered(servers: McpServers, server: Server) -> Catalog | None:
    """What the server offered when it was last asked, as far as we may use it; None if it never was.

    Raises:
        ConfigError: its entry lacks a value, so the server is unknown.
    """
    catalog = servers.catalog(server.name)
    return None if catalog is None else catalog.within(server.tools)


def _row(server: Server, known: Catalog | None, lacks: str | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": server.name,
        "type": server.type,
        "reached": reached(server),
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
        return "can't be used" if "share" not in row else "lacks a value"
    if row["disabled"]:
        return "disabled"
    if not row["found"]:
        return "not found"
    return "not asked yet" if row["tools"] is None else counted(row["tools"], "tool")


def _words(words: tuple[str, ...]) -> Iterator[str]:
    """A command line without what looks like a secret: `--token x`, `KEY=x`, `X-Key: x`, `sk-x`, `http://me:x@host`."""
    named = False
    for word in words:
        name, equals, value = word.partition("=")
        header, colon, text = word.partition(":")
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
    """The address with its password, and the values of its query, hidden."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return HIDDEN
    host = parts.netloc.rpartition("@")[2]
    if "@" in parts.netloc:
        host = f"{HIDDEN}@{host}"
    query = re.sub(r"=[^&]+", f"={HIDDEN}", parts.query)
    return urlunsplit((parts.scheme, host, parts.path, query, ""))
