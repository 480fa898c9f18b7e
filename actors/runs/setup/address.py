"""Lookup of an OpenAI-compatible server at an address that a user types, with a diagnosis if that fails.

    look_up("gpu.example:8000")      -> base http://gpu.example:8000/v1, its models
    look_up("https://llm.example")   -> problem "unauthorized": it wants an API key

Users seldom paste the base URL. They paste a host and a port, an address that ends in `/v1/models` or
`/chat/completions`, or one without `/v1`. So each base that the text can mean is asked for its list of models. The
first valid list wins; otherwise the problem of the attempt that got furthest is reported.

Redirects are reported and not followed, because the key would be sent along. The functions block. An arbitrary
program may answer at the port, so at most `MOST` bytes are read.
"""

from __future__ import annotations

import ipaddress
import itertools
import json
import re
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

import msgspec

from ....protocol.settings import ClientSettings
from ...work.models.providers import BUILT_IN, READY_MADE, SUGGESTED, key_variables
from .detect import MOST, UsableProvider, names_in

WITHIN = 10.0
"""Seconds for a server to connect, and for each piece of its answer."""

Why = Literal[
    "address", "dns", "refused", "unreachable", "timeout", "tls", "not_http", "redirect",
    "unauthorized", "not_found", "failing", "no_list", "no_models",
]  # fmt: skip

_FURTHEST: tuple[Why, ...] = (
    "address", "dns", "unreachable", "refused", "timeout", "tls", "not_http",
    "not_found", "no_list", "redirect", "failing", "no_models", "unauthorized",
)  # fmt: skip
"""Problems, ordered by the progress of the request."""

_OF_HOST: tuple[Why, ...] = ("dns", "unreachable", "refused", "timeout", "tls", "not_http")

# `/chat/completions` before `/completions`, which would leave `/chat`.
_ENDS = ("/models", "/chat/completions", "/completions", "/embeddings", "/responses")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class ReachedAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a lookup.

    Attributes:
        base: base URL of the API.
        models: chat models, in the order of the server.
        why: code of the problem; None if there is none.
        said: the problem as a sentence.
    """

    base: str
    models: tuple[str, ...] = ()
    why: Why | None = None
    said: str = ""


def look_up(text: str, key: str = "", within: float = WITHIN) -> ReachedAddress:
    """Ask each base URL that the address can mean for its list of models, with `key` if there is one. Blocks.

    Returns the first base that lists models or requires a key, else the problem of the attempt that got furthest.
    """
    bases = bases_of(text)
    if isinstance(bases, ReachedAddress):
        return bases
    found: list[ReachedAddress] = []
    dead: set[str] = set()  # schemes by which the host cannot be reached, whatever the path
    for base in bases:
        scheme = urlsplit(base).scheme
        if scheme in dead:
            continue
        reached = _ask(base, key, within)
        # A server that wants a key has its API at this base, so the other bases need no request.
        if reached.why in (None, "unauthorized"):
            return reached
        if reached.why in _OF_HOST:
            dead.add(scheme)
        found.append(reached)
    # Of equal problems `max` returns the first, which belongs to the likeliest base.
    return max(found, key=lambda each: _FURTHEST.index(each.why or "unauthorized"))


def bases_of(text: str) -> list[str] | ReachedAddress:
    """Return the base URLs that a text can mean, the likeliest first; or the problem if the text is not an address."""
    text = text.strip().strip("<>\"'`").rstrip("/")
    given = bool(_SCHEME.match(text))
    try:
        parts = urlsplit(text if given else f"//{text}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
        parts = urlsplit("")
    if not host or any(char.isspace() or not char.isprintable() for char in text):
        return _refused("address", text, "this is not an address; an example is http://gpu.example:8000/v1")
    if given and parts.scheme not in ("http", "https"):
        return _refused("address", text, f"'{parts.scheme}' can't be used for an API: use http or https")
    if parts.username is not None:
        return _refused("address", text, "leave the user and password out of the address: the key is asked for next")
    schemes = [parts.scheme] if given else ["http", "https"] if port or _is_near(host) else ["https", "http"]
    path = parts.path.rstrip("/")
    for end in _ENDS:
        path = path.removesuffix(end).rstrip("/")
    paths = [path] if re.search(r"/v\d+(beta)?(/|$)", path) else [f"{path}/v1", path]
    return [urlunsplit((scheme, parts.netloc, each, "", "")) for scheme in schemes for each in paths]


def offer_of(reached: ReachedAddress, taken: Mapping[str, str]) -> UsableProvider:
    """Return the server as an offer of `callboard setup`.

    Args:
        taken: clients in config.yaml, by name, with their base URLs. A client of the same server is reused.
    """
    name = next((each for each, base in taken.items() if base.rstrip("/") == reached.base), "")
    parts = urlsplit(reached.base)
    if not name:
        first = _name_of(parts.hostname or "", parts.port)
        known = {*BUILT_IN, *READY_MADE, *SUGGESTED, *taken}
        numbered = (f"{first}-{number}" for number in itertools.count(2))
        name = first if first not in known else next(each for each in numbered if each not in known)
    client = ClientSettings(type="openai-compatible", name=name, api_base=reached.base)
    return UsableProvider(
        client=client,
        title=name,
        why=f"it answers at {reached.base}",
        models=reached.models,
        key=key_variables(client)[0],
    )


def _name_of(host: str, port: int | None) -> str:
    """Return a name for a client. It begins with a letter, as the variable of its key (`NAME_API_KEY`) has to."""
    words = re.sub(r"[^a-z0-9]+", "-", host.lower()).strip("-")
    if not words[:1].isalpha() or host == "localhost":
        return f"server-{port}" if port else "server"
    return words


class _Unfollowed(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Return None, which makes urllib raise the redirect as an `HTTPError`."""
        return


def _ask(base: str, key: str, within: float) -> ReachedAddress:
    headers = {"accept": "application/json", "user-agent": "callboard"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    opener = urllib.request.build_opener(_Unfollowed())  # uses the proxies of the environment
    try:
        request = urllib.request.Request(f"{base}/models", headers=headers)  # noqa: S310 - http and https alone
        with opener.open(request, timeout=within) as answer:
            data = answer.read(MOST)
    except urllib.error.HTTPError as error:
        return _refused_by_server(base, error, key)
    except (OSError, ValueError, urllib.error.URLError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return _not_reached(base, reason, within)
    except Exception as error:  # noqa: BLE001 - http.client raises its own classes if the answer is not HTTP
        return _refused("not_http", base, f"what answers at {base} does not speak HTTP ({type(error).__name__})")
    try:
        models = names_in(json.loads(data))
    except (ValueError, RecursionError):
        models = None
    if models is None:
        return _refused("no_list", base, f"{base}/models answers, and not with a list of models: is this the API?")
    if not models:
        return _refused("no_models", base, f"{base} answers and has no model to chat with yet: load one there")
    return ReachedAddress(base=base, models=models)


def _not_reached(base: str, reason: object, within: float) -> ReachedAddress:
    parts = urlsplit(base)
    host, where = parts.hostname or "", parts.netloc
    if isinstance(reason, socket.gaierror):
        return _refused("dns", base, f"the name {host} is not known (DNS): {reason.strerror or reason}")
    if isinstance(reason, ssl.SSLCertVerificationError):
        why = f"its certificate is not trusted: {reason.verify_message}"
        return _refused("tls", base, f"TLS with {where} failed: {why} (SSL_CERT_FILE names further authorities)")
    if isinstance(reason, ssl.SSLError):
        return _refused("tls", base, f"TLS with {where} failed ({reason.reason or reason}): is it http, not https?")
    if isinstance(reason, ConnectionRefusedError):
        return _refused("refused", base, f"{where} refused the connection: is the server running?")
    if isinstance(reason, TimeoutError):
        return _refused("timeout", base, f"{where} did not answer within {within:g} s")
    if isinstance(reason, ConnectionError):
        return _refused("not_http", base, f"{where} closed the connection unanswered: is it https, not http?")
    if isinstance(reason, OSError):
        return _refused("unreachable", base, f"{where} can't be reached: {reason.strerror or reason}")
    return _refused("address", base, f"{base} can't be asked: {reason}")


def _refused_by_server(base: str, error: urllib.error.HTTPError, key: str) -> ReachedAddress:
    code, where = error.code, f"{base}/models"
    location = error.headers.get("location", "")
    error.close()
    if code in (401, 403):
        said = "it does not accept this API key" if key else "it wants an API key"
        return _refused("unauthorized", base, f"{base}: {said} (HTTP {code})")
    if code in (404, 405):
        return _refused("not_found", base, f"{where} does not exist (HTTP {code}): addresses often end in /v1")
    if 300 <= code < 400:
        return _refused("redirect", base, f"{where} redirects to {location or 'another address'}: enter that one")
    return _refused("failing", base, f"{where} answers with HTTP {code}: look into the log of the server")


def _refused(why: Why, base: str, said: str) -> ReachedAddress:
    return ReachedAddress(base=base, why=why, said=said)


def _is_near(host: str) -> bool:
    """Return whether a host is this machine or in its network, where servers rarely have a certificate."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host == "localhost" or "." not in host or host.endswith((".local", ".lan", ".internal"))


def lists_nothing(reached: ReachedAddress) -> bool:
    """Return whether the server may be usable although it has no list of models."""
    lacking: Sequence[Why] = ("not_found", "no_list", "no_models", "failing")
    return reached.why in lacking
