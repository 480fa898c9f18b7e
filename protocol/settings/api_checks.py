"""Checks of the `api:` block that types cannot express: hashes, addresses, origins, networks, and combinations.

All problems of a block are found in one pass, each with its line. Here an unknown key is an error and not a warning
as in other blocks, because a misspelt limit would be no limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_network
from urllib.parse import SplitResult, urlsplit

import msgspec

from ..control.caller import SCOPES
from ..problems import Problem, Severity, did_you_mean
from ..reading import Reading, in_file_order
from ..tree import Mapping, Node, Path, Sequence, dotted
from .api import ALGORITHMS, ApiSettings, Cors, DailyLimits, Jwt

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
                "is no argon2id hash; a key itself must never be here",
                "$argon2id$v=19$m=...,t=...,p=...$...$...",
                f"`callboard keys new {key.subject or 'SUBJECT'}` makes a key and prints its hash.",
            )
        elif costs is not None and any(
            int(cost) > most
            for cost, most in zip(costs.groups(), (_MOST_MEMORY, _MOST_PASSES, _MOST_LANES), strict=True)
        ):
            what = "is too costly to check, and any caller makes the server check it"
            report((*path, "key_hash"), what, f"at most m={_MOST_MEMORY}, t={_MOST_PASSES}, p={_MOST_LANES}")
        if key.id and not re.fullmatch(r"[A-Za-z0-9-]{1,64}", key.id):
            report((*path, "id"), f"is '{key.id}'", "at most 64 letters, digits and hyphens")
        elif key.id in seen:
            report((*path, "id"), f"is '{key.id}', as that of another key", "an id of its own")
        # The id is optional: keys without one are no duplicates of each other.
        seen.update({key.id} - {""})
        for place, scope in enumerate(key.scopes):
            if scope != "*" and scope not in SCOPES:
                report(
                    (*path, "scopes", place),
                    f"is '{scope}', which nothing here asks for",
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
            what = f"differs from that of another key of '{key.subject}', and what they spend is counted together"
            report((*path, "daily"), what, "the same `daily` in all keys of a subject")
    for path, daily in named:
        within = f"{dotted(('api', *path))}."
        if daily is not None and daily.is_empty and not any(key and key.startswith(within) for key in broken):
            report(path, "limits nothing", "`max_cost` (USD), `max_tokens`, or both")


def _modes(api: ApiSettings, report: Report) -> None:
    auth = api.auth
    if auth.mode == "StaticKeys" and not auth.keys:
        hint = "`callboard keys new SUBJECT` makes one."
        report(("auth", "mode"), "is StaticKeys, and `api.auth.keys` has none", "at least one key", hint)
    if auth.mode == "Jwt" and auth.jwt is None:
        report(("auth", "mode"), "is Jwt, and there is no `api.auth.jwt`", "issuer, audience and jwks_url there")


def _jwt(jwt: Jwt, report: Report) -> None:
    url = _url(jwt.jwks_url)
    if jwt.jwks_url and (
        url is None
        or not url.hostname
        or url.scheme not in ("http", "https")
        or (url.scheme == "http" and url.hostname not in LOOPBACK)
    ):
        expected = "an https URL (http only on this machine: an attacker in between could put in keys)"
        report(("auth", "jwt", "jwks_url"), f"is '{jwt.jwks_url}'", expected)
    known = "one of " + ", ".join(ALGORITHMS)
    if not jwt.algorithms:
        report(("auth", "jwt", "algorithms"), "is empty", known)
    for index, name in enumerate(jwt.algorithms):
        if name not in ALGORITHMS:
            what = f"is '{name}', which can't be checked with a public key"
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
        report(("cors", "allow_credentials"), "is true while every origin is allowed", "the origins by name, or false")


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
