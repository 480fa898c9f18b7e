"""MCP servers and their sharing: `mcp.json`, and `mcp_pool` of `config.yaml`.

    {"mcpServers": {
        "time": {"command": "uvx", "args": ["mcp-server-time"]},
        "docs": {"url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}}
    }}

Most programs use this format. A `Server` is one entry, checked by `read_config`. `resolved` inserts values of the
environment when a server is needed, so that a missing secret only affects its own server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from ..environment import Secrets, expanded
from ..errors import ConfigError, UsageError
from ..problems import Problem, did_you_mean, errors_in
from ..schema import no_effect

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
        AtLeastOne, Meta(description="Failures within the window after which the server is not restarted.")
    ] = 5
    restart_window_seconds: Annotated[Seconds, Meta(description="The window.")] = 60.0
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
        raise ConfigError(f"{who}: `command` is empty once {server.command} is filled in")
    for name, value in whole.headers.items():
        if not is_header_value(value):
            raise ConfigError(f"{who}: the value of header {name} {NO_HEADER_VALUE}")
    if whole.url and not is_web_address(whole.url):
        raise ConfigError(f"{who}: `url` is no http:// or https:// address once {server.url} is filled in")
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
