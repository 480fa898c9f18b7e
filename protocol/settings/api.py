"""Block `api:` of `config.yaml`: access to `callboard serve`, its limits, and its audit log.

    api:
      listen_addr: 0.0.0.0:3400
      auth:
        keys:
          - subject: alice
            key_hash: $argon2id$v=19$m=65536,t=3,p=4$...      # `callboard keys new alice` prints it
            scopes: [run:agents, read:runs, write:runs]
      limits: {rate_limit_per_minute: 60, rate_limit_burst: 10, daily: {max_cost: 20}}

The keys come from Loki's plan for a REST API; a few are added. Only a server reads the block.

`api_problems` checks conditions that types cannot express: hashes, addresses, origins, networks, and combinations. It
finds all problems of a block in one pass, each with its line. Here an unknown key is an error and not a warning as in
other blocks, because a misspelt limit would be no limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_network
from typing import Annotated, Literal, TypeAlias
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Meta

from ..control.caller import SCOPES
from ..problems import Problem, Severity, did_you_mean
from ..reading import Reading, in_file_order
from ..tree import Mapping, Node, Path, Sequence, dotted

AuthMode: TypeAlias = Literal["StaticKeys", "Jwt", "Disabled"]
AuditSink: TypeAlias = Literal["stderr", "file", "syslog", "off"]
LogFormat: TypeAlias = Literal["json", "text"]
LogLevel: TypeAlias = Literal["error", "warning", "info", "debug"]

Text: TypeAlias = Annotated[str, Meta(min_length=1)]
Usd: TypeAlias = Annotated[float, Meta(gt=0, le=1e12)]
AtLeastOne: TypeAlias = Annotated[int, Meta(ge=1)]
MIB = 1024 * 1024

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Signatures that can be verified with a public key. HMAC is excluded: its key would have to be public."""


class DailyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Daily limits on the use of models; a day begins at 00:00 UTC."""

    max_cost: Annotated[Usd | None, Meta(description="USD; only models with a known price may be used.")] = None
    max_tokens: Annotated[AtLeastOne | None, Meta(description="Tokens of input and output.")] = None

    @property
    def is_empty(self) -> bool:
        """True if nothing is limited."""
        return self.max_cost is None and self.max_tokens is None


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """Static API key, stored as its hash."""

    subject: Annotated[Text, Meta(description="Owner of the key, and of the runs started with it.")]
    key_hash: Annotated[Text, Meta(description="The key's argon2id hash; `callboard keys new` prints both.")]
    scopes: Annotated[tuple[Text, ...], Meta(description="Permissions of the key.")]
    id: Annotated[str, Meta(description="Id of the key in audit lines; part of keys that Callboard made.")] = ""
    daily: Annotated[
        DailyLimits | None,
        Meta(description="Daily limits of its subject; the same in all keys of the subject."),
    ] = None


class Jwt(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of another issuer, and where its public keys are found."""

    issuer: Annotated[Text, Meta(description="Required value of `iss`.")]
    audience: Annotated[Text, Meta(description="Required value in `aud`.")]
    jwks_url: Annotated[Text, Meta(description="Address of the public keys: https, or http on this machine.")]
    jwks_refresh_interval: Annotated[
        int, Meta(ge=10, le=86_400, description="Seconds between fetches of the keys.")
    ] = 600
    subject_claim: Annotated[Text, Meta(description="The claim that names the subject.")] = "sub"
    scopes_claim: Annotated[Text, Meta(description="The claim with the scopes: a text with spaces, or a list.")] = (
        "scope"
    )
    leeway_seconds: Annotated[int, Meta(ge=0, le=300, description="Tolerated clock difference in seconds.")] = 60
    algorithms: Annotated[tuple[Text, ...], Meta(description="Signatures that count.")] = ("RS256", "ES256")


class Auth(msgspec.Struct, frozen=True, kw_only=True):
    """Authentication of callers, in addition to the local token that a server writes into a file of its user.

    Without a `mode` both `keys` and `jwt` count, as far as they are there.
    """

    mode: Annotated[AuthMode | None, Meta(description="Disabled: the local token only.")] = None
    keys: tuple[ApiKey, ...] = ()
    jwt: Jwt | None = None

    @property
    def static(self) -> tuple[ApiKey, ...]:
        """The static keys in use."""
        return self.keys if self.mode in (None, "StaticKeys") else ()

    @property
    def signed(self) -> Jwt | None:
        """The token issuer in use, if any."""
        return self.jwt if self.mode in (None, "Jwt") else None


class Cors(msgspec.Struct, frozen=True, kw_only=True):
    """Origins of web pages that may call the server (CORS)."""

    allowed_origins: Annotated[tuple[Text, ...], Meta(description="`https://host[:port]`, or `*` for all.")] = ()
    allow_credentials: bool = False


class ApiLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on connections, requests and spending, per subject and in total."""

    # 1 MiB, 64 requests, 8 of a subject, 60 a minute and a burst of 10 are the figures of Loki's plan for its server.
    # Its port, 300 s and 30 s are defaults of `ApiSettings`.
    max_body_bytes: Annotated[int, Meta(ge=1024, le=100 * MIB, description="Of a request.")] = MIB
    max_frame_bytes: Annotated[int, Meta(ge=1024, le=100 * MIB, description="Of a websocket frame.")] = MIB
    max_concurrent_requests: Annotated[int, Meta(ge=1, le=100_000, description="Of all subjects.")] = 64
    per_subject_concurrency: Annotated[int, Meta(ge=1, le=100_000, description="Of one subject.")] = 8
    max_connections: Annotated[int, Meta(ge=1, le=1_000_000, description="Open at a time, of all.")] = 4096
    connections_per_address: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Open at a time, of one address; loopback and proxies are free.")
    ] = 256
    websockets_per_subject: Annotated[int, Meta(ge=1, le=1_000_000, description="Open at a time, of one subject.")] = 64
    rate_limit_per_minute: Annotated[
        int | None, Meta(description="Requests of one subject; 0: no limit. Left out: 60, and none on loopback.")
    ] = None
    rate_limit_burst: Annotated[int, Meta(ge=0, le=1_000_000, description="Requests beyond the limit, at once.")] = 10
    per_subject_daily: Annotated[
        DailyLimits | None, Meta(description="Daily limits of each subject whose keys have no `daily`.")
    ] = None
    daily: Annotated[DailyLimits | None, Meta(description="Daily limits of all subjects together.")] = None


class AuditSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Destination and rotation of the audit log."""

    sink: AuditSink = "stderr"
    file: Annotated[str, Meta(description="For `sink: file`: the path.")] = ""
    max_bytes: Annotated[int, Meta(ge=4096, le=1024 * MIB, description="Size at which the file is rotated.")] = 10 * MIB
    keep: Annotated[int, Meta(ge=0, le=1000, description="Number of rotated files to keep.")] = 5
    facility: Annotated[str, Meta(description="For `sink: syslog`.")] = "auth"


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The whole block.

    Attributes:
        enabled: false, and `callboard serve` refuses to start.
    """

    enabled: bool | None = None
    listen_addr: Annotated[Text, Meta(description="`host:port`; flags of the command take precedence.")] = (
        "127.0.0.1:3400"
    )
    auth: Auth = Auth()
    cors: Cors = Cors()
    allowed_hosts: Annotated[tuple[Text, ...], Meta(description="Accepted host names besides loopback's.")] = ()
    model_directories: Annotated[
        tuple[Text, ...], Meta(description="Directories for `local:/path` of callers, besides the pulled models.")
    ] = ()
    trusted_proxies: Annotated[
        tuple[Text, ...], Meta(description="Addresses or networks of proxies whose X-Forwarded-For is trusted.")
    ] = ()
    limits: ApiLimits = ApiLimits()
    request_timeout_seconds: Annotated[float, Meta(gt=0, le=3600)] = 300.0
    shutdown_grace_seconds: Annotated[float, Meta(ge=0, le=3600)] = 30.0
    force_https: Annotated[bool, Meta(description="Send HSTS, so that browsers use https only.")] = False
    metrics_public: Annotated[bool, Meta(description="/metrics needs no key.")] = False
    audit: AuditSettings = AuditSettings()
    log_format: LogFormat = "json"
    log_level: LogLevel = "info"
    keep_runs: Annotated[int, Meta(ge=0, description="Number of runs whose logs are kept, the newest; 0: all.")] = 1000

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of `listen_addr`, which has been checked."""
        host, _, port = self.listen_addr.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)


LOOPBACK = ("127.0.0.1", "localhost", "::1")
FACILITIES = ("auth", "authpriv", "daemon", "user", *(f"local{number}" for number in range(8)))

_HASH = re.compile(r"\$argon2id\$v=\d+\$m=(\d+),t=(\d+),p=(\d+)\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+")
_MOST_MEMORY, _MOST_PASSES, _MOST_LANES = 1024 * 1024, 20, 64
"""Maximum memory (KiB), passes and lanes of a hash: verifying one costs what the hash demands."""

Report = Callable[..., None]


def api_problems(api: ApiSettings, block: Node, file: str, found: list[Problem]) -> list[Problem]:
    """Return all problems of a block. Its types have been checked, with the result in `found`.

    Args:
        block: the mapping that `api` was read from, for lines.
        found: problems of the whole file from reading; problems of the block's keys are not repeated.

    Returns:
        `found`, with unknown keys of the block as errors, and the further problems, in the order of the file.
    """
    known = [_firm(problem) for problem in found]
    broken = {problem.key for problem in known if problem.severity == "error"}
    reading = Reading(file)

    def report(path: Path, message: str, expected: str, hint: str | None = None, severity: Severity = "error") -> None:
        name = dotted(path := ("api", *path))
        # A value whose type is already reported has its default here; a second problem about it would be wrong.
        if not any(key and f"{name}.".startswith(f"{key}.") for key in broken):
            place = _place(block, path[1:])
            reading.report(severity, "bad_value", f"`{name}` {message}", path, place, expected=expected, hint=hint)

    _address(api, report)
    _keys(api, report)
    _daily(api, report, broken)
    _modes(api, report)
    if api.auth.jwt is not None:
        _jwt(api.auth.jwt, report)
    _origins(api.cors, report)
    _networks(api, report)
    rate = api.limits.rate_limit_per_minute
    if rate is not None and not 0 <= rate <= 1_000_000:
        report(("limits", "rate_limit_per_minute"), f"is {rate}", "a whole number from 1 to 1000000, or 0 for no limit")
    _audit(api, report)
    return in_file_order([*known, *reading.problems])


def _firm(problem: Problem) -> Problem:
    # A misspelt key of `api` could leave a server open or without limits, so it is an error, not a warning.
    if problem.code != "unknown_key" or not (problem.key or "").startswith("api."):
        return problem
    return msgspec.structs.replace(
        problem, severity="error", message=problem.message.removesuffix("; it has no effect")
    )


def _place(node: Node, path: Path) -> tuple[int, int]:
    """Return line and column of the value at `path`, or of its nearest existing parent."""
    place = node.line, node.column
    for step in path:
        if isinstance(node, Mapping) and step in node.entries:
            entry = node.entries[str(step)]
            node, place = entry.value, (entry.line, entry.column)
        elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
            place = node.line, node.column
        else:
            break
    return place


ADDRESS = "HOST:PORT, such as 127.0.0.1:3400 or [::1]:3400"
"""Description of the texts that `is_address` accepts."""


def is_address(text: str) -> bool:
    """Return whether the text is a host and a port."""
    host, colon, port = text.rpartition(":")
    # An IPv6 address needs brackets: in `::1:3400` the port could not be told from the address.
    bare = ":" not in host or (host.startswith("[") and host.endswith("]"))
    # isascii: `isdigit` is also true for digits of other scripts.
    return bool(colon and host and bare) and port.isascii() and port.isdigit() and int(port) <= 65_535


def _address(api: ApiSettings, report: Report) -> None:
    if not is_address(api.listen_addr):
        report(("listen_addr",), f"is '{api.listen_addr}'", ADDRESS, "a port is a number from 0 to 65535")


def _keys(api: ApiSettings, report: Report) -> None:
    seen: set[str] = set()
    for index, key in enumerate(api.auth.keys):
        path = ("auth", "keys", index)
        costs = _HASH.fullmatch(key.key_hash)
        if key.key_hash and costs is None:
            report(
                (*path, "key_hash"),
                "is not an argon2id hash; never write the key itself here",
                "$argon2id$v=19$m=...,t=...,p=...$...$...",
                f"`callboard keys new {key.subject or 'SUBJECT'}` makes a key and prints its hash.",
            )
        elif costs is not None and any(
            int(cost) > most
            for cost, most in zip(costs.groups(), (_MOST_MEMORY, _MOST_PASSES, _MOST_LANES), strict=True)
        ):
            what = "is too expensive to check, and every request makes the server check it"
            report((*path, "key_hash"), what, f"at most m={_MOST_MEMORY}, t={_MOST_PASSES}, p={_MOST_LANES}")
        if key.id and not re.fullmatch(r"[A-Za-z0-9-]{1,64}", key.id):
            report((*path, "id"), f"is '{key.id}'", "at most 64 letters, digits and hyphens")
        elif key.id in seen:
            report((*path, "id"), f"is '{key.id}', which is also the id of another key", "an id that no other key has")
        # The id is optional: keys without one are no duplicates of each other.
        seen.update({key.id} - {""})
        for place, scope in enumerate(key.scopes):
            if scope != "*" and scope not in SCOPES:
                report(
                    (*path, "scopes", place),
                    f"is '{scope}', an unknown scope without effect",
                    "some of " + ", ".join(SCOPES),
                    did_you_mean(scope, SCOPES),
                    "warning",
                )
        if key.subject == "local":
            report((*path, "subject"), "is 'local', which is the user who runs the server", "another name")


def _daily(api: ApiSettings, report: Report, broken: set[str | None]) -> None:
    limits = api.limits
    of_subjects: dict[str, DailyLimits | None] = {}
    named: list[tuple[Path, DailyLimits | None]] = [
        (("limits", "per_subject_daily"), limits.per_subject_daily),
        (("limits", "daily"), limits.daily),
    ]
    for index, key in enumerate(api.auth.keys):
        path: Path = ("auth", "keys", index)
        named.append(((*path, "daily"), key.daily))
        if of_subjects.setdefault(key.subject, key.daily) != key.daily:
            what = f"differs from that of another key of '{key.subject}', whose keys share one limit"
            report((*path, "daily"), what, "the same `daily` in all keys of a subject")
    for path, daily in named:
        within = f"{dotted(('api', *path))}."
        if daily is not None and daily.is_empty and not any(key and key.startswith(within) for key in broken):
            report(path, "limits nothing", "`max_cost` (USD), `max_tokens`, or both")


def _modes(api: ApiSettings, report: Report) -> None:
    auth = api.auth
    if auth.mode == "StaticKeys" and not auth.keys:
        hint = "`callboard keys new SUBJECT` makes one."
        report(("auth", "mode"), "is StaticKeys, but `api.auth.keys` is empty", "at least one key", hint)
    if auth.mode == "Jwt" and auth.jwt is None:
        report(
            ("auth", "mode"),
            "is Jwt, but `api.auth.jwt` is missing",
            "`api.auth.jwt` with issuer, audience and jwks_url",
        )


def _jwt(jwt: Jwt, report: Report) -> None:
    url = _url(jwt.jwks_url)
    if jwt.jwks_url and (
        url is None
        or not url.hostname
        or url.scheme not in ("http", "https")
        or (url.scheme == "http" and url.hostname not in LOOPBACK)
    ):
        expected = (
            "an https URL; http is accepted for this machine only, because others could replace the keys on the way"
        )
        report(("auth", "jwt", "jwks_url"), f"is '{jwt.jwks_url}'", expected)
    known = "one of " + ", ".join(ALGORITHMS)
    if not jwt.algorithms:
        report(("auth", "jwt", "algorithms"), "is empty", known)
    for index, name in enumerate(jwt.algorithms):
        if name not in ALGORITHMS:
            what = f"is '{name}', which is not an algorithm with public keys"
            report(("auth", "jwt", "algorithms", index), what, known, did_you_mean(name, ALGORITHMS))


def _origins(cors: Cors, report: Report) -> None:
    for index, origin in enumerate(cors.allowed_origins):
        url = _url(origin)
        plain = url is not None and url.scheme in ("http", "https") and url.hostname and "@" not in url.netloc
        if origin != "*" and not (plain and url is not None and origin.rstrip("/") == f"{url.scheme}://{url.netloc}"):
            expected = "an origin such as https://example.org or http://localhost:5173, or '*'"
            report(("cors", "allowed_origins", index), f"is '{origin}'", expected)
    # Browsers refuse `*` for requests with credentials (Fetch standard), so this combination could not work.
    if cors.allow_credentials and "*" in cors.allowed_origins:
        report(
            ("cors", "allow_credentials"),
            "is true while every origin is allowed",
            "a list of origins without '*', or false",
        )


def _networks(api: ApiSettings, report: Report) -> None:
    for index, name in enumerate(api.trusted_proxies):
        try:
            ip_network(name, strict=False)
        except ValueError:
            report(("trusted_proxies", index), f"is '{name}'", "an address or a network, such as 10.0.0.0/8")
    for index, name in enumerate(api.model_directories):
        if not name.startswith("/"):
            report(("model_directories", index), f"is '{name}'", "an absolute path, such as /srv/models")
    host = "a host name without scheme and port, such as board.example.org or *.example.org"
    for index, name in enumerate(api.allowed_hosts):
        if not re.fullmatch(r"(\*|(\*\.)?[A-Za-z0-9._-]+|\[?[0-9a-fA-F:.]+\]?)", name):
            report(("allowed_hosts", index), f"is '{name}'", host)


def _audit(api: ApiSettings, report: Report) -> None:
    audit = api.audit
    if audit.sink == "file" and not audit.file.startswith("/"):
        report(("audit", "file"), f"is '{audit.file}'", "an absolute path, since `api.audit.sink` is file")
    if audit.facility not in FACILITIES:
        expected, hint = "one of " + ", ".join(FACILITIES), did_you_mean(audit.facility, FACILITIES)
        report(("audit", "facility"), f"is '{audit.facility}'", expected, hint)


def _url(text: str) -> SplitResult | None:
    try:
        url = urlsplit(text)
        # `urlsplit` accepts any port; only this property raises ValueError for an invalid one.
        _ = url.port
    except ValueError:
        return None
    return url
