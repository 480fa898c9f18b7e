"""Patches of `config.yaml` and of the environment, applied to requests: that of the model, then one of its client.

Of the client's, a variable of the environment stands in for those of the file, and the first pattern that fits the
whole name of the model (as the user writes it) holds. A body is merged as JSON Merge Patch has it (RFC 7396): mappings
key by key, null removes a key, anything else replaces what was there.

A codec that is patched gives out requests that are: so signatures, the log and what is counted are those of what goes
out.
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
"""Seconds that a pattern may take for the name of a model."""


class Patched:
    """What becomes of the requests to one model.

    Args:
        patches: in the order in which they are applied.

    Attributes:
        base: where requests go in place of their own base URL; empty where they go as they would.
        size: bytes that come into a body at most.
    """

    def __init__(self, patches: Sequence[Patch]) -> None:
        url = next((patch.url for patch in reversed(patches) if patch.url), "")
        parts = urlsplit(url)
        self.base = f"{parts.scheme}://{parts.netloc}" if url else ""
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._bodies = [patch.body for patch in patches if patch.body]
        self.size = sum(len(msgspec.json.encode(body)) for body in self._bodies)
        self._headers: dict[str, str | None] = {}
        for patch in patches:
            self._headers |= {name.lower(): value for name, value in patch.headers.items()}

    def below(self, path: str) -> str:
        """Where a request goes below the base URL; its own is `path`."""
        return self._path if self.base else path

    def headers(self, own: Mapping[str, str]) -> dict[str, str]:
        """The headers of a request, of which `own` are its own."""
        kept = {name: value for name, value in own.items() if name.lower() not in self._headers}
        return kept | {name: value for name, value in self._headers.items() if value is not None}

    def body(self, own: bytes) -> bytes:
        """Its body."""
        if not self._bodies:
            return own
        value = msgspec.json.decode(own)
        for patch in self._bodies:
            value = merged(value, patch)
        return msgspec.json.encode(value)


def merged(value: Json, patch: Json) -> Json:
    """The value with a merge patch applied; neither is changed."""
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
    """A codec whose requests are patched."""

    def __init__(self, codec: Codec, patched: Patched) -> None:
        self.streams_tools = codec.streams_tools
        self._codec = codec
        self._patched = patched

    def headers(self, key: str) -> dict[str, str]:
        """See `Codec`."""
        return self._patched.headers(self._codec.headers(key))

    def encode(self, request: ChatRequest, model: str, *, stream: bool) -> Outgoing:
        """See `Codec`."""
        outgoing = self._codec.encode(request, model, stream=stream)
        path, body = self._patched.below(outgoing.path), self._patched.body(outgoing.body)
        return msgspec.structs.replace(outgoing, path=path, body=body)


def patched(
    settings: Settings, client: ClientSettings, model: ModelSettings, api: Api, *, by_environment: bool = True
) -> Patched | None:
    """What becomes of the requests to a model; None if nothing.

    Args:
        by_environment: variables may patch them.

    Raises:
        ConfigError: a pattern takes too long, or what a value refers to makes no URL and no header.
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
                f"'{client.name}:{model.name}': {at}: a local model has no `url`, its engine is started here"
            )
    return Patched(patches) if patches else None


def _first(patterns: Patterns, name: str, where: str) -> Patch | None:
    for pattern, patch in patterns.items():
        try:
            if regex.fullmatch(pattern, name, regex.VERSION0, timeout=PATIENCE):
                return patch
        except TimeoutError:
            raise ConfigError(f"{where}: `{pattern[:80]}` takes too long for '{name}': write it simpler") from None
        except (regex.error, OverflowError, RecursionError) as error:
            raise ConfigError(f"{where}: `{pattern[:80]}` is no regular expression: {error}") from None
    return None


def _check(patch: Patch, model: str, where: str) -> None:
    """Values that refer to the environment are known by now."""
    if patch.url and (why := why_no_url(patch.url)):
        raise ConfigError(f"'{model}': {where}: `url` {why}")
    for name, value in patch.headers.items():
        if value is not None and (why := why_no_header(value)):
            raise ConfigError(f"'{model}': {where}: the value of header `{name}` {why}")
