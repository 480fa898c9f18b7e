"""Clients that a file describes instead of naming one of `config.yaml`, as agents of workflows do.

    provider: openai                                     a client of config.yaml, or a provider by its own name
    provider: openai, base_url: ..., api_key: ...        the same elsewhere, or on another account
    provider: my-lab, base_url: ...                      an unknown name speaks OpenAI's format

Equal descriptions share connections: see `Catalog.adopt`. A key that the file does not name goes to the
provider's own address alone, as environment and settings have it: else the file of a stranger could collect keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import msgspec

from ....protocol.errors import GraphMistake
from ....protocol.problems import did_you_mean
from ....protocol.settings import ClientSettings, Settings
from . import gemini
from .providers import BUILT_IN, PROVIDERS, READY_MADE, base_of, key_variables


def providers(settings: Settings) -> frozenset[str]:
    """What can be named without a base URL."""
    return frozenset({*PROVIDERS, *(client.name for client in settings.clients)})


def client_of(
    provider: str,
    base_url: str | None,
    api_key: str | None,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    also: Iterable[str] = (),
) -> ClientSettings | None:
    """The client that is described; None where the provider's name is enough.

    Args:
        also: names that the caller knows, for the hint.

    Raises:
        GraphMistake: the provider is unknown.
    """
    known = providers(settings)
    if provider not in known and not base_url:
        names = {*known, *also}
        near = did_you_mean(provider, names) or f"there are {', '.join(sorted(names))}; any other needs a `base_url`"
        raise GraphMistake(f"no provider '{provider}': {near}")
    own = _own(provider, settings)
    elsewhere = _elsewhere(own, base_url, environ)
    if not elsewhere and not api_key:
        return None
    return ClientSettings(
        type=own.type,
        name=provider,
        api_base=elsewhere or own.api_base,
        api_key=api_key or "",
        extra=own.extra,
        max_concurrency=own.max_concurrency,
    )


def withheld(provider: str, base_url: str, settings: Settings, environ: Mapping[str, str]) -> str:
    """The key that a description without one might be thought to have, and hasn't: where it stands; "" for none."""
    own = _own(provider, settings)
    if not _elsewhere(own, base_url, environ):
        return ""
    if own.api_key:
        return f"`api_key` of client '{provider}' in {settings.file}"
    return next((name for name in key_variables(own) if environ.get(name)), "")


def _own(provider: str, settings: Settings) -> ClientSettings:
    """The provider as it is without a description."""
    client = next((each for each in settings.clients if each.name == provider), None)
    if client is not None:
        return client
    return ClientSettings(
        type=BUILT_IN.get(provider, "openai-compatible"), name=provider, api_base=READY_MADE.get(provider, "")
    )


def _elsewhere(own: ClientSettings, base_url: str | None, environ: Mapping[str, str]) -> str:
    """The base URL that a file names, unless it is where that provider is reached anyway."""
    if not base_url:
        return ""
    if own.type == "gemini" and not urlsplit(base_url).path.strip("/"):
        base_url = base_url.rstrip("/") + urlsplit(gemini.DEFAULT_BASE).path  # Google's own library adds it, too
    there = base_of(msgspec.structs.replace(own, api_base=base_url), environ)
    return "" if there == base_of(own, environ) else base_url
