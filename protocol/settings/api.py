"""Block `api:` of `config.yaml`: access to `callboard serve`, its limits, and its audit log.

    api:
      listen_addr: 0.0.0.0:3400
      auth:
        keys:
          - subject: alice
            key_hash: $argon2id$v=19$m=65536,t=3,p=4$...      # `callboard keys new alice` prints it
            scopes: [run:agents, read:runs, write:runs]
      limits: {rate_limit_per_minute: 60, rate_limit_burst: 10, daily: {max_cost: 20}}

The keys come from Loki's plan for a REST API; a few are added. Only a server reads the block. `api_checks` has
conditions that types cannot express.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

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

    max_cost: Annotated[Usd | None, Meta(description="USD; only models whose price is known are asked.")] = None
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
