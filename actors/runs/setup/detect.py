"""Models that are usable without a configuration: from keys in the environment, model servers, and downloaded weights.

`offers` is the entry point. Model servers are looked up at the usual ports of this machine. All ports are asked at once
by threads, within a fraction of a second, because no event loop runs yet. An arbitrary program may answer at a port, so
at most `MOST` bytes are read, and only a list of names is accepted. A socket's timeout only limits the wait for the
next bytes, and name lookup has no timeout. Therefore threads that do not finish in time are abandoned.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ....protocol.errors import ConfigError
from ....protocol.settings import ClientSettings, ModelSettings, Settings
from ...work.models import weights
from ...work.models.catalog import ModelCatalog
from ...work.models.engines import require_engine
from ...work.models.model_listing import ModelFacts, chats, facts_of
from ...work.models.providers import (
    BASES,
    BUILT_IN,
    READY_MADE,
    SUGGESTED,
    base_of,
    key_variables,
    ollama_of,
    suggested,
)

WITHIN = 0.6
"""Seconds for a server to answer."""

GRACE = 0.3
"""Additional seconds to read and parse the answers."""

MOST = 1_000_000
_MOST_MODELS = 500


class ModelServer(msgspec.Struct, frozen=True, kw_only=True):
    """Address at which a server may run.

    Attributes:
        name: name of its client; `title` is its display name.
        type: type of that client.
        base: base URL; models are listed at `base + path`.
        variable: environment variable that the address was read from.
        hint: action for the user if the server has no model.
    """

    name: str
    title: str
    type: str
    base: str
    path: str = "/models"
    variable: str = ""
    hint: str = "load a model there"


class Answering(msgspec.Struct, frozen=True, kw_only=True):
    """Server that answers, and its chat models."""

    server: ModelServer
    models: tuple[str, ...]


USUAL = (
    ModelServer(name="lmstudio", title="LM Studio", type="openai-compatible", base="http://127.0.0.1:1234/v1"),
    ModelServer(name="llamacpp", title="llama.cpp", type="openai-compatible", base="http://127.0.0.1:8080/v1"),
    ModelServer(name="vllm", title="vLLM", type="openai-compatible", base="http://127.0.0.1:8000/v1"),
)
"""Servers with a default port of their own. Ollama is not included, because a variable can name its address."""


def places(environ: Mapping[str, str]) -> list[ModelServer]:
    """Return the addresses of model servers to try: those that the environment names, then the usual ports."""
    ollama = ModelServer(
        name="ollama",
        title="Ollama",
        type="ollama",
        base=ollama_of(environ),
        path="/api/tags",
        variable="OLLAMA_HOST" if environ.get("OLLAMA_HOST") else "",
        hint="ollama pull llama3.2",
    )
    own = environ.get(BASES["openai"], "").rstrip("/")
    named = ModelServer(name="openai", title="OpenAI's interface", type="openai", base=own, variable=BASES["openai"])
    return [*([named] if own else []), ollama, *USUAL]


def answering(servers: Sequence[ModelServer], within: float = WITHIN) -> list[Answering]:
    """Return the servers that answer, in the given order. Blocks for at most `within + GRACE` seconds."""
    found: dict[int, tuple[str, ...] | None] = {}

    def ask(place: int) -> None:
        found[place] = _models_of(servers[place], within)

    threads = [
        threading.Thread(target=ask, args=(place,), name="model servers", daemon=True) for place in range(len(servers))
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + within + GRACE
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    lists = dict(found)  # A copy: abandoned threads may still add results.
    return [
        Answering(server=server, models=models)
        for place, server in enumerate(servers)
        if (models := lists.get(place)) is not None
    ]


def _models_of(server: ModelServer, within: float) -> tuple[str, ...] | None:
    """Return the chat models of a server; None if no model server answers."""
    try:
        parts = urlsplit(f"{server.base}{server.path}")
        connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = connect(parts.hostname or "", parts.port, timeout=within)
        try:
            connection.request("GET", parts.path, headers={"accept": "application/json"})
            answer = connection.getresponse()
            data = answer.read(MOST) if answer.status == 200 else b""
        finally:
            connection.close()
        return names_in(json.loads(data))
    except (OSError, HTTPException, ValueError, RecursionError):  # no server, or another kind of server
        return None


def names_in(listed: Any) -> tuple[str, ...] | None:
    """Return the chat models in a list of Ollama (`/api/tags`) or of OpenAI's interface (`/models`); None if it is no
    list.
    """
    if not isinstance(listed, dict):
        return None
    entries = listed.get("models", listed.get("data"))
    if not isinstance(entries, list):
        return None
    texts = [entry.get("id") or entry.get("name") for entry in entries[:_MOST_MODELS] if isinstance(entry, dict)]
    names = dict.fromkeys(text for text in texts if isinstance(text, str) and _is_name(text))
    return tuple(filter(chats, names))


def _is_name(text: str) -> bool:
    # In `model`, commas separate fallback models.
    return 0 < len(text) <= 200 and text.isprintable() and "," not in text


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
        """Id of the preferred model, `client:model`; "" if the provider has no model yet."""
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
