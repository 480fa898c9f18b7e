"""Request patches of `config.yaml` and the environment: first the model's patch, then one of its client.

A client has patches by pattern; the first pattern that matches the whole model name (as the user writes it) applies.
A variable of the environment replaces the client's patches of the file. Bodies are merged by JSON Merge Patch
(RFC 7396): mappings key by key, null removes a key, any other value replaces the old one.

`PatchedCodec` applies patches during encoding. So signatures, the log and token estimates refer to the patched request
that is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec
import regex

from ....protocol.chat import ChatRequest
from ....protocol.errors import ConfigError
from ....protocol.settings import ClientSettings, ModelSettings, Settings
from ....protocol.settings.patches import Api, Patch, Patterns, client_in_variables, why_no_header, why_no_url
from .codec import Codec, Outgoing

Json = Any

PATIENCE = 1.0
"""Time limit of one pattern match, in seconds: a pattern may backtrack exponentially."""


class Patched:
    """Combined patches of one model.

    Args:
        patches: patches in the order of their application.

    Attributes:
        base: scheme and host that replace the base URL; empty if no patch has a URL.
        size: upper bound of the bytes that the patches add to a body.
    """

    def __init__(self, patches: Sequence[Patch]) -> None:
        # The last patch with a URL counts, the same as for keys of the body.
        url = next((patch.url.strip() for patch in reversed(patches) if patch.url), "")
        parts = urlsplit(url)
        self.base: str = f"{parts.scheme}://{parts.netloc}" if url else ""
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._bodies = [patch.body for patch in patches if patch.body]
        self.size: int = sum(len(msgspec.json.encode(body)) for body in self._bodies)
        self._headers: dict[str, str | None] = {}
        for patch in patches:
            # Header names ignore case; the value None removes a header.
            self._headers |= {name.lower(): value for name, value in patch.headers.items()}

    def below(self, path: str) -> str:
        """Return the path of a request below the base URL: that of the patch, else `path`."""
        return self._path if self.base else path

    def headers(self, own: Mapping[str, str]) -> dict[str, str]:
        """Return the headers `own` with patched ones replaced, added or removed."""
        unpatched = {name: value for name, value in own.items() if name.lower() not in self._headers}
        return unpatched | {name: value for name, value in self._headers.items() if value is not None}

    def body(self, own: bytes) -> bytes:
        """Return the body `own` with all patches merged."""
        if not self._bodies:
            return own
        value = msgspec.json.decode(own)
        for patch in self._bodies:
            value = merged(value, patch)
        return msgspec.json.encode(value)


def merged(value: Json, patch: Json) -> Json:
    """Return the value with a merge patch applied; neither is modified."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for key, change in patch.items():
        if change is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), change)
    return result


class PatchedCodec:
    """Codec that applies patches to the requests of another codec."""

    def __init__(self, codec: Codec, patched: Patched) -> None:
        self.streams_tools = codec.streams_tools
        self._codec = codec
        self._patched = patched

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers of the other codec, patched."""
        return self._patched.headers(self._codec.headers(key))

    def encode(self, request: ChatRequest, model: str, *, stream: bool) -> Outgoing:
        """Return the request of the other codec with its path and body patched."""
        outgoing = self._codec.encode(request, model, stream=stream)
        path, body = self._patched.below(outgoing.path), self._patched.body(outgoing.body)
        return msgspec.structs.replace(outgoing, path=path, body=body)


def patched(
    settings: Settings, client: ClientSettings, model: ModelSettings, api: Api, *, by_environment: bool = True
) -> Patched | None:
    """Return the combined patches of a model, or None if there are none.

    Args:
        by_environment: True if variables of the environment apply to this client.

    Raises:
        ConfigError: a pattern is invalid or takes too long, a value is no valid URL or header, or a local model has a
            `url`.
    """
    if model.patch is None and client.patch is None and not settings.patches:
        return None
    patterns: Patterns = getattr(client.patch, api) if client.patch is not None else {}
    where = f"`patch` of client '{client.name}' in {settings.file}"
    if by_environment and (client_in_variables(client.name), api) in settings.patches:
        patterns = settings.patches[client_in_variables(client.name), api]
        where = f"CALLBOARD_PATCH_{client_in_variables(client.name)}_{api.upper()}, or LOKI_PATCH_..."
    of_client = _first(patterns, model.name, where)
    patches = [patch for patch in (model.patch, of_client) if patch is not None and patch != Patch()]
    for patch in patches:
        at = where if patch is of_client else f"its `patch` in {settings.file}"
        _check(patch, f"{client.name}:{model.name}", at)
        if patch.url and client.type == "local":
            raise ConfigError(
                f"'{client.name}:{model.name}': {at}: a local model has no `url`, because Callboard starts "
                "its engine on this machine"
            )
    return Patched(patches) if patches else None


def _first(patterns: Patterns, name: str, where: str) -> Patch | None:
    for pattern, patch in patterns.items():
        try:
            # `regex` instead of `re`, which has no timeout.
            if regex.fullmatch(pattern, name, regex.VERSION0, timeout=PATIENCE):
                return patch
        except TimeoutError:
            raise ConfigError(
                f"{where}: matching `{pattern[:80]}` with '{name}' takes too long: simplify the pattern"
            ) from None
        except (regex.error, OverflowError, RecursionError) as error:
            raise ConfigError(f"{where}: `{pattern[:80]}` is not a valid regular expression: {error}") from None
    return None


def _check(patch: Patch, model: str, where: str) -> None:
    """Check URL and header values. References to the environment are already resolved, so loading cannot do this."""
    if patch.url and (why := why_no_url(patch.url.strip())):
        raise ConfigError(f"'{model}': {where}: `url` {why}")
    for name, value in patch.headers.items():
        if value is not None and (why := why_no_header(value)):
            raise ConfigError(f"'{model}': {where}: the value of header `{name}` {why}")
