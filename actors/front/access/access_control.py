"""Authentication, authorisation and limits of each caller, over the websocket and HTTP.

    caller = await access.authenticate(headers, peer)
    access.authorize_method(caller, "_run/start")
    async with access.slot(caller): ...

Cheap checks come first. A known key is in a cache; for a new one a hash has to be computed. An address that sends too
many bad keys is refused before that, for a minute. So ten thousand bad logins cost ten hashes per address and a lookup
each, and callers with a good key do not wait for them.

The settings are the block `api:` of config.yaml: validated before the server listens (`check_may_listen`), and read
again on SIGHUP (`reload`).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
import math
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, final

import msgspec
import trio

from ....protocol.control.caller import LOCAL, Caller
from ....protocol.errors import CallboardError, ConfigError, Denied, RateLimited, Saturated, Unauthorized, UsageError
from ....protocol.settings.api import LOOPBACK, ApiKey, ApiSettings, AuditSettings
from ....supervisors.installation import install_command
from ...io.server_log import set_level
from ...io.settings import load_settings
from .audit import Audit, Result
from .credentials import KeyRing, KeySet, SignedCaller, SignedTokens, caller_of, looks_signed
from .limits import ConcurrencyLimiter, RateLimiter, counted
from .origins import Headers, Origins, is_loopback, network_of, peer_of
from .scopes import EVERYTHING, METHODS, Rule, need
from .server_paths import ServerPaths

if TYPE_CHECKING:
    from ....supervisors import Actor, Ref
    from ..metrics import Metrics


log = logging.getLogger("callboard.server.access")

BAD_LOGINS = 10
"""Bad logins of one address within a minute, after which its keys are refused unchecked."""

MOST_REPORTED = 10_000
"""Maximum number of addresses that are remembered as reported in the audit log."""

LINES_PER_ADDRESS = 60
"""Audit lines per minute about a refused address, so that no address can fill the log."""

LOGINS_AT_ONCE, LOGINS_IN_LINE = 4, 64
"""Unknown keys that are checked, or wait for a check, at a time: per address, and in total."""

DEFAULT_RATE = 60
"""Requests per subject and minute without a configured rate, if other machines can connect."""

SUBPROTOCOL = "bearer."
"""Prefix of a token in `Sec-WebSocket-Protocol`, base64url without padding: pages can't set other headers."""

FIXED = (
    *("listen_addr", "request_timeout_seconds", "shutdown_grace_seconds", "force_https", "log_format", "keep_runs"),
    *("metrics_public", "model_directories"),
)
"""Settings of the block that a reload can't change, as are `limits.max_body_bytes` and `limits.max_frame_bytes`."""


@final
class AccessControl:
    """Access control of a server.

    Args:
        settings: `api:` block.
        local_token: token in this user's files; it is valid only on this machine.
        loopback: True if the server listens only on a loopback address.
        audit: audit log; by default nothing is written.
        paths: paths hidden from callers without `run:files`; by default those below the home directory.
        now: wall clock, for signed tokens.
    """

    def __init__(
        self,
        settings: ApiSettings,
        *,
        local_token: str,
        loopback: bool,
        audit: Audit | None = None,
        metrics: Metrics | None = None,
        environ: Mapping[str, str] = os.environ,
        paths: ServerPaths | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.audit = audit or Audit(AuditSettings(sink="off"))
        self.metrics = metrics
        self.paths = paths or ServerPaths({"home": environ.get("HOME") or Path.home()})
        self._token = local_token.encode()
        self._loopback = loopback
        self._environ = environ
        self._now = now
        self._bad_logins = RateLimiter(BAD_LOGINS)
        self._logins = ConcurrencyLimiter(LOGINS_AT_ONCE, LOGINS_IN_LINE)
        self._lines = RateLimiter(LINES_PER_ADDRESS)
        self._reported: set[str] = set()
        limits = settings.limits
        self._open: dict[trio.CancelScope, Caller] = {}
        self._websockets: Counter[str] = Counter()
        self.requests = ConcurrencyLimiter(limits.per_subject_concurrency, limits.max_concurrent_requests)
        self.rates = self._new_rates(settings)
        self.origins = Origins(settings, loopback=loopback)
        self._ring = KeyRing(settings.auth.static)
        self._signed = self._new_signed(settings)
        self._me: Actor | None = None
        self._keeper: Ref[Any] | None = None

    # --- authentication -------------------------------------------------------------------------------------

    async def authenticate(self, headers: Headers, peer: str) -> Caller:
        """Return the caller with these headers, which have lower-case names; counts for the subject's rate.

        Args:
            peer: address of the connection's peer.

        Raises:
            Denied: the request is for another host, or from a forbidden page.
            Unauthorized: there is no token, or an unknown one.
            RateLimited: too many requests, or too many bad tokens from the address.
            Saturated: too many keys are being checked.
        """
        peer = self.peer_of(headers, peer)
        self.check_origin(headers, peer)
        caller = await self._known(headers, peer)
        self.charge(caller)
        return caller

    def check_origin(self, headers: Headers, peer: str = "") -> None:
        """Raise `Denied` if a request is for another host, or from a forbidden page; see `origins`."""
        try:
            self.origins.check(headers)
        except Denied as error:
            self._count_failure("place")
            if not self._lines.charge(network_of(peer)):
                host = headers.get("host")
                self.audit.log("AccessDenied", "denied", peer=peer or None, target=host, reason=str(error))
            raise

    def peer_of(self, headers: Headers, peer: str) -> str:
        """Return the address of the client, behind trusted proxies."""
        return peer_of(headers, peer, self.settings.trusted_proxies)

    async def _known(self, headers: Headers, peer: str) -> Caller:
        token = token_of(headers)
        if token is None:
            self._refuse(peer, "missing", "show a key: `Authorization: Bearer KEY`")
        # Constant time, so that the duration of a refusal does not reveal the token byte by byte.
        if secrets.compare_digest(token.encode("utf-8", "surrogatepass"), self._token) and is_loopback(peer):
            return LOCAL
        if (caller := self._ring.known(token)) is not None:
            return caller
        # A token whose key must first be fetched counts as unknown: made-up key ids must not cause requests for free.
        signed = self._signed if looks_signed(token) else None
        if signed is not None and signed.knows_key_of(token):
            return await self._by_signature(token, signed, peer)
        self._check_bad_logins(peer)
        return await self._newcomer(token, signed, peer)

    async def _by_signature(self, token: str, signed: SignedTokens, peer: str) -> Caller:
        try:
            return await signed.check(token)
        except Unauthorized as error:
            self._bad_login(peer, "jwt", str(error))

    async def _newcomer(self, token: str, signed: SignedTokens | None, peer: str) -> Caller:
        """Check an unknown token, which costs a hash or a lookup of the issuer's keys."""
        async with self._logins.slot(network_of(peer)):
            self._check_bad_logins(peer)  # there may be too many after the wait
            if signed is not None:
                return await self._by_signature(token, signed, peer)
            ring, caller = None, None
            while ring is not self._ring:  # repeat if the keys were reloaded meanwhile
                ring = self._ring
                caller = await ring.check(token)
            if caller is None:
                self._bad_login(peer, "key", "this API key is unknown")
        return caller

    def _check_bad_logins(self, peer: str) -> None:
        """Raise `RateLimited` if the address has sent too many bad tokens."""
        where = network_of(peer)
        wait = self._bad_logins.wait(where)
        if not wait:
            self._reported.discard(where)
            return
        self._count_rejection("logins")
        if where not in self._reported:  # one line per burst
            if len(self._reported) >= MOST_REPORTED:
                # The price of forgetting all of them is one more audit line for each address that continues to try.
                self._reported.clear()
            self._reported.add(where)
            self.audit.log("RateLimitRejection", "denied", peer=peer, reason="too many failed logins")
        raise RateLimited(
            "your address sent too many API keys that are not valid; wait a little before you try again",
            retry_after=wait,
        )

    def _bad_login(self, peer: str, kind: str, why: str) -> NoReturn:
        self._bad_logins.charge(network_of(peer))
        self._refuse(peer, kind, why)

    def _refuse(self, peer: str, kind: str, why: str) -> NoReturn:
        self._count_failure(kind)
        if not self._lines.charge(network_of(peer)):
            self.audit.log("AuthFailure", "denied", peer=peer, reason=why)
        raise Unauthorized(why)

    # --- authorisation --------------------------------------------------------------------------------------

    def authorize(self, caller: Caller, rule: Rule) -> None:
        """Raise `Denied` if the caller lacks a scope of the rule."""
        try:
            need(caller, rule)
        except Denied as error:
            self._count_failure("scope")
            self.audit.log("AccessDenied", "denied", caller=caller, reason=str(error))
            raise

    def authorize_method(self, caller: Caller, method: str) -> None:
        """Authorise a websocket method, and count it for the rate limit.

        A method that is served but not in the table needs `*`.

        Raises:
            Denied: the caller lacks a scope.
            RateLimited: the caller has made too many requests.
        """
        rule = METHODS.get(method, EVERYTHING)
        self.authorize(caller, rule)
        if rule.costs:
            self.charge(caller, rule.costs)

    def audit_method(
        self, caller: Caller, method: str, target: str | None = None, error: CallboardError | None = None
    ) -> None:
        """Log a websocket method after its execution, if the table says so."""
        rule = METHODS.get(method)
        if rule is None or rule.action is None:
            return
        result: Result = "success" if error is None else "denied" if isinstance(error, Denied) else "error"
        reason = None if error is None else str(error)
        self.audit.log(rule.action, result, caller=caller, target=target, reason=reason, details={"method": method})

    # --- limits ---------------------------------------------------------------------------------------------

    def charge(self, caller: Caller, cost: float = 1) -> None:
        """Count a request of the caller, or a fraction of one.

        Raises:
            RateLimited: there were too many.
        """
        wait = self.rates.charge(caller.subject, cost)
        if wait:
            self._count_rejection("requests")
            self.audit.log("RateLimitRejection", "denied", caller=caller)
            text = (
                f"{caller.subject} has made {self.rates.limit} requests within a minute, which is the limit; try "
                "again later"
            )
            raise RateLimited(text, retry_after=wait)

    def slot(self, caller: Caller) -> AbstractAsyncContextManager[None]:
        """Return a context manager for a request. The local user has only the total limit.

        Raises:
            Saturated: no slot became free in time.
        """
        return self.requests.slot(None if caller == LOCAL else caller.subject)

    @contextlib.contextmanager
    def websocket(self, caller: Caller) -> Iterator[None]:
        """Count a websocket for the duration of the block, from before its handshake, so that simultaneous attempts are
        counted.

        Raises:
            Saturated: the subject has the maximum number. The local user has no limit.
        """
        most = self.settings.limits.websockets_per_subject
        if caller != LOCAL and self._websockets[caller.subject] >= most:
            self._count_rejection("connections")
            raise Saturated(f"{caller.subject} has {most} websockets open, which is the limit; close one first")
        with counted(self._websockets, caller.subject):
            yield

    @contextlib.contextmanager
    def connection(self, caller: Caller) -> Iterator[trio.CancelScope]:
        """Yield the scope of an open websocket, which is cancelled when the caller's key is revoked or expires."""
        if isinstance(caller, SignedCaller):
            left = caller.until - self._now()
        else:  # the key may have been revoked meanwhile
            static = self.settings.auth.static
            left = math.inf if caller == LOCAL or any(caller_of(key) == caller for key in static) else 0.0
        open = contextlib.nullcontext() if self.metrics is None else self.metrics.websockets.track_inprogress()
        with open, self._lasting(caller, max(0.0, left)) as scope:
            yield scope

    def request(self, caller: Caller) -> AbstractContextManager[trio.CancelScope]:
        """Yield the scope of an HTTP request, which is cancelled when the caller's key is revoked. A signed token that
        expires during the request does not cancel it.
        """
        return self._lasting(caller, math.inf)

    @contextlib.contextmanager
    def _lasting(self, caller: Caller, seconds: float) -> Iterator[trio.CancelScope]:
        """Yield a scope with a deadline. Runs started by a websocket, which may be open for days, outlive it."""
        with trio.CancelScope(deadline=trio.current_time() + seconds) as scope:
            self._open[scope] = caller
            try:
                yield scope
            finally:
                del self._open[scope]

    def frame(self, direction: str) -> None:
        """Count a websocket frame, `in` or `out`, in the metrics."""
        if self.metrics is not None:
            self.metrics.frames.labels(direction).inc()

    # --- background tasks -----------------------------------------------------------------------------------

    async def start(self, me: Actor) -> None:
        """Start refreshing the issuers' keys and measuring the lag of the loop, as children of `me`."""
        self._me = me
        self._start_keeper()
        if self.metrics is not None:
            me.spawn(self.metrics.watch_lag, name="lag")
        await trio.lowlevel.checkpoint()

    def _start_keeper(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
        if self._me is not None and self._signed is not None:
            self._keeper = self._me.spawn(self._signed.keys.keep_fresh, name="jwks")

    def reload(self, settings: ApiSettings) -> list[str]:
        """Apply settings as far as possible; active requests continue unchanged.

        Returns:
            The changed keys that need a restart.
        """
        before, self.settings = self.settings, settings
        limits = settings.limits
        self.requests.resize(limits.per_subject_concurrency, limits.max_concurrent_requests)
        # A new limiter would forgive the requests of the last minute, so it replaces the old one only if needed.
        if _rate(before, loopback=self._loopback) != _rate(settings, loopback=self._loopback):
            self.rates = self._new_rates(settings)
        self.origins = Origins(settings, loopback=self._loopback)
        self._ring = KeyRing(settings.auth.static)
        # With the same settings, the keys that were already fetched stay in use.
        if before.auth.signed != settings.auth.signed:
            self._signed = self._new_signed(settings)
            self._start_keeper()
        self._end_connections(before)
        self.audit.configure(settings.audit)
        fixed = [key for key in FIXED if getattr(before, key) != getattr(settings, key)]
        sizes = ("max_body_bytes", "max_frame_bytes")
        fixed += [f"limits.{key}" for key in sizes if getattr(before.limits, key) != getattr(limits, key)]
        return fixed

    def _end_connections(self, before: ApiSettings) -> None:
        """Close connections whose key was revoked."""
        known = [_without_limits(key) for key in before.auth.static]
        kept = {caller_of(key) for key in self.settings.auth.static if _without_limits(key) in known}
        same = before.auth.signed == self.settings.auth.signed

        for scope, caller in self._open.items():
            if caller != LOCAL and not (same if isinstance(caller, SignedCaller) else caller in kept):
                scope.cancel()

    def _new_rates(self, settings: ApiSettings) -> RateLimiter:
        return RateLimiter(*_rate(settings, loopback=self._loopback))

    def _new_signed(self, settings: ApiSettings) -> SignedTokens | None:
        jwt = settings.auth.signed
        if jwt is None:
            return None
        keys = KeySet(jwt.jwks_url, jwt.jwks_refresh_interval, self._environ)
        return SignedTokens(jwt, keys, self._now)

    def _count_failure(self, reason: str) -> None:
        if self.metrics is not None:
            self.metrics.auth_failures.labels(reason).inc()

    def _count_rejection(self, kind: str) -> None:
        if self.metrics is not None:
            self.metrics.rejections.labels(kind).inc()


def token_of(headers: Headers) -> str | None:
    """Return the token of a request; None if there is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    # Browsers let pages set no headers of a websocket, only its subprotocols.
    for name in headers.get("sec-websocket-protocol", "").split(","):
        if name.strip().startswith(SUBPROTOCOL):
            encoded = name.strip().removeprefix(SUBPROTOCOL)
            with contextlib.suppress(binascii.Error, ValueError):
                return base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True).decode()
    return None


def _without_limits(key: ApiKey) -> ApiKey:
    """Return the key without its spending limits, which may change without making it another key."""
    return msgspec.structs.replace(key, daily=None)


def _rate(settings: ApiSettings, *, loopback: bool) -> tuple[int, int]:
    limit = settings.limits.rate_limit_per_minute
    if limit is None:
        limit = 0 if loopback else DEFAULT_RATE
    return limit, settings.limits.rate_limit_burst


def check_may_listen(settings: ApiSettings, host: str) -> bool:
    """Refuse to start a server that would be open to all clients; return True if `host` is loopback only.

    Raises:
        ConfigError: `api.enabled` is false, or a library for checking keys is not installed.
        UsageError: other machines could connect, and no key is set.
    """
    if settings.enabled is False:
        raise ConfigError(
            "`api.enabled` is false in config.yaml, so no server may be started; set it to true, or remove it"
        )
    auth = settings.auth
    if auth.static or auth.signed:
        try:
            import argon2  # noqa: F401 - to say so before anything is started
            import jwt  # noqa: F401 - to see whether it is there
        except ImportError as error:
            raise ConfigError(f"checking API keys needs {error.name}; run: {install_command('server')}") from None
    loopback = host in LOOPBACK
    if not loopback and not auth.static and auth.signed is None:
        raise UsageError(
            f"no API key is set, so every client that reaches {host} could run the agents. Add a key to "
            "`api.auth.keys` of config.yaml (`callboard keys new SUBJECT` prints it), name an issuer in "
            "`api.auth.jwt`, or listen on 127.0.0.1"
        )
    return loopback


async def reload(access: AccessControl, config_dir: Path) -> bool:
    """Reload the settings and apply them as far as possible. Return False, changing nothing, if they are invalid."""
    try:
        settings, _ = await trio.to_thread.run_sync(load_settings, config_dir)
    except ConfigError as error:
        log.error("config.yaml has errors, and the settings read before stay in effect: %s", error)
        access.audit.log("ConfigReload", "error", reason=str(error))
        return False
    before, after = access.settings, settings.api
    changed = sorted(_changed(before, after))
    fixed = access.reload(after)
    set_level(after.log_level)
    log.info("config.yaml was read again; changed settings: %s", ", ".join(changed) or "nothing")
    if fixed:
        log.warning("changed settings that take effect only after a restart: %s", ", ".join(fixed))
    access.audit.log("ConfigReload", details={"changed": changed, "needs_restart": fixed})
    return True


def _changed(before: ApiSettings, after: ApiSettings) -> list[str]:
    old, new = (msgspec.to_builtins(settings) for settings in (before, after))
    keys: list[str] = []
    for name, value in new.items():
        if isinstance(value, dict):
            keys += [f"{name}.{inner}" for inner, there in value.items() if old[name].get(inner) != there]
        elif old[name] != value:
            keys.append(name)
    return keys
