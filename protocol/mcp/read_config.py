"""Reads `mcp.json`, and says all that is wrong with it, each with its line.

Files written for other programs are understood as they are: comments, `servers` for `mcpServers`, `transport` for
`type`, `serverUrl` and `httpUrl` for `url`, `timeout`. Without a `type` the entry is what it looks like. A mistake
costs the entry it is in; unknown keys cost nothing and are warned about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from ..problems import Problem, errors_in
from ..reading import YAML_ERROR, Reading, in_file_order
from ..references import REFERENCE
from ..tree import Entry, Mapping, Node, Path, Scalar, Sequence, describe, dotted, plain
from . import jsonc
from .config import NO_HEADER_VALUE, McpConfig, Server, Transport, is_header_value, is_web_address

SHAPE = '{"mcpServers": {"name": {"command": "...", "args": ["..."]}}}'
ROOTS = ("mcpServers", "servers")
TYPES: dict[str, Transport] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}
"""Every value of `type`, and what it means."""

ALIASES = {"transport": "type", "serverUrl": "url", "httpUrl": "url", "timeout": "timeout_seconds"}
PERMISSIONS = ("alwaysAllow", "autoApprove")
"""Keys of other programs by which a tool goes ahead unasked."""

MILLISECONDS = 3600
"""A `timeout` beyond this is meant in milliseconds, as some programs have it."""


def read_mcp(source: str, file: str) -> McpConfig:
    """The servers of an `mcp.json`; `file` is how problems call it."""
    root, problems = jsonc.parse(source.removeprefix("\ufeff"), file)
    reading = Reading(file)
    reader = _Reader(reading)
    if root is not None:
        reader.file(root)
    found = [_worded(problem) for problem in reading.problems]
    return McpConfig(
        file=file,
        servers=reader.servers,
        broken={name: _worded(problem) for name, problem in reader.broken.items()},
        problems=tuple(in_file_order([*problems, *found])),
    )


def _worded(problem: Problem) -> Problem:
    """A problem without the words, and the remedies, that are meant for YAML."""
    hint = None if problem.code == "wrong_type" else problem.hint
    return msgspec.structs.replace(problem, message=problem.message.removeprefix(YAML_ERROR), hint=hint)


class _Reader:
    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.servers: dict[str, Server] = {}
        self.broken: dict[str, Problem] = {}

    def file(self, root: Node) -> None:
        """Every server of the file."""
        if not isinstance(root, Mapping):
            self.reading.report("error", "not_a_mapping", f"the file holds {describe(root)}", (), root, expected=SHAPE)
            return
        key = next((key for key in ROOTS if key in root.entries), None)
        if key is None:
            self.bare(root)
            return
        for other, entry in root.entries.items():
            if other not in (key, "$schema") and not other.startswith("x-"):
                what = f"unknown key `{other}` beside `{key}`; it has no effect"
                self.reading.report("warning", "unknown_key", what, (other,), _place(entry))
        servers = root.entries[key].value
        if isinstance(servers, Mapping):
            self.entries(servers, (key,))
        else:
            what = f"`{key}` is {describe(servers)}"
            self.reading.report("error", "wrong_type", what, (key,), servers, expected=SHAPE)

    def bare(self, root: Mapping) -> None:
        """A file without `mcpServers`: servers at the top level, or nothing, or something else."""
        entries = {key: entry for key, entry in root.entries.items() if key != "$schema"}
        if not entries:
            return
        if all(_looks_like_a_server(entry.value) for entry in entries.values()):
            what = "the servers stand at the top level of the file"
            self.reading.report("warning", "no_root_key", what, (), root, hint='put {"mcpServers": ...} around them.')
            self.entries(msgspec.structs.replace(root, entries=entries), ())
        else:
            self.reading.report("error", "missing_key", "the file has no `mcpServers`", (), root, expected=SHAPE)

    def entries(self, servers: Mapping, path: Path) -> None:
        for name, entry in servers.entries.items():
            before = len(self.reading.problems)
            server = self.server(name, entry, (*path, name))
            errors = errors_in(self.reading.problems[before:])
            if errors:
                self.broken[name] = errors[0]
            elif server is not None:
                self.servers[name] = server
                self.check_name(name, entry, (*path, name))

    def check_name(self, name: str, entry: Entry, path: Path) -> None:
        """Tools are called `server__tool`, so `a__b` can't be told from the tools of `a`."""
        for other in self.servers:
            shorter, longer = sorted((name, other), key=len)
            if longer.startswith(f"{shorter}__"):
                begin = longer.removeprefix(f"{shorter}__")
                what = f"rules for `{longer}__*` hold for tools of '{shorter}' that begin with `{begin}__`"
                self.reading.report("warning", "names_overlap", what, path, _place(entry), hint="rename one of them.")

    # one server

    def server(self, name: str, entry: Entry, path: Path) -> Server | None:
        place = _place(entry)
        if not name or name != name.strip() or name == "all" or re.search(r"[,\x00-\x1f\x7f]", name):
            what = f"an MCP server can't be called {name!r}: names stand in lists like `a, b`, or `all`"
            self.reading.report("error", "bad_name", what, path, place)
            return None
        if not isinstance(entry.value, Mapping):
            self.misfit(entry.value, path, 'an object with "command" or "url"')
            return None
        node = self.understood(entry.value, path)
        kind = self.kind(name, node, path, place)
        given = {
            "name": name,
            "where": f"{self.reading.file}:{entry.line}",
            "type": kind or "stdio",
            **{key: self.texts(node, key, path) for key in ("env", "headers")},
        }
        tools = node.entries.get("tools")
        if tools is not None and isinstance(tools.value, Sequence):  # a list is the tools that are allowed
            allow = {"allow": Entry(tools.value, tools.line, tools.column)}
            node.entries["tools"] = msgspec.structs.replace(tools, value=Mapping(allow, tools.line, tools.column))
        server = self.reading.fill(
            Server, node, path, what=f"MCP server '{name}'", given=given, hidden=("name", "where")
        )
        if kind is not None:
            self.check(server, node, path, place)
        return server

    def understood(self, entry: Mapping, path: Path) -> Mapping:
        """The entry with the keys of other programs replaced by ours, and without those that are nothing."""
        entries: dict[str, Entry] = {}
        for key, value in entry.entries.items():
            here = (*path, key)
            place = _place(value)
            ours = ALIASES.get(key, key)
            if key in PERMISSIONS:
                what = f"`{key}` has no effect: what may go ahead unasked, `trust` and `permissions` say"
                hint = f'write "trust": "full" here, or `permissions: {{"{path[-1]}__*": allow}}` in config.yaml.'
                self.reading.report("warning", "ignored_key", what, here, place, hint=hint)
            elif ours != key and ours in entry.entries:
                what = f"`{key}` has no effect beside `{ours}`"
                self.reading.report("warning", "ignored_key", what, here, place)
            elif not _is_null(value.value):
                entries[ours] = self.timeout(value, here) if key == "timeout" else value
        return msgspec.structs.replace(entry, entries=entries)

    def timeout(self, entry: Entry, path: Path) -> Entry:
        node = entry.value
        if not isinstance(node, Scalar) or not isinstance(node.value, int | float) or node.value <= MILLISECONDS:
            return entry
        seconds = node.value / 1000
        what = f"`timeout` {node.text} is taken as milliseconds, that is {seconds:g} s"
        self.reading.report("warning", "taken_as", what, path, node, hint=f'write "timeout_seconds": {seconds:g}.')
        return msgspec.structs.replace(entry, value=msgspec.structs.replace(node, value=seconds))

    def kind(self, name: str, node: Mapping, path: Path, place: tuple[int, int]) -> Transport | None:
        """What `type` says, or the other keys where it is left out."""
        given = node.entries.get("type")
        if given is None:
            if "command" in node.entries and "url" in node.entries:
                what = f'MCP server \'{name}\' has both "command" and "url"'
                self.reading.report("error", "bad_server", what, path, place, expected="one of them")
                return None
            if "command" not in node.entries and "url" not in node.entries:
                what = f'MCP server \'{name}\' has neither a "command" nor a "url" field'
                hint = 'a program is started by "command" and "args", one that runs elsewhere is reached by "url".'
                self.reading.report("error", "bad_server", what, path, place, hint=hint)
                return None
            return "stdio" if "command" in node.entries else "http"
        value = given.value.value if isinstance(given.value, Scalar) else None
        kind = TYPES.get(value) if isinstance(value, str) else None
        if kind is None:
            self.misfit(given.value, (*path, "type"), "one of stdio, http, sse")
        return kind

    def check(self, server: Server, node: Mapping, path: Path, place: tuple[int, int]) -> None:
        """What fits the type, and what each value has to be beyond its own type."""
        who = f"MCP server '{server.name}'"
        own, strange, why = _FIELDS[server.type == "stdio"]
        filled = {key for key, entry in node.entries.items() if plain(entry.value) not in ("", [], {})}
        if own not in filled:
            what = (
                f'{who} is missing a "command" field (required for stdio transport)'
                if own == "command"
                else f'{who} has type "{server.type}" but is missing a "url" field'
            )
            self.reading.report("error", "missing_key", what, path, place, hint=f'add "{own}": "...".')
        for key in (key for key in strange if key in filled):
            what = f'{who} has type "{server.type}" but also specifies {why}'
            hint = f'remove "{key}", or change the type.'
            self.reading.report("error", "bad_server", what, (*path, key), _place(node.entries[key]), hint=hint)
        if server.env and server.type != "stdio":
            what = f'`env` has no effect on {who}: it is not started here, type "{server.type}"'
            self.reading.report("warning", "ignored_key", what, (*path, "env"), _place(node.entries["env"]))
        for problem, key, remedy in _oddities(server):
            at = _place(node.entries[re.split(r"[.\[]", key)[0]])
            self.reading.report("error", "bad_value", f"{who}: {problem}", (*path, key), at, hint=remedy)
        if server.warm and server.share != "pool":
            what = f'`warm` has no effect on {who}: only what is shared by all ("share": "pool") is kept'
            self.reading.report("warning", "ignored_key", what, (*path, "warm"), _place(node.entries["warm"]))

    def texts(self, node: Mapping, key: str, path: Path) -> dict[str, str]:
        """The texts under a key; numbers and booleans count as they are written."""
        entry = node.entries.get(key)
        if entry is None:
            return {}
        if not isinstance(entry.value, Mapping):
            self.misfit(entry.value, (*path, key), "an object with texts")
            return {}
        texts: dict[str, str] = {}
        for name, each in entry.value.entries.items():
            if isinstance(each.value, Scalar) and each.value.value is not None:
                texts[name] = each.value.text
            else:
                self.misfit(each.value, (*path, key, name), "text, a number, true or false")
        return texts

    def misfit(self, node: Node, path: Path, expected: str) -> None:
        what = f"invalid type: `{dotted(path)}` is {describe(node)}"
        self.reading.report("error", "wrong_type", what, path, node, expected=expected)


_FIELDS = {
    True: ("command", ("url", "headers"), "remote fields (url/headers)"),
    False: ("url", ("command", "args", "cwd"), "stdio fields (command/args/cwd)"),
}
"""For stdio, and for the others: the key that is needed, and those that are out of place."""

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _oddities(server: Server) -> Iterator[tuple[str, str, str | None]]:
    """What no process and no request can have: what is wrong, with which key, and what to do."""
    texts = [("command", server.command), ("cwd", server.cwd or ""), ("url", server.url)]
    texts += [(f"args[{i}]", text) for i, text in enumerate(server.args)]
    texts += [(f"env.{name}", text) for name, text in server.env.items()]
    for key, value in texts:
        if "\x00" in value:
            yield f"`{key}` has a NUL character in it", key, None
    for name in server.env:
        if not name or "=" in name or "\x00" in name:
            yield f"no variable can be called {name!r}", f"env.{name}", None
    for name, text in server.headers.items():
        if not _HEADER.fullmatch(name):
            yield f"no header can be called {name!r}", f"headers.{name}", None
        if not is_header_value(text):
            yield f"the value of header {name} {NO_HEADER_VALUE}", f"headers.{name}", None
    if server.url and not REFERENCE.search(server.url) and not is_web_address(server.url):
        yield f"`url` is {server.url!r}", "url", "write an address that begins with http:// or https://."
    first, _, rest = server.command.partition(" ")
    if rest and "/" not in first and not server.args:
        words = ", ".join(f'"{word}"' for word in rest.split())
        yield (
            f"`command` is {server.command!r}, with arguments",
            "command",
            f'write "command": "{first}", "args": [{words}].',
        )


def _looks_like_a_server(node: Node) -> bool:
    keys = {"command", "url", *(key for key, ours in ALIASES.items() if ours == "url")}
    return isinstance(node, Mapping) and not keys.isdisjoint(node.entries)


def _place(entry: Entry) -> tuple[int, int]:
    return entry.line, entry.column


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None
