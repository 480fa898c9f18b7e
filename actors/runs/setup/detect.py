"""Models that are usable without a configuration: from keys in the environment, servers, and downloaded weights."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ....protocol.errors import ConfigError
from ....protocol.settings import ClientSettings, ModelSettings, Settings
from ...work.models import weights
from ...work.models.catalog import ModelCatalog
from ...work.models.engines import require_engine
from ...work.models.model_listing import ModelFacts, chats, facts_of
from ...work.models.providers import BUILT_IN, READY_MADE, SUGGESTED, base_of, key_variables, ollama_of, suggested
from .servers import Answering, ModelServer, answering, places

ORDER = ("claude", "openai", "gemini", "openrouter", "mistral", "deepseek", "groq", "xai", "cohere")
"""Providers that are offered first, in this order."""


class UsableProvider(msgspec.Struct, frozen=True, kw_only=True):
    """Provider that can be used.

    Attributes:
        client: its client entry, without `api_key`; see `key`.
        title: display name.
        why: how it was found.
        models: models that can be used, the preferred one first; empty if it has none yet.
        key: environment variable of its key, set or not; "" if it needs none.
        hint: action for the user if it has no model.
    """

    client: ClientSettings
    title: str
    why: str
    models: tuple[str, ...] = ()
    key: str = ""
    hint: str = ""

    @property
    def model(self) -> str:
        """The id of the model to begin with."""
        return f"{self.client.name}:{self.models[0]}" if self.models else ""

    @property
    def needs_entry(self) -> bool:
        """True if `config.yaml` needs an entry for the client.

        A known client is found by its name and its key's variable.
        """
        known = self.client.name in BUILT_IN or self.client.name in READY_MADE
        return not known or bool(self.client.api_key or self.client.api_base)


def offers(
    environ: Mapping[str, str] = os.environ, servers: Sequence[ModelServer] | None = None
) -> list[UsableProvider]:
    """Return all usable providers, the best first: keys, then running servers, then weights. Blocks for up to 1 s."""
    there = answering(places(environ) if servers is None else servers)
    keys = [_narrowed(offer, there) for offer in _with_keys(environ)]
    known = {offer.client.name for offer in keys}
    servers_alone = [_of_server(each, environ) for each in there if each.server.name not in known]
    return [*keys, *servers_alone, *_weights(environ)]


def providers_by_name() -> list[str]:
    """Return the names of providers that only need a key."""
    return [*ORDER, *sorted(SUGGESTED.keys() - {*ORDER})]


def of_provider(name: str, environ: Mapping[str, str], *, why: str) -> UsableProvider:
    """Return the offer of a provider that only needs a key."""
    client = ClientSettings(type=BUILT_IN.get(name, "openai-compatible"), name=name)
    variables = key_variables(client)
    # ANTHROPIC_API_KEY, as Anthropic's documents have it, and not CLAUDE_API_KEY, which follows from the client's name.
    usual = variables[-1] if name == "claude" else variables[0]
    key = next((variable for variable in variables if environ.get(variable)), usual)
    listed = ModelCatalog(Settings(), environ).prices.finder.known(client, base_of(client, environ))
    first = suggested(client)
    models = (first, *(model for model in sorted(listed) if model != first and chats(model)))
    return UsableProvider(client=client, title=name, why=why, models=models, key=key)


def facts(offer: UsableProvider, models: Iterable[str], environ: Mapping[str, str]) -> list[ModelFacts]:
    """Return the price table's facts about models of the offer's client, in the given order."""
    finder = ModelCatalog(Settings(), environ).prices.finder
    return [facts_of(finder, offer.client, ModelSettings(name=model), environ) for model in models]


def _with_keys(environ: Mapping[str, str]) -> list[UsableProvider]:
    found = []
    for name in providers_by_name():
        client = ClientSettings(type=BUILT_IN.get(name, "openai-compatible"), name=name)
        variable = next((each for each in key_variables(client) if environ.get(each)), "")
        if variable:
            found.append(of_provider(name, environ, why=variable))
    return found


def _narrowed(offer: UsableProvider, there: Sequence[Answering]) -> UsableProvider:
    """Return the offer restricted to the models that its own server lists, if the environment names such a server."""
    own = next((each.models for each in there if each.server.name == offer.client.name), ())
    if not own:
        return offer
    first = [model for model in offer.models[:1] if model in own]
    return msgspec.structs.replace(offer, models=(*first, *(model for model in own if model not in first)))


def _of_server(found: Answering, environ: Mapping[str, str]) -> UsableProvider:
    server = found.server
    # These addresses come from variables that each run reads, so the file does not need them.
    usual = server.type == "openai" or (server.type == "ollama" and server.base == ollama_of(environ))
    return UsableProvider(
        client=ClientSettings(type=server.type, name=server.name, api_base="" if usual else server.base),
        title=server.title,
        why=f"it answers at {server.base}" + (f" ({server.variable})" if server.variable else ""),
        models=found.models,
        hint="" if found.models else server.hint,
    )


def _weights(environ: Mapping[str, str]) -> list[UsableProvider]:
    try:
        require_engine()
    except ConfigError:
        return []
    here = {each.model for each in weights.installed(environ)}
    names = tuple(name for name, known in weights.KNOWN.items() if known.kind == "chat" and known.id in here)
    client = ClientSettings(type="local", name="local")
    why = "small; already downloaded"
    return [UsableProvider(client=client, title="this machine", why=why, models=names)] if names else []
