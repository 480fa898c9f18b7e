"""The providers that are known by their name: where each is reached, and which variables may hold its key.

A file may describe a client instead of naming one of `config.yaml`, as agents of workflows do:

    provider: openai                                     a client of config.yaml, or a provider by its own name
    provider: openai, base_url: ..., api_key: ...        the same elsewhere, or on another account
    provider: my-lab, base_url: ...                      an unknown name speaks OpenAI's format

Equal descriptions share connections: see `Catalog.adopt`. A key that the file does not name goes to the
provider's own address alone, as environment and settings have it: else the file of a stranger could collect keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib.metadata import version
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from ....protocol.errors import ConfigError, CredentialsError, GraphMistake
from ....protocol.problems import did_you_mean, suggestion
from ....protocol.settings import CLIENT_TYPES, ClientSettings, ModelSettings, Settings
from ....protocol.settings.model import KEYS_OF_TYPES

if TYPE_CHECKING:
    from .prices.find import Finder

READY_MADE = {
    "deepinfra": "https://api.deepinfra.com/v1/openai",
    "deepseek": "https://api.deepseek.com",
    "fireworks": "https://api.fireworks.ai/inference/v1",
    "groq": "https://api.groq.com/openai/v1",
    "jina": "https://api.jina.ai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "perplexity": "https://api.perplexity.ai",
    "together": "https://api.together.xyz/v1",
    "voyageai": "https://api.voyageai.com/v1",
    "xai": "https://api.x.ai/v1",
}
"""Base URLs of `openai-compatible` clients that are known by their name."""

OPENAI = "https://api.openai.com/v1"
ANTHROPIC = "https://api.anthropic.com/v1"
COHERE = "https://api.cohere.com/v2"
GEMINI = "https://generativelanguage.googleapis.com/v1beta"
OLLAMA = "http://localhost:11434"

WANT_KEYS = frozenset({OPENAI, ANTHROPIC, COHERE, GEMINI, *READY_MADE.values()})

WANT_KEYS_ANYWHERE = ("azure-openai",)
"""Types of clients that have a key wherever they are reached."""

_MORE_VARIABLES = {
    "azure-openai": "AZURE_OPENAI_API_KEY",
    "bedrock": "AWS_BEARER_TOKEN_BEDROCK",
    "openai": "OPENAI_API_KEY",
    "claude": "ANTHROPIC_API_KEY",
    "cohere": "CO_API_KEY",
    "gemini": "GOOGLE_API_KEY",
}
BASES = {"openai": "OPENAI_BASE_URL", "claude": "ANTHROPIC_BASE_URL"}
KEYLESS = ("ollama", "local")
BUILT_IN = {
    "openai": "openai",
    "bedrock": "bedrock",
    "claude": "claude",
    "anthropic": "claude",
    "cohere": "cohere",
    "gemini": "gemini",
    "ollama": "ollama",
    "vertexai": "vertexai",
    "local": "local",
}

PROVIDERS = frozenset({*BUILT_IN, *READY_MADE})
"""Names by which a provider is known without an entry in `config.yaml`."""


SUGGESTED = {
    "claude": "claude-sonnet-5",
    "cohere": "command-a-03-2025",
    "deepinfra": "openai/gpt-oss-120b",
    "deepseek": "deepseek-chat",
    "fireworks": "accounts/fireworks/models/gpt-oss-120b",
    "gemini": "gemini-3.5-flash",
    "groq": "openai/gpt-oss-120b",
    "mistral": "mistral-medium-latest",
    "openai": "gpt-5.4-mini",
    "openrouter": "openai/gpt-5.4-mini",
    "perplexity": "sonar",
    "together": "meta-llama/Llama-3.3-70B-Instruct-Turbo",
    "xai": "grok-4.3",
}
"""A model to begin with at each provider that has models to chat with, of those that the price table knows."""


def suggested(client: ClientSettings) -> str:
    """The model to begin with at a provider that is known by its name; "" where none is."""
    own = BUILT_IN.get(client.type, client.name if client.type == "openai-compatible" else "")
    return "" if client.api_base and own in READY_MADE else SUGGESTED.get(own, "")


def base_of(client: ClientSettings, environ: Mapping[str, str]) -> str:
    """Where a client is reached, without a slash at its end; empty if unknown."""
    fixed = {
        "openai": environ.get(BASES["openai"]) or OPENAI,
        "claude": _with_version(environ.get(BASES["claude"], "")) or ANTHROPIC,
        "bedrock": _bedrock_at(client, environ) if client.type == "bedrock" else "",
        "vertexai": _vertex_at(client, environ) if client.type == "vertexai" else "",
        "cohere": COHERE,
        "gemini": GEMINI,
        "ollama": ollama_of(environ),
        "openai-compatible": READY_MADE.get(client.name, ""),
    }
    base = (client.api_base or fixed.get(BUILT_IN.get(client.type, client.type), "")).rstrip("/")
    return base.removesuffix("/v1").removesuffix("/api") if client.type == "ollama" else base


def ollama_of(environ: Mapping[str, str]) -> str:
    """Where Ollama listens: `OLLAMA_HOST` as Ollama itself reads it, which may lack the scheme, the port or both."""
    text = environ.get("OLLAMA_HOST", "").strip().strip("\"'")
    if not text:
        return OLLAMA
    scheme, _, rest = text.rpartition("://")
    try:
        parts = urlsplit(f"//{rest}")
    except ValueError:  # no address at all: who asks Ollama is told so, and nobody else
        return f"{scheme or 'http'}://{rest}"
    host = parts.hostname or "127.0.0.1"
    host = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 - where it listens is not where it is asked
    try:
        port = parts.port or {"http": 80, "https": 443}.get(scheme, 11434)
    except ValueError:  # no number, for which Ollama takes its own default, too
        port = 11434
    return f"{scheme or 'http'}://{f'[{host}]' if ':' in host else host}:{port}{parts.path.rstrip('/')}"


def _bedrock_at(client: ClientSettings, environ: Mapping[str, str]) -> str:
    from .aws.keys import bedrock_at, region_of

    return bedrock_at(region_of(client, environ))


def _vertex_at(client: ClientSettings, environ: Mapping[str, str]) -> str:
    from .vertex.place import location_of, vertex_at

    return vertex_at(location_of(client, environ))


def key_variables(client: ClientSettings) -> list[str]:
    """The variables of the environment that may hold a client's key, the first that is set counts."""
    variables = [variable_of(client.name)]
    kind = BUILT_IN.get(client.type, client.type)
    if kind in _MORE_VARIABLES:
        variables.append(_MORE_VARIABLES[kind])
    return list(dict.fromkeys(variables))


def checked_key(key: str, where: str) -> str:
    """The key without what files and editors put around it: blanks, line ends, a byte order mark.

    Raises:
        CredentialsError: characters are left that no header can have; `where` names the variable or the key of a file.
    """
    key = key.strip("\ufeff \t\r\n\v\f\0")
    if not key.isascii() or not key.isprintable():
        raise CredentialsError(f"the API key in {where} has characters that no key has: copy it once more")
    return key


def signs_in(client: ClientSettings) -> bool:
    """Whether people sign in for a client, and there is no key."""
    return client.auth is not None and client.type in KEYS_OF_TYPES["auth"]


def has_credentials(client: ClientSettings, environ: Mapping[str, str], file: str) -> bool:
    """Whether there is what lets requests of a client in: a key, or what a cloud takes in its place.

    Looks where files of credentials lie, not into those of Google's, and sends nothing: whether a machine of AWS's has
    a role is not known.
    """
    if client.api_key or any(environ.get(name) for name in key_variables(client)):
        return True
    try:
        if client.type == "vertexai":
            from .vertex.place import source_of

            source_of(client, environ, file)
            return True
        if client.type == "bedrock":
            from .aws.keys import region_of
            from .aws.signers import RoleSigner, signer_of

            if not region_of(client, environ):
                return False
            signer = signer_of(client, "bedrock", environ, file, None)
            return not isinstance(signer, RoleSigner) or bool(signer.role.named)
    except ConfigError:
        pass
    return False


def variable_of(client: str) -> str:
    """`my-client` as `MY_CLIENT_API_KEY`."""
    return re.sub(r"[^A-Z0-9]", "_", client.upper()) + "_API_KEY"


def organization(client: ClientSettings) -> dict[str, str]:
    """The header that says for which organization of OpenAI's a request is, where a client says so."""
    return {"openai-organization": client.organization_id} if client.organization_id else {}


def own_headers(client: ClientSettings, settings: Settings) -> dict[str, str]:
    """That header, and who asks, as the settings have it."""
    agent = settings.user_agent
    if agent == "auto":
        agent = f"callboard/{version('callboard')}"
    return organization(client) | ({"user-agent": agent} if agent else {})


def with_client(name: str, settings: Settings, environ: Mapping[str, str], finder: Finder) -> str | None:
    """The id of a model of this name that can be used: of one that is listed, or has a price."""
    entry = ModelSettings(name=name)
    for client in usable_clients(settings, environ):
        listed = [each.name for each in client.models if each.type == "chat"]
        base = base_of(client, environ)
        if name in listed or (not listed and finder.find(client, entry, base).entry is not None):
            return f"{client.name}:{name}"
    return None


def _with_version(base: str) -> str:
    """Anthropic's own tools take the base URL without its `/v1`; both spellings are understood."""
    base = base.rstrip("/")
    return base if not base or base.endswith("/v1") else f"{base}/v1"


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
        api_version=own.api_version,
        api=own.api,
        reasoning_summary=own.reasoning_summary,
        region=own.region,
        project_id=own.project_id,
        location=own.location,
        extra=own.extra,
        max_concurrency=own.max_concurrency,
        requests_per_minute=own.requests_per_minute,
        tokens_per_minute=own.tokens_per_minute,
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
    client = next((each for each in settings.clients if each.name == provider), None)
    if client is not None:
        return client
    kind = BUILT_IN.get(provider, provider if provider in CLIENT_TYPES else "openai-compatible")
    return ClientSettings(type=kind, name=provider, api_base=READY_MADE.get(provider, ""))


def _elsewhere(own: ClientSettings, base_url: str | None, environ: Mapping[str, str]) -> str:
    """The base URL that a file names, unless it is where that provider is reached anyway."""
    if not base_url:
        return ""
    if own.type == "gemini" and not urlsplit(base_url).path.strip("/"):
        base_url = base_url.rstrip("/") + urlsplit(GEMINI).path  # Google's own library adds it, too
    there = base_of(msgspec.structs.replace(own, api_base=base_url), environ)
    return "" if there == base_of(own, environ) else base_url


def usable_clients(settings: Settings, environ: Mapping[str, str]) -> list[ClientSettings]:
    """The clients that `config.yaml` has and those that the environment has a key or credentials for."""
    known = [*settings.clients]
    names = {client.name for client in known}
    for name, kind in {**BUILT_IN, **dict.fromkeys(READY_MADE, "openai-compatible")}.items():
        client = ClientSettings(type=kind, name=name)
        if name not in names and has_credentials(client, environ, settings.file):
            known.append(client)
    return known


def unknown(
    model: str, client: ClientSettings | None, clients: Iterable[str], settings: Settings, meant: str | None = None
) -> str:
    """What is said of a chat model that is not there.

    Args:
        client: of its name, if there is one.
        clients: the names of those that the settings have.
        meant: the id of a model that may be meant.
    """
    name = model.partition(":")[0]
    if client is None and model == settings.model and settings.model_from.endswith(("_PROVIDER", "_PLATFORM")):
        return f"{settings.model_from} is '{model}', which is no provider; there are {', '.join(sorted(PROVIDERS))}"
    if client is not None and client.models:
        known = [f"{client.name}:{entry.name}" for entry in client.models]
        return f"unknown chat model '{model}'; client '{client.name}' has: {', '.join(known)}"
    if client is not None:
        return f"'{model}' does not say which model of '{name}' is meant: write '{name}:<model>'"
    names = list(dict.fromkeys((*clients, *BUILT_IN)))
    near = get_close_matches(name, names, n=1, cutoff=0.75)
    guess = meant or (f"{near[0]}:..." if near else None)
    hint = suggestion(guess) if guess else f"clients are: {', '.join(names)}"
    return f"unknown chat model '{model}': models are named `client:model`; {hint}"
