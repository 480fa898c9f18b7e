"""MCP servers and their sharing: `mcp.json`, and `mcp_pool` of `config.yaml`.

    {"mcpServers": {
        "time": {"command": "uvx", "args": ["mcp-server-time"]},
        "docs": {"url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}}
    }}

Most programs use this format. A `Server` is one entry. `resolved` inserts values of the environment when a server is
needed, so that a missing secret only affects its own server.

`read_mcp` fills the structs and reports all problems with their lines. Files of other programs are accepted:
comments, `servers` for `mcpServers`, `transport` for `type`, `serverUrl` and `httpUrl` for `url`, `timeout`, `auth` for
`oauth`. Without a `type`, the other keys decide. An error only affects its own entry; unknown keys are warnings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from ..environment import REFERENCE, Secrets, expanded
from ..errors import ConfigError, UsageError
from ..problems import Problem, did_you_mean, errors_in
from ..reading import YAML_ERROR, Cursor, Reading, in_file_order
from ..schema import no_effect, schema_of
from ..tree import Entry, Node, Scalar, Sequence, describe, is_null, plain
from ..tree import Mapping as MappingNode
from . import jsonc

Transport: TypeAlias = Literal["stdio", "http", "sse"]
Share: TypeAlias = Literal["pool", "per-run", "per-agent", "never"]
Trust: TypeAlias = Literal["full", "hints", "none"]
Sampling: TypeAlias = Literal["off", "ask", "on"]
ToolMode: TypeAlias = Literal["meta", "direct", "auto"]
"""Presentation of servers' tools to models: three tools that search, describe and invoke; each tool itself; by their
size.
"""

Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
NotNegative: TypeAlias = Annotated[float, Meta(ge=0)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
AtLeastOne: TypeAlias = Annotated[int, Meta(ge=1)]
Port: TypeAlias = Annotated[int, Meta(ge=1, le=65535)]

WHOLE = "mcp:"
"""Prefix of a server's name in a list of tools, for all of its tools (`mcp:github`)."""

MAX_MESSAGE = 16 * 1024 * 1024
"""Default limit of one message of a server in bytes."""

ESSENTIAL = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_*", "TZ", "TMPDIR", "XDG_*")
"""Variables of our environment that a server without `inherit_env` still gets; patterns of names."""


class ToolList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tools of a server that agents may use. Patterns as in a shell; `deny` takes precedence."""

    allow: Annotated[tuple[str, ...] | None, Meta(description="The only tools that may be used; patterns.")] = None
    deny: Annotated[tuple[str, ...], Meta(description="Tools that may not be used; patterns.")] = ()

    def admits(self, tool: str) -> bool:
        """Return whether a tool of this name may be seen and called."""
        # fnmatchcase: `fnmatch` ignores case on some systems, and MCP tool names are case-sensitive.
        if any(fnmatchcase(tool, pattern) for pattern in self.deny):
            return False
        return self.allow is None or any(fnmatchcase(tool, pattern) for pattern in self.allow)


# rename="camel": mcp.json is shared with other programs, which write `clientId` and `callbackPort`.
class OAuth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Sign-in to a server over HTTP: settings that its metadata lack. Keys as in other MCP programs."""

    client_id: Annotated[str, Meta(description="Id of a manually registered client.")] = ""
    client_secret: Annotated[str, Meta(description="Secret of that client; ${NAME} keeps it out of the file.")] = ""
    private_key: Annotated[
        str,
        Meta(description="Private key of that client if it signs a JWT instead: PEM, without a passphrase."),
    ] = ""
    grant_type: Annotated[
        Literal["authorization_code", "client_credentials"],
        Meta(description="client_credentials: the client signs in without a user."),
    ] = "authorization_code"
    scopes: Annotated[
        tuple[str, ...] | None, Meta(description="Scopes to request; by default those that the server advertises.")
    ] = None
    callback_port: Annotated[
        Port | None, Meta(description="Port of the redirect URI http://localhost:PORT/callback.")
    ] = None
    redirect_uri: Annotated[str, Meta(description="Complete redirect URI, if another one is registered.")] = ""
    auth_server_metadata_url: Annotated[
        str, Meta(description="Address of the authorization server's metadata, if the server does not advertise it.")
    ] = ""
    client_metadata_url: Annotated[
        str, Meta(description="https:// address of your published client id metadata document.")
    ] = ""
    # MCP requires PKCE, and a server without `code_challenge_methods_supported` in its metadata is refused; some
    # servers support PKCE without listing it.
    assume_pkce: Annotated[
        bool, Meta(description="Use PKCE although the metadata of the authorization server does not list it.")
    ] = False
    account: Annotated[str, Meta(description="Name that distinguishes several sign-ins to one server.")] = ""

    def __repr__(self) -> str:
        """Omit the secrets."""
        # The default repr of a struct would put them into tracebacks and logs.
        return f"OAuth(client_id={self.client_id!r}, account={self.account!r})"

    @property
    def by_itself(self) -> bool:
        """True if the client signs in without a user."""
        return self.grant_type == "client_credentials"


class Server(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Entry of `mcp.json`, checked.

    Attributes:
        name: its key in the file.
        type: a server of type `http` may support only the older `sse`, which is then tried.
        where: file and line of its entry, for errors.
    """

    name: str
    # `sse` is HTTP+SSE of revision 2024-11-05; Streamable HTTP (`http`) replaced it in 2025-03-26.
    type: Annotated[Transport, Meta(description="Transport; by default inferred from `command` or `url`.")]
    command: Annotated[str, Meta(description="Program to start.")] = ""
    args: Annotated[tuple[str, ...], Meta(description="Its arguments.")] = ()
    env: Annotated[dict[str, str], Meta(description="Environment variables, added to the inherited ones.")] = {}
    cwd: Annotated[str | None, Meta(description="Working directory; by default that of Callboard.")] = None
    url: Annotated[str, Meta(description="Address of an HTTP server.")] = ""
    headers: Annotated[dict[str, str], Meta(description="Sent with every request.")] = {}
    oauth: Annotated[
        OAuth | bool, Meta(description="OAuth sign-in; false for none. A header Authorization takes precedence.")
    ] = True
    description: Annotated[str, Meta(description="For people.")] = ""
    inherit_env: Annotated[
        bool, Meta(description="Inherit the whole environment; false: only PATH, HOME, the locale and similar.")
    ] = True
    share: Annotated[
        Share, Meta(description="Sharing of its process: by all, per run, per agent, per conversation.")
    ] = "pool"
    tools: Annotated[ToolList, Meta(description="Tools that may be used.")] = ToolList()
    trust: Annotated[
        Trust,
        Meta(
            description="Tools that run without asking: full: all; hints: those not marked as destructive; none: none."
        ),
    ] = "hints"
    labels: Annotated[
        tuple[Literal["private", "public", "trusted", "inside"], ...],
        Meta(
            description="Taint labels of its results (private, public, trusted), and inside: data "
            "sent to it stays inside."
        ),
    ] = ()
    disabled: Annotated[bool, Meta(description="Disable the server.")] = False
    warm: Annotated[bool, Meta(description="Start it with Callboard and keep it running.")] = False
    idle_timeout_seconds: Annotated[
        NotNegative | None, Meta(description="Seconds to keep it unused; by default the setting of `mcp_pool`.")
    ] = None
    timeout_seconds: Annotated[Seconds, Meta(description="Of one call.")] = 120.0
    start_timeout_seconds: Annotated[
        Seconds, Meta(description="Time limit of its start and initialisation in seconds.")
    ] = 30.0
    elicitation: Annotated[bool, Meta(description="Allow it to ask the user (elicitation).")] = True
    sampling: Annotated[
        Sampling, Meta(description="Allow it to use the model (sampling): never, after a question to the user, always.")
    ] = "off"
    roots: Annotated[
        tuple[str, ...] | None, Meta(description="Directories or file:// URIs offered to it as roots.")
    ] = None
    max_message_bytes: Annotated[AtLeastOne, Meta(description="Maximum bytes of one of its messages.")] = MAX_MESSAGE
    where: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """Texts that may name a path or hold a secret: arguments, variables, directory; not the command."""
        return (*self.args, *self.env.values(), self.cwd or "")

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of its process, given ours."""
        ours = {name: value for name, value in environ.items() if self.inherit_env or _is_essential(name)}
        return {**ours, **self.env}

    @property
    def sign_in(self) -> OAuth | None:
        """OAuth parameters of the server; None if it is not used over HTTP, or has other credentials."""
        if self.type == "stdio" or self.oauth is False or any(map(is_credential, self.headers)):
            return None
        return self.oauth if isinstance(self.oauth, OAuth) else OAuth()


def entry_of(server: Server) -> str:
    """Return the words for a server's entry in an error, with file and line; a program's server has neither."""
    return f"its entry, {server.where}" if server.where else "its entry"


class McpConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Usable servers, and the problems of the file.

    Attributes:
        file: path of the file, which need not exist.
        servers: by name, in the file's order, disabled ones included.
        broken: servers with unusable entries, by name, with the first error.
        problems: all problems, by line.
    """

    file: str = "mcp.json"
    servers: dict[str, Server] = {}
    broken: dict[str, Problem] = {}
    problems: tuple[Problem, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the usable servers."""
        return tuple(name for name, server in self.servers.items() if not server.disabled)

    def problems_of(self, names: Iterable[str]) -> list[Problem]:
        """Return the problems of these servers' entries, and errors that prevent reading the whole file."""
        roots = [f"{root}{name}" for name in names for root in ("", "mcpServers.", "servers.")]
        return [
            problem
            for problem in self.problems
            if (not problem.key and problem.severity == "error")
            or any(problem.key == root or (problem.key or "").startswith((f"{root}.", f"{root}[")) for root in roots)
        ]

    def get(self, name: str) -> Server:
        """Return the server of that name.

        Raises:
            UsageError: no usable server has this name; the text has the reason.
        """
        server = self.servers.get(name)
        if server is not None and not server.disabled:
            return server
        if server is not None:
            raise UsageError(f"MCP server '{name}' is disabled ({server.where}); remove its \"disabled\" to use it")
        # An error of the whole file (bad JSON) leaves no servers; it is the reason for every name.
        why = self.broken.get(name) or next(iter(errors_in(self.problems)), None)
        if why is not None and (name in self.broken or not self.servers):
            raise UsageError(f"MCP server '{name}' can't be used: {why}")
        near = did_you_mean(name, self.servers)
        have = (
            f"there {'are' if len(self.names) > 1 else 'is'} {', '.join(self.names)}" if self.names else "it has none"
        )
        raise UsageError(f"there is no MCP server '{name}' in {self.file}; {near or have}")


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Health checks of idle servers."""

    interval_seconds: Seconds = 60.0
    timeout_seconds: Seconds = 5.0
    on_failure: Literal["Evict", "EvictAndLog", "LogOnly"] = "EvictAndLog"


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`mcp_pool` of `config.yaml`."""

    idle_timeout_seconds: Annotated[
        NotNegative | None, Meta(description="Seconds to keep an unused server: 300 in a server, else 0.")
    ] = None
    # 50 idle servers, health checks of 60 s and 5 s, and a cleanup of 30 s are the figures of Loki's plan for a pool.
    max_idle_servers: Annotated[
        Count, Meta(description="Maximum number of unused servers; the oldest are stopped first.")
    ] = 50
    max_servers: Annotated[
        AtLeastOne | None, Meta(description="Maximum number of running servers; further ones wait.")
    ] = None
    health_check: Annotated[HealthCheck | bool, Meta(description="Pings of unused servers; false for none.")] = (
        HealthCheck()
    )
    max_restarts: Annotated[
        AtLeastOne,
        Meta(description="Failures within `restart_window_seconds` after which the server is not restarted."),
    ] = 5
    restart_window_seconds: Annotated[
        Seconds, Meta(description="Period in which failures count for `max_restarts`.")
    ] = 60.0
    cleanup_interval_seconds: Annotated[Seconds, no_effect("servers are stopped exactly when they are due")] = 30.0

    @property
    def pings(self) -> HealthCheck | None:
        """Health check of unused servers; None for none."""
        if isinstance(self.health_check, bool):
            return HealthCheck() if self.health_check else None
        return self.health_check


def resolved(
    server: Server,
    environ: Secrets,
    secrets: Secrets | None = None,
    why_missing: Callable[[str], str] | None = None,
) -> Server:
    """Return the server with the references in its command, args, env, cwd, url, headers and oauth replaced.

    Args:
        environ: values of `${NAME}`.
        secrets: values of `{{NAME}}`; None for `environ`.
        why_missing: returns the message for a missing secret, with a remedy.

    Raises:
        ConfigError: a name has no value, or its value is invalid. The text contains no values.
    """
    lacking: dict[str, str] = {}
    no_secrets: dict[str, str] = {}

    def put(text: str, key: str) -> str:
        def missing(reference: str, name: str) -> None:
            of_vault = why_missing is not None and reference.startswith("{{")
            (no_secrets if of_vault else lacking).setdefault(name, f"`{key}` needs {reference}")

        return expanded(text, environ, missing, secrets)

    whole = msgspec.structs.replace(
        server,
        command=put(server.command, "command"),
        args=tuple(put(text, f"args[{i}]") for i, text in enumerate(server.args)),
        env={name: put(text, f"env.{name}") for name, text in server.env.items()},
        cwd=None if server.cwd is None else put(server.cwd, "cwd"),
        url=put(server.url, "url").strip(),
        headers={name: put(text, f"headers.{name}") for name, text in server.headers.items()},
        oauth=_filled(server.oauth, put),
    )
    who = f"MCP server '{server.name}'" + (f" ({server.where})" if server.where else "")
    if no_secrets and why_missing is not None:
        name, what = next(iter(no_secrets.items()))
        raise ConfigError(f"{who}: {what}, {why_missing(name)}")
    if lacking:
        remedy = " ".join(f"{name}=..." for name in lacking)
        unset = "which is not set" if len(lacking) == 1 else "which are not set"
        raise ConfigError(f"{who}: {' and '.join(lacking.values())}, {unset}; export {remedy}")
    if server.command and not whole.command:
        raise ConfigError(f"{who}: `command` is empty after {server.command} was replaced")
    for name, value in whole.headers.items():
        if not is_header_value(value):
            raise ConfigError(f"{who}: the value of header {name} {NO_HEADER_VALUE}")
    if whole.url and not is_web_address(whole.url):
        raise ConfigError(f"{who}: `url` is not an http:// or https:// address after {server.url} was replaced")
    return whole


def _filled(oauth: OAuth | bool, put: Callable[[str, str], str]) -> OAuth | bool:
    if isinstance(oauth, bool):
        return oauth
    texts = {name: text for name in OAuth.__struct_fields__ if isinstance(text := getattr(oauth, name), str)}
    keys = dict(zip(OAuth.__struct_fields__, OAuth.__struct_encode_fields__, strict=True))
    return msgspec.structs.replace(oauth, **{name: put(text, f"oauth.{keys[name]}") for name, text in texts.items()})


NO_HEADER_VALUE = "has a line break, a control character or a letter beyond ASCII in it"


def is_header_value(text: str) -> bool:
    """Return whether a header can have this value."""
    return _HEADER_VALUE.fullmatch(text) is not None


def is_credential(header: str) -> bool:
    """Return whether a header of this name is a credential, so that no token is added to it."""
    return header.lower() == "authorization"


def is_web_address(text: str) -> bool:
    """Return whether the text is an http:// or https:// address."""
    return _WEB_ADDRESS.fullmatch(text) is not None


def spelled_out(names: Iterable[str], mapping: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """Return server names without duplicates; aliases of `mapping_mcp_servers` and `all` are replaced."""
    everyone = list(known)
    found: dict[str, None] = {}
    for name in names:
        for each in split(mapping.get(name, name)):
            found.update(dict.fromkeys(everyone if each == "all" else [each]))
    return list(found)


def split(names: str) -> list[str]:
    """Return the names in a text like `"a, b"`."""
    return [name for part in names.split(",") if (name := part.strip())]


_WEB_ADDRESS = re.compile(r"https?://[^/\s?#]+[^\s]*", re.IGNORECASE)
# RFC 9110, section 5.5, without letters beyond ASCII. A line break would let a value add headers of its own.
_HEADER_VALUE = re.compile(r"[\t -~]*")


def _is_essential(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in ESSENTIAL)


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
        if not isinstance(top.node, MappingNode):
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
        if isinstance(top[key].node, MappingNode):
            self.entries(top[key])
        else:
            top[key].error("wrong_type", f"`{key}` is {describe(top[key].node)}", expected=SHAPE)

    def bare(self, top: Cursor) -> None:
        """Read a file without `mcpServers`: servers at the top level, or nothing, or other contents."""
        top.entries.pop("$schema", None)
        if is_root_of_servers(top.entries):
            what = "the servers are at the top level of the file"
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
                what = f"permissions for `{longer}__*` also apply to tools of '{shorter}' that begin with `{begin}__`"
                entry.warn("names_overlap", what, "rename one of them.")

    # one server

    def server(self, name: str, entry: Cursor) -> Server | None:
        if not name or name != name.strip() or name == "all" or re.search(r"[,\x00-\x1f\x7f]", name):
            what = (
                f"an MCP server can't be called {name!r}: a name has no commas, control characters or surrounding "
                "spaces, and is not `all` or empty"
            )
            entry.error("bad_name", what)
            return None
        if not isinstance(entry.node, MappingNode):
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
            entry.entries["tools"] = msgspec.structs.replace(tools, value=MappingNode(allow, tools.line, tools.column))
        self.other_tool_lists(entry)
        self.sign_in(entry)
        assert isinstance(entry.node, MappingNode)
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
                what = f"`{key}` has no effect: `trust` and `permissions` decide which tools run without asking"
                rule = f'`permissions: {{"{entry.path[-1]}__*": allow}}` in config.yaml.'
                entry.key(key).warn("ignored_key", what, f'write "trust": "full" here, or {rule}')
            elif ours != key and ours in entry.entries:
                entry.key(key).warn("ignored_key", f"`{key}` has no effect beside `{ours}`")
            elif not is_null(value.value):
                entries[ours] = self.timeout(value, entry[key]) if key == "timeout" else value
        node = MappingNode(entries, entry.node.line, entry.node.column)
        return Cursor(self.reading, node, entry.path, entry.place)

    def other_tool_lists(self, entry: Cursor) -> None:
        """Merge lists of tools under keys of other programs into `tools`."""
        for key in [key for key in entry.entries if key in TOOL_LISTS]:
            given, ours = entry.entries.pop(key), TOOL_LISTS[key]
            listed = entry.entries.get("tools")
            inner = dict(listed.value.entries) if listed is not None and isinstance(listed.value, MappingNode) else {}
            if ours in inner:
                what = f"`{key}` has no effect beside `tools.{ours}`"
                place = (given.line, given.column)
                Cursor(self.reading, given.value, (*entry.path, key), place).warn("ignored_key", what)
                continue
            inner[ours] = given
            entry.entries["tools"] = Entry(MappingNode(inner, given.line, given.column), given.line, given.column)

    def timeout(self, entry: Entry, at: Cursor) -> Entry:
        node = entry.value
        if not isinstance(node, Scalar) or not isinstance(node.value, int | float) or node.value <= MILLISECONDS:
            return entry
        seconds = node.value / 1000
        what = f"`timeout` {node.text} is read as milliseconds, that is {seconds:g} s"
        at.warn("taken_as", what, f'write "timeout_seconds": {seconds:g}.')
        return msgspec.structs.replace(entry, value=msgspec.structs.replace(node, value=seconds))

    def sign_in(self, entry: Cursor) -> None:
        """Replace keys of other programs under `oauth` by ours."""
        given = entry.entries.get("oauth")
        if given is None or not isinstance(given.value, MappingNode):
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
        node = MappingNode(entries, given.value.line, given.value.column)
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
            hint = 'a local server has "command" and "args", a remote one has "url".'
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
            what = f'`env` has no effect on {who}: Callboard starts no process for type "{server.type}"'
            entry.key("env").warn("ignored_key", what)
        if isinstance(server.oauth, OAuth) and server.sign_in is None:
            why = (
                "it is a local process"
                if server.type == "stdio"
                else "its header Authorization already has credentials"
            )
            entry.key("oauth").warn("ignored_key", f"`oauth` has no effect on {who}: {why}")
        for problem, key, remedy in _oddities(server):
            at = entry.key(re.split(r"[.\[]", key)[0])
            at.path = (*entry.path, key)
            at.error("bad_value", f"{who}: {problem}", hint=remedy)
        if server.warm and server.share != "pool":
            what = (
                f'`warm` has no effect on {who}: only a server shared by all agents ("share": "pool") is kept running'
            )
            entry.key("warm").warn("ignored_key", what)

    def texts(self, entry: Cursor, key: str) -> dict[str, str]:
        """Return the texts under a key; numbers and booleans count as they are written."""
        if key not in entry.entries:
            return {}
        part = entry[key]
        if not isinstance(part.node, MappingNode):
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
    return f"`{key}` has {reference}, which only editors replace by asking the user; Callboard does not"


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
            yield f"an environment variable can't be called {name!r}", f"env.{name}", None
    for name, text in server.headers.items():
        if not _HEADER.fullmatch(name):
            yield f"a header can't be called {name!r}", f"headers.{name}", None
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
        remedy = "write an address of this machine, such as http://localhost:8765/callback."
        yield f"`oauth.redirectUri` is {oauth.redirect_uri!r}", "oauth.redirectUri", remedy
    if oauth.redirect_uri and oauth.callback_port is not None:
        yield "`oauth` has both `callbackPort` and `redirectUri`", "oauth.callbackPort", "remove one of them."
    if oauth.client_secret and not oauth.client_id:
        yield "`oauth` has a `clientSecret`, but no `clientId`", "oauth.clientSecret", 'add "clientId": "...".'
    if oauth.private_key and oauth.client_secret:
        yield "`oauth` has both `clientSecret` and `privateKey`", "oauth.privateKey", "remove one of them."
    if oauth.private_key and not oauth.by_itself:
        what = 'add "grantType": "client_credentials"; `privateKey` has no effect when a user signs in.'
        yield "`oauth` has a `privateKey` without the grant `client_credentials`", "oauth.privateKey", what
    if oauth.by_itself and not (oauth.client_id and (oauth.client_secret or oauth.private_key)):
        what = 'add "clientId" and "clientSecret" (or "privateKey").'
        yield "`oauth` has the grant `client_credentials`, but no credentials", "oauth.grantType", what
    for scope in oauth.scopes or ():
        if not _SCOPE.fullmatch(scope):
            yield f"{scope!r} is not a valid scope", "oauth.scopes", "write each scope as an item of its own."


def is_root_of_servers(entries: dict[str, Entry]) -> bool:
    """Return whether the top level of a file consists of servers: it has entries, and each looks like a server."""
    return bool(entries) and all(_looks_like_a_server(entry.value) for entry in entries.values())


def _looks_like_a_server(node: Node) -> bool:
    keys = {"command", "url", *(key for key, ours in ALIASES.items() if ours == "url")}
    return isinstance(node, MappingNode) and not keys.isdisjoint(node.entries)


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
