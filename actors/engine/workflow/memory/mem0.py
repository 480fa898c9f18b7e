"""Memory store of the mem0 service, over HTTP: receives the nodes' inputs, and extracts memories itself.

    POST {base}/v1/memories/            {messages, user_id, agent_id, ...}
    POST {base}/v2/memories/search/     {query, filters, top_k}

`MEM0_BASE_URL` overrides the address of the service.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from .....protocol.decoding import decode_json
from .....protocol.errors import ModelError
from .....protocol.json_values import UNREADABLE
from .....protocol.workflow.model import Mem0Store
from .similarity import plain
from .stores import MemoryStore

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ....work.models.client import Endpoint

BASE = "https://api.mem0.ai"
QUERY = 2_000
LONGEST = 20_000
_ID = "mem0:memories"
"""Name of the service in errors."""


class _Memory(msgspec.Struct):
    memory: str = ""
    score: float | None = None


class _Found(msgspec.Struct):
    results: list[_Memory] = []


class Mem0(MemoryStore):
    """Client of one mem0 store."""

    # The service accepts no key, so a repeated write would store the text twice.
    repeatable = False

    def __init__(self, config: Mem0Store, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._headers = {"authorization": f"Token {config.api_key}"}
        self._who = {name: value for name in ("user_id", "agent_id") if (value := getattr(config, name))}
        self._where = {name: value for name in ("org_id", "project_id") if (value := getattr(config, name))}
        self._endpoint: Endpoint | None = None

    async def recall(self, me: Actor, text: str, *, top_k: int, threshold: float) -> list[str]:  # noqa: ARG002 - a `MemoryStore`
        query = plain(text, QUERY)
        if not query:
            return []
        filters = {"AND": [{name: value} for name, value in self._who.items()]} if self._who else {}
        body = {"query": query, "filters": filters, "top_k": top_k, **self._where}
        answer = await self._post("/v2/memories/search/", body)
        # Without a score, the service's own order counts.
        near = [each for each in _read(answer) if each.score is None or each.score >= threshold]
        return [each.memory for each in near if each.memory][:top_k]

    async def remember(self, me: Actor, given: str, said: str, key: str | None = None) -> None:  # noqa: ARG002 - a `MemoryStore`
        if given.strip():
            messages = [{"role": "user", "content": given[:LONGEST]}]
            await self._post("/v1/memories/", {"messages": messages, **self._who, **self._where})

    def close(self) -> None:
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.close()

    async def _post(self, path: str, body: dict[str, Any]) -> bytes:
        if self._endpoint is None:
            from ....work.models.client import Endpoint

            base = (self._environ.get("MEM0_BASE_URL") or BASE).rstrip("/")
            self._endpoint = Endpoint(base, "", 10.0, self._environ)
        return await self._endpoint.post(_ID, self._headers, path, msgspec.json.encode(body))


def _read(answer: bytes) -> list[_Memory]:
    try:
        found = decode_json(answer, list[_Memory] | _Found)
    except UNREADABLE as error:
        raise ModelError(f"mem0: the answer makes no sense: {error}") from error
    return found if isinstance(found, list) else found.results
