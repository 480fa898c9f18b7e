"""Model servers on this machine: detection at the usual ports, and their lists of models.

All ports are asked at once by threads, within a fraction of a second, because no event loop runs yet. An arbitrary
program may answer at a port, so at most `MOST` bytes are read, and only a list of names is accepted. A socket's
timeout only limits the wait for the next bytes, and name lookup has no timeout. Therefore threads that do not finish
in time are abandoned.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ...work.models.model_listing import chats
from ...work.models.providers import BASES, ollama_of

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
    """Return the addresses to try."""
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
