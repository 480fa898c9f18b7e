"""What can be used here without a configuration: keys of the environment, servers, weights."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ....protocol.errors import ConfigError
from ....protocol.settings import ClientSettings, ModelSettings, Settings
from ...work.models import weights
from ...work.models.catalog import Catalog
from ...work.models.engines import require_engine
from ...work.models.facts import Facts, chats, facts_of
from ...work.models.providers import BUILT_IN, READY_MADE, SUGGESTED, base_of, key_variables, ollama_of, suggested
from .servers import Answering, Server, answering, places

ORDER = ("claude", "openai", "gemini", "openrouter", "mistral", "deepseek", "groq", "xai", "cohere")
"""The providers that come first where several can be used."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A provider that can be used.

    Attributes:
        client: how it is reached; without `api_key`, which is where `key` says.
        title: what people call it.
        why: how it was found.
        models: those that can be asked, the one to begin with first; "" and none where there is no model yet.
        key: the variable that has its key, or would; "" where it needs none.
        hint: what to do where there is no model.
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
        """Whether `config.yaml` has to describe the client: it is known by its name and its key's variable if not."""
        known = self.client.name in BUILT_IN or self.client.name in READY_MADE
        return not known or bool(self.client.api_key or self.client.api_base)


def offers(environ: Mapping[str, str] = os.environ, servers: Sequence[Server] | None = None) -> list[Offer]:
    """All that can be used, the best first: keys, then servers that answer, then weights. Blocks for a moment."""
    there = answering(places(environ) if servers is None else servers)
    keys = [_narrowed(offer, there) for offer in _with_keys(environ)]
    known = {offer.client.name for offer in keys}
    servers_alone = [_of_server(each, environ) for each in there if each.server.name not in known]
    return [*keys, *servers_alone, *_weights(environ)]


def providers_by_name() -> list[str]:
    """The providers that a key is enough for."""
    return [*ORDER, *sorted(SUGGESTED.keys() - {*ORDER})]


def of_provider(name: str, environ: Mapping[str, str], *, why: str) -> Offer:
    """A provider that a key is enough for."""
    client = ClientSettings(type=BUILT_IN.get(name, "openai-compatible"), name=name)
    variables = key_variables(client)
    usual = variables[-1] if name == "claude" else variables[0]
    key = next((variable for variable in variables if environ.get(variable)), usual)
    listed = Catalog(Settings(), environ).prices.finder.known(client, base_of(client, environ))
    first = suggested(client)
    models = (first, *(model for model in sorted(listed) if model != first and chats(model)))
    return Offer(client=client, title=name, why=why, models=models, key=key)


def facts(offer: Offer, models: Iterable[str], environ: Mapping[str, str]) -> list[Facts]:
    """What the table of prices knows of models of its client, in their order."""
    finder = Catalog(Settings(), environ).prices.finder
    return [facts_of(finder, offer.client, ModelSettings(name=model), environ) for model in models]


def _with_keys(environ: Mapping[str, str]) -> list[Offer]:
    found = []
    for name in providers_by_name():
        client = ClientSettings(type=BUILT_IN.get(name, "openai-compatible"), name=name)
        variable = next((each for each in key_variables(client) if environ.get(each)), "")
        if variable:
            found.append(of_provider(name, environ, why=variable))
    return found


def _narrowed(offer: Offer, there: Sequence[Answering]) -> Offer:
    """The offer with the models that its server says it has, where the environment names one that does."""
    own = next((each.models for each in there if each.server.name == offer.client.name), ())
    if not own:
        return offer
    first = [model for model in offer.models[:1] if model in own]
    return msgspec.structs.replace(offer, models=(*first, *(model for model in own if model not in first)))


def _of_server(found: Answering, environ: Mapping[str, str]) -> Offer:
    server = found.server
    usual = server.type == "openai" or (server.type == "ollama" and server.base == ollama_of(environ))
    return Offer(
        client=ClientSettings(type=server.type, name=server.name, api_base="" if usual else server.base),
        title=server.title,
        why=f"it answers at {server.base}" + (f" ({server.variable})" if server.variable else ""),
        models=found.models,
        hint="" if found.models else server.hint,
    )


def _weights(environ: Mapping[str, str]) -> list[Offer]:
    try:
        require_engine()
    except ConfigError:
        return []
    here = {each.model for each in weights.installed(environ)}
    names = tuple(name for name, known in weights.KNOWN.items() if known.kind == "chat" and known.id in here)
    client = ClientSettings(type="local", name="local")
    why = "its weights are here; small, and runs without a server"
    return [Offer(client=client, title="on this machine", why=why, models=names)] if names else []
