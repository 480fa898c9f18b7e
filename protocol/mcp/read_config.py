"""Reader of `mcp.json`, which reports all its problems with their lines.

Files of other programs are accepted: comments, `servers` for `mcpServers`, `transport` for `type`, `serverUrl` and
`httpUrl` for `url`, `timeout`, `auth` for `oauth`. Without a `type`, the other keys decide. An error only affects its
own entry; unknown keys are warnings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ..environment import REFERENCE
from ..problems import Problem, errors_in
from ..reading import YAML_ERROR, Cursor, Reading, in_file_order
from ..schema import schema_of
from ..tree import Entry, Mapping, Node, Scalar, Sequence, describe, is_null, plain
from . import jsonc
from .config import NO_HEADER_VALUE, McpConfig, OAuth, Server, ToolList, Transport, is_header_value, is_web_address

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
"""Values of `type`, and their meanings."""

# `serverUrl` is Windsurf's key, `httpUrl` Gemini CLI's; `servers` in `ROOTS` is that of VS Code.
ALIASES = {"transport": "type", "serverUrl": "url", "httpUrl": "url", "timeout": "timeout_seconds", "auth": "oauth"}
OAUTH_ALIASES = {
    "client_id": "clientId",
    "CLIENT_ID": "clientId",
    "client_secret": "clientSecret",
    "CLIENT_SECRET": "clientSecret",
    "scope": "scopes",
    "callback_port": "callbackPort",
    "redirect_uri": "redirectUri",
}
TOOL_LISTS = {
    "disabledTools": "deny",
    "excludeTools": "deny",
    "disabled_tools": "deny",
    "enabledTools": "allow",
    "includeTools": "allow",
    "enabled_tools": "allow",
}
"""Keys of other programs that list a server's tools, and the equivalent keys of `tools`."""

PERMISSIONS = ("alwaysAllow", "autoApprove")
"""Keys of other programs that exempt a tool from permission."""

MILLISECONDS = 3600
"""Threshold above which a `timeout` is in milliseconds, as in some programs."""


def read_mcp(source: str, file: str) -> McpConfig:
    """Return the servers of an `mcp.json`; `file` is its name in problems."""
    root, problems = jsonc.parse(source.removeprefix("\ufeff"), file)
    reading = Reading(file)
    reader = _Reader(reading)
    if root is not None:
        reader.file(Cursor(reading, root))
    found = [_worded(problem) for problem in reading.problems]
    return McpConfig(
        file=file,
        servers=reader.servers,
        broken={name: _worded(problem) for name, problem in reader.broken.items()},
        problems=tuple(in_file_order([*problems, *found])),
    )


def _worded(problem: Problem) -> Problem:
    hint = None if problem.code == "wrong_type" else problem.hint
    return msgspec.structs.replace(problem, message=problem.message.removeprefix(YAML_ERROR), hint=hint)


class _Reader:
    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.servers: dict[str, Server] = {}
        self.broken: dict[str, Problem] = {}

    def file(self, top: Cursor) -> None:
        """Read every server of the file."""
        if not isinstance(top.node, Mapping):
            top.error("not_a_mapping", f"the file holds {describe(top.node)}", expected=SHAPE)
            return
        key = next((key for key in ROOTS if key in top.entries), None)
        if key is None:
            self.bare(top)
            return
        for other in top.entries:
            if other not in (key, "$schema") and not other.startswith("x-"):
                what = f"unknown key `{other}` beside `{key}`; it has no effect"
                top.key(other).warn("unknown_key", what)
        if isinstance(top[key].node, Mapping):
            self.entries(top[key])
        else:
            top[key].error("wrong_type", f"`{key}` is {describe(top[key].node)}", expected=SHAPE)

    def bare(self, top: Cursor) -> None:
        """Read a file without `mcpServers`: servers at the top level, or nothing, or other contents."""
        top.entries.pop("$schema", None)
        if is_root_of_servers(top.entries):
            what = "the servers stand at the top level of the file"
            top.warn("no_root_key", what, 'put {"mcpServers": ...} around them.')
            self.entries(top)
        elif top.entries:
            top.error("missing_key", "the file has no `mcpServers`", expected=SHAPE)

    def entries(self, servers: Cursor) -> None:
        for name in servers.entries:
            before = len(self.reading.problems)
            entry = servers.key(name)
            server = self.server(name, entry)
            errors = errors_in(self.reading.problems[before:])
            if errors:
                self.broken[name] = errors[0]
            elif server is not None:
                self.servers[name] = server
                self.check_name(name, entry)

    def check_name(self, name: str, entry: Cursor) -> None:
        """Warn about ambiguous names: tools are called `server__tool`, so `a__b` looks like tools of `a`."""
        for other in self.servers:
            shorter, longer = sorted((name, other), key=len)
            if longer.startswith(f"{shorter}__"):
                begin = longer.removeprefix(f"{shorter}__")
                what = f"rules for `{longer}__*` hold for tools of '{shorter}' that begin with `{begin}__`"
                entry.warn("names_overlap", what, "rename one of them.")

    # one server

    def server(self, name: str, entry: Cursor) -> Server | None:
        if not name or name != name.strip() or name == "all" or re.search(r"[,\x00-\x1f\x7f]", name):
            what = f"an MCP server can't be called {name!r}: names stand in lists like `a, b`, or `all`"
            entry.error("bad_name", what)
            return None
        if not isinstance(entry.node, Mapping):
            entry.place = (entry.node.line, entry.node.column)
            entry.misfit('an object with "command" or "url"')
            return None
        entry = self.understood(entry)
        kind = self.kind(name, entry)
        given = {
            "name": name,
            "where": f"{self.reading.file}:{entry.place[0]}",
            "type": kind or "stdio",
            **{key: self.texts(entry, key) for key in ("env", "headers")},
        }
        tools = entry.entries.get("tools")
        if tools is not None and isinstance(tools.value, Sequence):  # A list means the allowed tools.
            allow = {"allow": Entry(tools.value, tools.line, tools.column)}
            entry.entries["tools"] = msgspec.structs.replace(tools, value=Mapping(allow, tools.line, tools.column))
        self.other_tool_lists(entry)
        self.sign_in(entry)
        assert isinstance(entry.node, Mapping)
        what = f"MCP server '{name}'"
        server = self.reading.fill(Server, entry.node, entry.path, what=what, given=given, hidden=("name", "where"))
        server = msgspec.structs.replace(server, url=server.url.strip())
        if kind is not None:
            self.check(server, entry)
        return server

    def understood(self, entry: Cursor) -> Cursor:
        """Return the entry with keys of other programs replaced by ours, and without null values."""
        entries: dict[str, Entry] = {}
        for key, value in entry.entries.items():
            ours = ALIASES.get(key, key)
            if key in PERMISSIONS:
                what = f"`{key}` has no effect: what may go ahead unasked, `trust` and `permissions` say"
                rule = f'`permissions: {{"{entry.path[-1]}__*": allow}}` in config.yaml.'
                entry.key(key).warn("ignored_key", what, f'write "trust": "full" here, or {rule}')
            elif ours != key and ours in entry.entries:
                entry.key(key).warn("ignored_key", f"`{key}` has no effect beside `{ours}`")
            elif not is_null(value.value):
                entries[ours] = self.timeout(value, entry[key]) if key == "timeout" else value
        node = Mapping(entries, entry.node.line, entry.node.column)
        return Cursor(self.reading, node, entry.path, entry.place)

    def other_tool_lists(self, entry: Cursor) -> None:
        """Merge lists of tools under keys of other programs into `tools`."""
        for key in [key for key in entry.entries if key in TOOL_LISTS]:
            given, ours = entry.entries.pop(key), TOOL_LISTS[key]
            listed = entry.entries.get("tools")
            inner = dict(listed.value.entries) if listed is not None and isinstance(listed.value, Mapping) else {}
            if ours in inner:
                what = f"`{key}` has no effect beside `tools.{ours}`"
                place = (given.line, given.column)
                Cursor(self.reading, given.value, (*entry.path, key), place).warn("ignored_key", what)
                continue
            inner[ours] = given
            entry.entries["tools"] = Entry(Mapping(inner, given.line, given.column), given.line, given.column)

    def timeout(self, entry: Entry, at: Cursor) -> Entry:
        node = entry.value
        if not isinstance(node, Scalar) or not isinstance(node.value, int | float) or node.value <= MILLISECONDS:
            return entry
        seconds = node.value / 1000
        what = f"`timeout` {node.text} is taken as milliseconds, that is {seconds:g} s"
        at.warn("taken_as", what, f'write "timeout_seconds": {seconds:g}.')
        return msgspec.structs.replace(entry, value=msgspec.structs.replace(node, value=seconds))

    def sign_in(self, entry: Cursor) -> None:
        """Replace keys of other programs under `oauth` by ours."""
        given = entry.entries.get("oauth")
        if given is None or not isinstance(given.value, Mapping):
            return
        entries: dict[str, Entry] = {}
        for key, value in given.value.entries.items():
            ours = OAUTH_ALIASES.get(key, key)
            if ours == "scopes" and isinstance(value.value, Scalar) and isinstance(value.value.value, str):
                whole, words = value.value, value.value.value.split()
                items: list[Node] = [msgspec.structs.replace(whole, value=word, text=word) for word in words]
                value = msgspec.structs.replace(value, value=Sequence(items, whole.line, whole.column))
            if ours not in entries:
                entries[ours] = value
        node = Mapping(entries, given.value.line, given.value.column)
        entry.entries["oauth"] = msgspec.structs.replace(given, value=node)

    def kind(self, name: str, entry: Cursor) -> Transport | None:
        """Return the transport by `type`, else by the other keys."""
        who = f"MCP server '{name}' has"
        starts, reached = "command" in entry.entries, "url" in entry.entries
        if "type" in entry.entries:
            kind = TYPES.get(entry["type"].text or "")
            if kind is None:
                entry["type"].misfit("one of stdio, http, sse")
            return kind
        if starts and reached:
            entry.error("bad_server", f'{who} both "command" and "url"', expected="one of them")
            return None
        if not starts and not reached:
            hint = 'a program is started by "command" and "args", one that runs elsewhere is reached by "url".'
            entry.error("bad_server", f'{who} neither a "command" nor a "url" field', hint=hint)
            return None
        return "stdio" if starts else "http"

    def check(self, server: Server, entry: Cursor) -> None:
        """Check that the keys fit the transport, and conditions that the types of values cannot express."""
        who = f"MCP server '{server.name}'"
        own, strange, why = _FIELDS[server.type == "stdio"]
        filled = {key for key, each in entry.entries.items() if plain(each.value) not in ("", [], {})}
        if own not in filled:
            what = (
                f'{who} is missing a "command" field (required for stdio transport)'
                if own == "command"
                else f'{who} has type "{server.type}" but is missing a "url" field'
            )
            entry.error("missing_key", what, hint=f'add "{own}": "...".')
        for key in (key for key in strange if key in filled):
            what = f'{who} has type "{server.type}" but also specifies {why}'
            entry.key(key).error("bad_server", what, hint=f'remove "{key}", or change the type.')
        if server.env and server.type != "stdio":
            what = f'`env` has no effect on {who}: it is not started here, type "{server.type}"'
            entry.key("env").warn("ignored_key", what)
        if isinstance(server.oauth, OAuth) and server.sign_in is None:
            why = "it is started here" if server.type == "stdio" else "its header Authorization says who we are"
            entry.key("oauth").warn("ignored_key", f"`oauth` has no effect on {who}: {why}")
        for problem, key, remedy in _oddities(server):
            at = entry.key(re.split(r"[.\[]", key)[0])
            at.path = (*entry.path, key)
            at.error("bad_value", f"{who}: {problem}", hint=remedy)
        if server.warm and server.share != "pool":
            what = f'`warm` has no effect on {who}: only what is shared by all ("share": "pool") is kept'
            entry.key("warm").warn("ignored_key", what)

    def texts(self, entry: Cursor, key: str) -> dict[str, str]:
        """Return the texts under a key; numbers and booleans count as they are written."""
        if key not in entry.entries:
            return {}
        part = entry[key]
        if not isinstance(part.node, Mapping):
            part.misfit("an object with texts")
        texts: dict[str, str] = {}
        for name, each in part.entries.items():
            if isinstance(each.value, Scalar) and each.value.value is not None:
                texts[name] = each.value.text
            else:
                part[name].misfit("text, a number, true or false")
        return texts


_FIELDS = {
    True: ("command", ("url", "headers"), "remote fields (url/headers)"),
    False: ("url", ("command", "args", "cwd"), "stdio fields (command/args/cwd)"),
}
"""For stdio (True) and other transports: the required key, and the keys that do not fit."""

# RFC 8252, section 7.3: a native app receives the authorization code on a loopback address.
_LOOPBACK = re.compile(r"http://(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?(/[!-~]*)?", re.IGNORECASE)
# `scope-token` of RFC 6749, section 3.3: a blank separates scopes.
_SCOPE = re.compile(r"[!#-\[\]-~]+")
# `token` of RFC 9110, section 5.6.2.
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


_INPUT = re.compile(r"\$\{(?:input|command|config):[^}]*\}")
_INPUT_REMEDY = "write ${NAME} and set that variable, or {{NAME}} and `callboard vault add NAME`."


def _asks(key: str, reference: str) -> str:
    return f"`{key}` has {reference}, which stands for what an editor asks for; nothing asks for it here"


def _oddities(server: Server) -> Iterator[tuple[str, str, str | None]]:
    texts = [("command", server.command), ("cwd", server.cwd or ""), ("url", server.url)]
    texts += [(f"args[{i}]", text) for i, text in enumerate(server.args)]
    texts += [(f"env.{name}", text) for name, text in server.env.items()]
    for key, value in texts:
        if "\x00" in value:
            yield f"`{key}` has a NUL character in it", key, None
        if prompted := _INPUT.search(value):
            yield _asks(key, prompted[0]), key, _INPUT_REMEDY
    for name in server.env:
        if not name or "=" in name or "\x00" in name:
            yield f"no variable can be called {name!r}", f"env.{name}", None
    for name, text in server.headers.items():
        if not _HEADER.fullmatch(name):
            yield f"no header can be called {name!r}", f"headers.{name}", None
        if prompted := _INPUT.search(text):
            yield _asks(f"headers.{name}", prompted[0]), f"headers.{name}", _INPUT_REMEDY
        if not is_header_value(text):
            yield f"the value of header {name} {NO_HEADER_VALUE}", f"headers.{name}", None
    if server.url and not REFERENCE.search(server.url) and not is_web_address(server.url):
        yield f"`url` is {server.url!r}", "url", "write an address that begins with http:// or https://."
    if isinstance(server.oauth, OAuth):
        yield from _oauth_oddities(server.oauth)
    first, _, rest = server.command.partition(" ")
    if rest and "/" not in first and not server.args:
        words = ", ".join(f'"{word}"' for word in rest.split())
        what, remedy = f"`command` is {server.command!r}, with arguments", f'"command": "{first}", "args": [{words}]'
        yield what, "command", f"write {remedy}."


def _oauth_oddities(oauth: OAuth) -> Iterator[tuple[str, str, str | None]]:
    addresses = {
        "authServerMetadataUrl": oauth.auth_server_metadata_url,
        "clientMetadataUrl": oauth.client_metadata_url,
    }
    for key, address in addresses.items():
        if address and not REFERENCE.search(address) and not is_web_address(address):
            yield f"`oauth.{key}` is {address!r}", f"oauth.{key}", "write an address that begins with https://."
    if oauth.client_metadata_url.startswith("http://"):
        what = "authorization servers fetch it from an https:// address only."
        yield f"`oauth.clientMetadataUrl` is {oauth.client_metadata_url!r}", "oauth.clientMetadataUrl", what
    if oauth.redirect_uri and not _LOOPBACK.fullmatch(oauth.redirect_uri) and not REFERENCE.search(oauth.redirect_uri):
        remedy = "write one of this machine, such as http://localhost:8765/callback."
        yield f"`oauth.redirectUri` is {oauth.redirect_uri!r}", "oauth.redirectUri", remedy
    if oauth.redirect_uri and oauth.callback_port is not None:
        yield "`oauth` has both `callbackPort` and `redirectUri`", "oauth.callbackPort", "remove one of them."
    if oauth.client_secret and not oauth.client_id:
        yield "`oauth` has a `clientSecret`, but no `clientId`", "oauth.clientSecret", 'add "clientId": "...".'
    if oauth.private_key and oauth.client_secret:
        yield "`oauth` has both `clientSecret` and `privateKey`", "oauth.privateKey", "remove one of them."
    if oauth.private_key and not oauth.by_itself:
        what = 'add "grantType": "client_credentials"; where a person signs in, `privateKey` has no use.'
        yield "`oauth` has a `privateKey` without that grant", "oauth.privateKey", what
    if oauth.by_itself and not (oauth.client_id and (oauth.client_secret or oauth.private_key)):
        what = 'add "clientId" and "clientSecret" (or "privateKey").'
        yield "`oauth` has the grant `client_credentials` and no credentials", "oauth.grantType", what
    for scope in oauth.scopes or ():
        if not _SCOPE.fullmatch(scope):
            yield f"no scope can be {scope!r}", "oauth.scopes", "write each one by itself."


def is_root_of_servers(entries: dict[str, Entry]) -> bool:
    """Return whether the top level of a file consists of servers: it has entries, and each looks like a server."""
    return bool(entries) and all(_looks_like_a_server(entry.value) for entry in entries.values())


def _looks_like_a_server(node: Node) -> bool:
    keys = {"command", "url", *(key for key, ours in ALIASES.items() if ours == "url")}
    return isinstance(node, Mapping) and not keys.isdisjoint(node.entries)


class _File(msgspec.Struct, frozen=True, kw_only=True, rename={"servers": "mcpServers"}):
    servers: dict[str, Server]
    tools: ToolList = ToolList()


def mcp_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `mcp.json`. A file may name it under `$schema`."""
    schema = schema_of(_File, title="Callboard MCP servers (mcp.json)")
    del schema["properties"]["tools"]
    schema["properties"]["$schema"] = {"type": "string"}
    server = schema["$defs"]["Server"]
    server["description"] = "One MCP server."
    keys = server["properties"]
    for ours in ("name", "where"):
        del keys[ours]
    del server["required"]
    keys["type"] = {"enum": [*TYPES], "description": keys["type"]["description"]}
    for texts in ("env", "headers"):
        keys[texts]["additionalProperties"] = {"type": ["string", "number", "boolean"]}
    schema["$defs"]["OAuth"]["properties"]["scopes"]["anyOf"].append({"type": "string"})
    keys["tools"]["anyOf"].append({"type": "array", "items": {"type": "string"}})
    server["oneOf"] = [{"required": ["command"]}, {"required": ["url"]}]
    return schema
