"""Model servers on this machine: who answers at the usual ports, and which models it has.

All are asked at once, within a fraction of a second, by threads: nothing of ours runs yet. What answers is whatever
has taken the port, so no more than `MOST` bytes of it are read, and only a list of names is believed. A timeout of a
socket is about the next bytes, and looking up a name has none at all, so whoever is not done in time is left behind.
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

from ...work.models.facts import chats
from ...work.models.providers import BASES, ollama_of

WITHIN = 0.6
"""Seconds for a server to answer."""

GRACE = 0.3
"""Seconds for those that answer in time to read and understand it."""

MOST = 1_000_000
_MOST_MODELS = 500


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A place where a server may be.

    Attributes:
        name: what it is called as a client; `title` for people.
        type: the type of that client.
        base: its base URL; models are listed at `base + path`.
        variable: of the environment, which has said where it is.
        hint: what a person does about one that has no model.
    """

    name: str
    title: str
    type: str
    base: str
    path: str = "/models"
    variable: str = ""
    hint: str = "load a model there"


class Answering(msgspec.Struct, frozen=True, kw_only=True):
    """A server that answers, and the models to chat with that it has."""

    server: Server
    models: tuple[str, ...]


USUAL = (
    Server(name="lmstudio", title="LM Studio", type="openai-compatible", base="http://127.0.0.1:1234/v1"),
    Server(name="llamacpp", title="llama.cpp", type="openai-compatible", base="http://127.0.0.1:8080/v1"),
    Server(name="vllm", title="vLLM", type="openai-compatible", base="http://127.0.0.1:8000/v1"),
)
"""Those that have a port of their own by default; Ollama has a variable, too."""


def places(environ: Mapping[str, str]) -> list[Server]:
    """Where to look."""
    ollama = Server(
        name="ollama",
        title="Ollama",
        type="ollama",
        base=ollama_of(environ),
        path="/api/tags",
        variable="OLLAMA_HOST" if environ.get("OLLAMA_HOST") else "",
        hint="ollama pull llama3.2",
    )
    own = environ.get(BASES["openai"], "").rstrip("/")
    named = Server(name="openai", title="OpenAI's interface", type="openai", base=own, variable=BASES["openai"])
    return [*([named] if own else []), ollama, *USUAL]


def answering(servers: Sequence[Server], within: float = WITHIN) -> list[Answering]:
    """Those that answer, in the same order. Blocks, for `within` seconds and a little more at most."""
    found: dict[int, tuple[str, ...] | None] = {}

    def look(place: int) -> None:
        found[place] = _models_of(servers[place], within)

    threads = [
        threading.Thread(target=look, args=(place,), name="looking", daemon=True) for place in range(len(servers))
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + within + GRACE
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    lists = dict(found)  # who comes later is not listened to
    return [
        Answering(server=server, models=models)
        for place, server in enumerate(servers)
        if (models := lists.get(place)) is not None
    ]


def _models_of(server: Server, within: float) -> tuple[str, ...] | None:
    """The models of a server; None where none answers that is one."""
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
    except (OSError, HTTPException, ValueError, RecursionError):  # no server there, or one of another kind
        return None


def names_in(listed: Any) -> tuple[str, ...] | None:
    """The models to chat with of a list as Ollama (`/api/tags`) or OpenAI's interface (`/models`) gives it."""
    if not isinstance(listed, dict):
        return None
    entries = listed.get("models", listed.get("data"))
    if not isinstance(entries, list):
        return None
    texts = [entry.get("id") or entry.get("name") for entry in entries[:_MOST_MODELS] if isinstance(entry, dict)]
    names = dict.fromkeys(text for text in texts if isinstance(text, str) and _is_name(text))
    return tuple(filter(chats, names))


def _is_name(text: str) -> bool:
    return 0 < len(text) <= 200 and text.isprintable() and "," not in text
