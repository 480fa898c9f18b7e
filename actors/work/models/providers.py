"""Provider table: base URLs, key variables and suggested models of the providers that are known by name.

A definition file (an agent of a workflow, for example) may describe a client instead of naming one of `config.yaml`:

    provider: openai                                     a client of config.yaml, or a provider by its own name
    provider: openai, base_url: ..., api_key: ...        the same provider at another address or with another account
    provider: my-lab, base_url: ...                      an unknown name uses OpenAI's format

Equal descriptions share connections: see `ModelCatalog.adopt`. A key of the environment or the settings is sent only
to the provider's own address, never to a `base_url` of the file. Otherwise a downloaded file could collect keys.

`codec_of` selects the codec of a client by its type. Each codec is imported by the first model that needs it.

`filled` puts the values of secrets into a client, directly before its use. `Settings` keep the text `{{NAME}}`. Only
the catalog's targets receive the values, so that settings can be printed and logged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from ....protocol.environment import with_secrets
from ....protocol.errors import ConfigError, CredentialsError, GraphMistake
from ....protocol.problems import did_you_mean, suggestion
from ....protocol.settings import CLIENT_TYPES, ClientSettings, ModelSettings, Settings
from ....protocol.settings.model import KEYS_OF_TYPES, Cache, Interface, ReasoningSummary
from ....protocol.version import VERSION
from ...io.vault.lookups import Lookup

if TYPE_CHECKING:
    from .codec import Codec
    from .prices.price_lookup import Finder


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
"""Base URLs of `openai-compatible` providers that are known by name."""

OPENAI = "https://api.openai.com/v1"
ANTHROPIC = "https://api.anthropic.com/v1"
COHERE = "https://api.cohere.com/v2"
GEMINI = "https://generativelanguage.googleapis.com/v1beta"
OLLAMA = "http://localhost:11434"

WANT_KEYS = frozenset({OPENAI, ANTHROPIC, COHERE, GEMINI, *READY_MADE.values()})

WANT_KEYS_ANYWHERE = ("azure-openai",)
"""Client types that need a key at any base URL."""

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
"""Provider names that are usable without an entry in `config.yaml`."""


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
"""Suggested chat model of each provider; each is in the price table."""


def suggested(client: ClientSettings) -> str:
    """Return the suggested model of a client's provider; "" if there is none.

    There is none for a client that has the name of a provider of `READY_MADE` and a base URL of its own.
    """
    own = BUILT_IN.get(client.type, client.name if client.type == "openai-compatible" else "")
    # A client with another base URL may only share the name of a known provider.
    return "" if client.api_base and own in READY_MADE else SUGGESTED.get(own, "")


def base_of(client: ClientSettings, environ: Mapping[str, str]) -> str:
    """Return the base URL of a client, without a trailing slash; empty if unknown."""
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
    base = (client.api_base or fixed.get(BUILT_IN.get(client.type, client.type), "")).strip().rstrip("/")
    # The codec adds `/api/chat`, so the URL of Ollama's OpenAI-compatible interface (`/v1`) is accepted as well.
    return base.removesuffix("/v1").removesuffix("/api") if client.type == "ollama" else base


def ollama_of(environ: Mapping[str, str]) -> str:
    """Return the URL of Ollama from `OLLAMA_HOST`, parsed by Ollama's own rules: scheme and port are optional."""
    text = environ.get("OLLAMA_HOST", "").strip().strip("\"'")
    if not text:
        return OLLAMA
    scheme, _, rest = text.rpartition("://")
    try:
        parts = urlsplit(f"//{rest}")
    except ValueError:  # invalid: the first request to Ollama reports it; other providers must stay usable
        return f"{scheme or 'http'}://{rest}"
    host = parts.hostname or "127.0.0.1"
    host = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 - a listen address is no target address
    try:
        port = parts.port or {"http": 80, "https": 443}.get(scheme, 11434)
    except ValueError:  # not a number: Ollama uses its default port, too
        port = 11434
    return f"{scheme or 'http'}://{f'[{host}]' if ':' in host else host}:{port}{parts.path.rstrip('/')}"


def _bedrock_at(client: ClientSettings, environ: Mapping[str, str]) -> str:
    from .aws.keys import bedrock_at, region_of

    return bedrock_at(region_of(client, environ))


def _vertex_at(client: ClientSettings, environ: Mapping[str, str]) -> str:
    from .vertex.location import location_of, vertex_at

    return vertex_at(location_of(client, environ))


def key_variables(client: ClientSettings) -> list[str]:
    """Return the environment variables that may contain a client's key, in order of precedence."""
    variables = [variable_of(client.name)]
    kind = BUILT_IN.get(client.type, client.type)
    if kind in _MORE_VARIABLES:
        variables.append(_MORE_VARIABLES[kind])
    return list(dict.fromkeys(variables))


def checked_key(key: str, where: str) -> str:
    """Return the key without white space, line ends and a byte order mark, which files and editors add.

    Raises:
        CredentialsError: the key has characters that are invalid in a header. `where` names its source in the text.
    """
    key = key.strip("\ufeff \t\r\n\v\f\0")
    if not key.isascii() or not key.isprintable():
        raise CredentialsError(f"the API key in {where} contains characters that no key may contain: copy it again")
    return key


def signs_in(client: ClientSettings) -> bool:
    """Return True if a user signs in for the client (`auth: oauth`), so it has no key."""
    return client.auth is not None and client.type in KEYS_OF_TYPES["auth"]


def has_credentials(client: ClientSettings, environ: Mapping[str, str], file: str) -> bool:
    """Return True if a client has a key or cloud credentials.

    This checks that Google's credential files exist without reading them, and sends no request. So it does not detect
    the role of an AWS machine.
    """
    if client.api_key or any(environ.get(name) for name in key_variables(client)):
        return True
    try:
        if client.type == "vertexai":
            from .vertex.location import source_of

            source_of(client, environ, file)
            return True
        if client.type == "bedrock":
            from .aws.credential_chain import RoleSigner, signer_of
            from .aws.keys import region_of

            if not region_of(client, environ):
                return False
            signer = signer_of(client, "bedrock", environ, file, None)
            # A machine's role has no name before a request, so it does not count as a credential here.
            return not isinstance(signer, RoleSigner) or bool(signer.role.named)
    except ConfigError:
        pass
    return False


def variable_of(client: str) -> str:
    """Return the key variable of a client: `MY_CLIENT_API_KEY` for `my-client`."""
    return re.sub(r"[^A-Z0-9]", "_", client.upper()) + "_API_KEY"


def organization(client: ClientSettings) -> dict[str, str]:
    """Return the header with the client's OpenAI organization; empty if it has none."""
    return {"openai-organization": client.organization_id} if client.organization_id else {}


def own_headers(client: ClientSettings, settings: Settings) -> dict[str, str]:
    """Return the organization header and the `user-agent` of the settings."""
    agent = settings.user_agent
    if agent == "auto":
        agent = f"callboard/{VERSION}"
    return organization(client) | ({"user-agent": agent} if agent else {})


def with_client(name: str, settings: Settings, environ: Mapping[str, str], finder: Finder) -> str | None:
    """Return the id of a usable model with this name, else None.

    A client has the model if it lists it. A client that lists no chat model has each model in the price table.
    """
    entry = ModelSettings(name=name)
    for client in usable_clients(settings, environ):
        listed = [each.name for each in client.models if each.type == "chat"]
        base = base_of(client, environ)
        if name in listed or (not listed and finder.find(client, entry, base).entry is not None):
            return f"{client.name}:{name}"
    return None


def _with_version(base: str) -> str:
    """Return the base URL with `/v1`. Anthropic's own tools expect the variable without it, so both are accepted."""
    base = base.rstrip("/")
    return base if not base or base.endswith("/v1") else f"{base}/v1"


def providers(settings: Settings) -> frozenset[str]:
    """Return the provider and client names that need no base URL."""
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
    """Return the client that a file describes; None if the provider's name is enough.

    Args:
        also: further known names, for the hint in the error.

    Raises:
        GraphMistake: the provider is unknown and there is no base URL.
    """
    known = providers(settings)
    if provider not in known and not base_url:
        names = {*known, *also}
        near = did_you_mean(provider, names) or f"there are {', '.join(sorted(names))}; any other needs a `base_url`"
        raise GraphMistake(f"no provider '{provider}': {near}")
    own = _own(provider, settings)
    other_base = _other_base_url(own, base_url, environ)
    if not other_base and not api_key:
        return None
    return ClientSettings(
        type=own.type,
        name=provider,
        api_base=other_base or own.api_base,
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
    """Return the source of a configured key that is not sent to `base_url`, since the address is another; "" if none.

    The text explains to the user why a description without `api_key` has no key.
    """
    own = _own(provider, settings)
    if not _other_base_url(own, base_url, environ):
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


def _other_base_url(own: ClientSettings, base_url: str | None, environ: Mapping[str, str]) -> str:
    """Return the base URL of a file, or "" if it is the provider's usual address."""
    if not base_url:
        return ""
    if own.type == "gemini" and not urlsplit(base_url).path.strip("/"):
        base_url = base_url.rstrip("/") + urlsplit(GEMINI).path  # Google's own library adds the path, too
    there = base_of(msgspec.structs.replace(own, api_base=base_url), environ)
    return "" if there == base_of(own, environ) else base_url


def usable_clients(settings: Settings, environ: Mapping[str, str]) -> list[ClientSettings]:
    """Return the clients of `config.yaml`, and the known providers with a key or credentials in the environment."""
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
    """Return the error text for an unknown chat model.

    Args:
        client: the client of the model id, if it exists.
        clients: names of the configured clients.
        meant: id of a model to suggest.
    """
    from difflib import get_close_matches

    name = model.partition(":")[0]
    if client is None and model == settings.model and settings.model_from.endswith(("_PROVIDER", "_PLATFORM")):
        known_names = ", ".join(sorted(PROVIDERS))
        return f"{settings.model_from} is '{model}', which is not a provider; known providers are {known_names}"
    if client is not None and client.models:
        known = [f"{client.name}:{entry.name}" for entry in client.models]
        return f"unknown chat model '{model}'; client '{client.name}' has: {', '.join(known)}"
    if client is not None:
        return f"'{model}' names the client '{name}' without a model: write '{name}:<model>'"
    names = list(dict.fromkeys((*clients, *BUILT_IN)))
    near = get_close_matches(name, names, n=1, cutoff=0.75)
    guess = meant or (f"{near[0]}:..." if near else None)
    hint = suggestion(guess) if guess else f"clients are: {', '.join(names)}"
    return f"unknown chat model '{model}': models are named `client:model`; {hint}"


def codec_of(client: ClientSettings, model: ModelSettings, name: str, base: str, cache: Cache) -> Codec:
    """Return the codec of a client that needs only a key.

    Args:
        name: the provider's name of the model.
        base: base URL.
    """
    match BUILT_IN.get(client.type, client.type):
        case "claude":
            from .anthropic import AnthropicCodec

            return AnthropicCodec(cache=cache)
        case "cohere":
            from .cohere import CohereCodec

            return CohereCodec()
        case "gemini":
            from .gemini import GeminiCodec

            return GeminiCodec()
        case "ollama":
            from .ollama import OllamaCodec

            return OllamaCodec()
        case _:
            own = base == OPENAI
            if interface(client, model, name, own=own) == "chat":
                from .openai import OpenAiCodec

                return OpenAiCodec(own=own, cache=cache, base=base)
            from .responses import ResponsesCodec

            return ResponsesCodec(own=own, cache=cache, summary=summary(client, model))


def module_of(kind: str) -> str:
    """Return the codec module of a client type, for callers that import it in a thread."""
    return f".actors.work.models.{_MODULES.get(BUILT_IN.get(kind, kind), 'openai')}"


_MODULES = {"claude": "anthropic", "cohere": "cohere", "gemini": "gemini", "ollama": "ollama", "local": "local"}


def interface(client: ClientSettings, model: ModelSettings, name: str, *, own: bool) -> Interface:
    """Return the OpenAI interface of a model: the configured one, else `chat`.

    At OpenAI itself (`own`), a model that needs the Responses API gets `responses`.
    """
    configured = model.api or client.api
    if configured or not own:
        return configured or "chat"
    from .reasoning import wants_responses

    return "responses" if wants_responses(name) else "chat"


def summary(client: ClientSettings, model: ModelSettings) -> ReasoningSummary:
    """Return the configured reasoning summary of a model."""
    return model.reasoning_summary or client.reasoning_summary or "auto"


# --- secrets of a client


_NAMES = ("type", "name")
OF_ITS_FILE = ("api_key", "api_base")
"""Keys without interpolation in a client of a definition file, which must not refer to the user's secrets."""


def filled(client: ClientSettings, vault: Lookup, file: str, *, but: Collection[str] = ()) -> ClientSettings:
    """Return the client with the values of its secrets.

    Args:
        file: path of the settings, for errors.
        but: keys that are not changed.

    Raises:
        CredentialsError: a secret is missing.
        NotFetched, ConfigError: the same as in `Vault.get`.
    """
    lacking: dict[str, str] = {}

    def put(text: str, path: str) -> str:
        def missing(name: str) -> None:
            lacking.setdefault(name, path)

        return with_secrets(text, vault, missing)

    changes = {
        key: value
        for key in client.__struct_fields__
        if key not in _NAMES and key not in but and (value := _put(old := getattr(client, key), key, put)) is not old
    }
    for name, path in lacking.items():
        raise CredentialsError(
            f"client '{client.name}' in {file}: `{path}` needs {{{{{name}}}}}, {vault.why_missing(name)}"
        )
    return msgspec.structs.replace(client, **changes) if changes else client


def _put(value: Any, path: str, put: Callable[[str, str], str]) -> Any:
    """Return the value with secrets in all of its texts; the same object if there are none."""
    if isinstance(value, str):
        return put(value, path) if "{{" in value else value
    if isinstance(value, msgspec.Struct):
        pairs = {key: (old := getattr(value, key), _put(old, f"{path}.{key}", put)) for key in value.__struct_fields__}
        changes = {key: new for key, (old, new) in pairs.items() if new is not old}
        return msgspec.structs.replace(value, **changes) if changes else value
    if isinstance(value, dict):
        filled = {key: _put(each, f"{path}.{key}", put) for key, each in value.items()}
        return filled if any(filled[key] is not value[key] for key in value) else value
    if isinstance(value, list | tuple):
        items = [_put(each, f"{path}[{i}]", put) for i, each in enumerate(value)]
        return type(value)(items) if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value
