"""Labels of a call: the labels of its result (`source_of`), and whether it sends data away (`sends`).

Both follow the mechanism of the tool. Labels of a result:

    files       labels of the path (`PathLabels`)
    web         untrusted
    process     private if its sandbox lets it read a private path; untrusted if so (the file may be anyone's), if it
                can reach a network, or if the workspace is not trusted. Hosts behind the proxy count when one is
                reached (`Flow.reached`)
    MCP server  untrusted and private, unless the user's `mcp.json` says otherwise
    function    of the program that embeds Callboard: none, unless its author has declared labels
    family      none of its own: children and team messages are parts of the same run

A call that fails has the same labels: its error may quote text that it has read.

Calls that send data away, to a network, to other people, or to systems of others:

    files, family   never: their output stays in the run
    web             the URL, or the query, goes to a host that the model has chosen
    process         if it can reach a host that the user has not named; a network behind the proxy asks by itself
    MCP server      unless the user's `mcp.json` labels it `inside`, or its process has no network
    function        if its author says so (`effect` of the tool)

Approved are the URLs that the user has typed, and the hosts that the user has named (`network` of the sandbox, rules
for `host:`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..sandbox.exposure import UNBOUNDED, Exposure
from ..sandbox.run_sandbox import current
from ..tools.tool import Arguments, Tool
from .labels import NOTHING, Labels, PathLabels

if TYPE_CHECKING:
    from ..knowledge.recipe import Recipe


SEARCHES = ("fs_grep",)
"""Tools that read the contents of all files below a directory."""


async def source_of(tool: Tool, arguments: Arguments, paths: PathLabels, *, past: bool = False) -> Labels:
    """Return the labels of the result of a call.

    Args:
        past: an earlier run made the call; the hosts that its processes have reached are unknown.
    """
    way = way_of(tool, arguments)
    if tool.origin == "mcp":
        return await _of_server(tool, way, paths)
    found = Labels(
        # `elsewhere`: the caller of the run executes the tool, so nothing is known of its result.
        untrusted=(way,) if "outside" in tool.labels or tool.elsewhere else (),
        private=(way,) if "private" in tool.labels or tool.elsewhere else (),
    )
    if tool.origin in ("family", "function"):
        return found
    if tool.access == "web":
        return found.plus(Labels(untrusted=(way,)))
    if tool.access == "process":
        found = found.plus(of_process(await exposure_of(tool, paths), way, paths, past=past))
        # SQL tools read the named database file, in addition to the files that their process could read.
        path = arguments.get("database")
        return found.plus(paths.of_path(path, way)) if isinstance(path, str) and path else found
    if tool.access == "files" and tool.reads:
        path = arguments.get("path") or "."
        if isinstance(path, str) and "\0" not in path:
            found = found.plus(paths.of_path(path, way, whole=tool.name in SEARCHES))
    return found


async def _of_server(tool: Tool, way: str, paths: PathLabels) -> Labels:
    """Return the labels of a server's result.

    The user's `mcp.json` decides first, then the sandbox. Statements of the server about itself never count.
    """
    said = tool.labels
    if "inside" in said:
        private, untrusted = "private" in said, True
    else:
        exposure = await exposure_of(tool, paths)
        possible = bool(exposure.reads) or exposure.reaches != "nothing"
        private = "private" in said or (possible and "public" not in said)
        untrusted = possible or not paths.is_trusted
    return Labels(
        untrusted=(way,) if untrusted and "trusted" not in said else (),
        private=(way,) if private else (),
    )


async def exposure_of(tool: Tool, paths: PathLabels) -> Exposure:
    """Return the files that the process of a tool could read and the hosts that it could reach.

    Everything for a remote MCP server, and without a sandbox.
    """
    if tool.origin == "mcp":
        if "remote" in tool.labels or not tool.server:
            return UNBOUNDED
        server, *words = tool.server
        return await exposure_named(server, paths, server=True, words=words)
    from ..sandbox.launch import is_ours

    return await exposure_named(tool.name, paths, ours=is_ours(tool.file))


async def exposure_named(
    name: str, paths: PathLabels, *, server: bool = False, words: Iterable[str] = (), ours: bool = False
) -> Exposure:
    """Return the exposure of a process of this name in the sandbox of the caller; without a sandbox it is unbounded."""
    sandbox = current.get()
    if sandbox is None:
        return UNBOUNDED
    return await sandbox.exposure(name, paths.roots, server=server, words=tuple(words), ours=ours)


def of_process(exposure: Exposure, way: str, paths: PathLabels, *, past: bool = False) -> Labels:
    """Return the labels of the output of a process.

    It is private if the process can read a private path. It is untrusted if it is private, if the process can reach any
    host, or if the workspace is not trusted.

    Args:
        past: the process ran in an earlier run; then one that could ask for hosts counts as having reached one.
    """
    private = (f"{way} (it can read {exposure.reads})",) if exposure.reads else ()
    # The hosts that a past process reached were not recorded; a live one reports them to `Flow.reached`.
    unknown = exposure.reaches == "anything" or (past and exposure.reaches != "nothing")
    return Labels(untrusted=(way,) if private or unknown or not paths.is_trusted else (), private=private)


def of_knowledge(recipes: Iterable[Recipe], paths: PathLabels) -> Labels:
    """Return the labels of passages of knowledge bases.

    They are untrusted, and private if a local document is, or if a base lists no documents. A base of documents that
    ship with Callboard has no labels.
    """
    from ..sandbox.launch import LIBRARY

    found = NOTHING
    for recipe in recipes:
        way = recipe.what
        local = [path for path in recipe.documents if "://" not in path]
        bases = [os.path.realpath(recipe.base / Path(path).expanduser()) for path in local]
        # Documents that ship with Callboard itself carry no labels.
        ours = all(Path(each).is_relative_to(LIBRARY.resolve()) for each in bases)
        if ours and bases and len(bases) == len(recipe.documents):
            continue
        private = not recipe.documents or paths.of_any(local, way, base=recipe.base).private
        found = found.plus(Labels(untrusted=(way,), private=(way,) if private else ()))
    return found


def way_of(tool: Tool, arguments: Arguments) -> str:
    """Return a short description of a call, for the user."""
    value = arguments.get(tool.subject) if tool.subject else next(iter(arguments.values()), "")
    return f"{tool.name} {str(value)[:100]}".strip()


_BETWEEN = re.compile(r"[\s<>\"'`()\[\]{}|]+")
_END = ".,;:!?"


async def sends(tool: Tool, arguments: Arguments, paths: PathLabels, typed: str) -> bool:
    """Return whether a call sends away arguments that the model has written.

    Args:
        typed: the words of the user; a URL among them is approved.
    """
    if tool.effect == "send" or "sends" in tool.labels:
        return True
    if tool.origin == "mcp":
        return "inside" not in tool.labels and (await exposure_of(tool, paths)).reaches == "anything"
    if tool.origin in ("family", "function"):
        return False
    if tool.access == "web":
        return not _is_approved(str(arguments.get("url", "")), typed)
    return tool.access == "process" and (await exposure_of(tool, paths)).reaches == "anything"


def _is_approved(url: str, typed: str) -> bool:
    """True if the user has typed this whole URL, or named its host."""
    if not url:
        return False
    # In prose, a full stop or a comma may follow the URL.
    if any(url in (word, word.rstrip(_END)) for word in _BETWEEN.split(typed)):
        return True
    sandbox = current.get()
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return False
    # `@`: in `https://approved.example@other.example/` the approved host is only a user name.
    if sandbox is None or parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        return False
    return sandbox.approves(parts.hostname, port)
