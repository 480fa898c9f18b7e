"""The providers that are known by their name: where each is reached, and which variables may hold its key."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ....protocol.settings import ClientSettings
from . import anthropic, gemini, ollama, openai

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

OF_KNOWLEDGE = {"cohere": "https://api.cohere.com/v2"}
"""Base URLs of providers that callboard knows for their embedding and reranking models only."""

WANT_KEYS = frozenset(
    {openai.DEFAULT_BASE, anthropic.DEFAULT_BASE, gemini.DEFAULT_BASE, *READY_MADE.values(), *OF_KNOWLEDGE.values()}
)
_MORE_VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "claude": "ANTHROPIC_API_KEY",
    "cohere": "CO_API_KEY",
    "gemini": "GOOGLE_API_KEY",
}
BASES = {"openai": "OPENAI_BASE_URL", "claude": "ANTHROPIC_BASE_URL"}
KEYLESS = ("ollama", "local")
BUILT_IN = {
    "openai": "openai",
    "claude": "claude",
    "anthropic": "claude",
    "gemini": "gemini",
    "ollama": "ollama",
    "local": "local",
}

PROVIDERS = frozenset({*BUILT_IN, *READY_MADE})
"""Names by which a provider is known without an entry in `config.yaml`."""


def base_of(client: ClientSettings, environ: Mapping[str, str]) -> str:
    """Where a client is reached, without a slash at its end; empty if unknown."""
    fixed = {
        "openai": environ.get(BASES["openai"]) or openai.DEFAULT_BASE,
        "claude": _with_version(environ.get(BASES["claude"], "")) or anthropic.DEFAULT_BASE,
        "gemini": gemini.DEFAULT_BASE,
        "ollama": ollama.DEFAULT_BASE,
        "openai-compatible": READY_MADE.get(client.name, ""),
        **OF_KNOWLEDGE,
    }
    base = (client.api_base or fixed.get(BUILT_IN.get(client.type, client.type), "")).rstrip("/")
    return base.removesuffix("/v1").removesuffix("/api") if client.type == "ollama" else base


def key_variables(client: ClientSettings) -> list[str]:
    """The variables of the environment that may hold a client's key, the first that is set counts."""
    variables = [variable_of(client.name)]
    kind = BUILT_IN.get(client.type, client.type)
    if kind in _MORE_VARIABLES:
        variables.append(_MORE_VARIABLES[kind])
    return list(dict.fromkeys(variables))


def variable_of(client: str) -> str:
    """`my-client` as `MY_CLIENT_API_KEY`."""
    return re.sub(r"[^A-Z0-9]", "_", client.upper()) + "_API_KEY"


def _with_version(base: str) -> str:
    """Anthropic's own tools take the base URL without its `/v1`; both spellings are understood."""
    base = base.rstrip("/")
    return base if not base or base.endswith("/v1") else f"{base}/v1"
