"""The prompt caches of two providers, as their documentation says they work. Sizes are in tokens of four characters.

Anthropic (https://docs.claude.com/en/docs/build-with-claude/prompt-caching): a request is tools, system prompt and
messages, in this order, as blocks. At a block with `cache_control` the prefix up to there is looked for, and if it is
not there, that of each of the 20 blocks before it; what is found is read, the rest up to the last marked block is
written. At most four blocks are marked. A prefix of fewer than 1,024 tokens is not cached.

OpenAI (https://platform.openai.com/docs/guides/prompt-caching): the longest prefix that an earlier request with the
same `prompt_cache_key` had is read, in steps of 128 tokens from 1,024 on.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

Json = Any

LEAST, STEP, LOOKS_BACK, MARKS = 1024, 128, 20, 4


@dataclass
class Counts:
    """Tokens of all requests so far: read from the cache, written to it, and neither."""

    read: int = 0
    written: int = 0
    fresh: int = 0

    @property
    def all(self) -> int:
        return self.read + self.written + self.fresh

    def add(self, read: int, written: int, fresh: int) -> None:
        self.read, self.written, self.fresh = self.read + read, self.written + written, self.fresh + fresh


def tokens(*texts: str) -> int:
    return sum(map(len, texts)) // 4


def in_common(one: str, other: str) -> int:
    """Characters with which both begin."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


@dataclass
class AnthropicCache:
    """Say what is in each request, and it says what of it was cached."""

    counts: Counts = field(default_factory=Counts)
    _known: set[str] = field(default_factory=set)

    def usage(self, request: Json) -> Json:
        """The `usage` of the reply; raises AssertionError for what the provider refuses."""
        blocks = list(_blocks(request))
        sizes, names, marks = [], [], []
        digest, size = hashlib.sha256(), 0
        for position, block in enumerate(blocks):
            text = json.dumps({key: value for key, value in block.items() if key != "cache_control"}, sort_keys=True)
            digest.update(text.encode())
            size += tokens(text)
            sizes.append(size)
            names.append(digest.hexdigest())
            if "cache_control" in block:
                assert block["cache_control"]["type"] == "ephemeral"
                assert block.get("text") != "", "cache_control can't be set for empty text blocks"
                marks.append(position)
        assert len(marks) <= MARKS, (
            f"a maximum of {MARKS} blocks with cache_control may be provided, found {len(marks)}"
        )
        read = 0
        for mark in marks:
            for position in range(mark, max(-1, mark - LOOKS_BACK - 1), -1):
                if names[position] in self._known:
                    read = max(read, sizes[position])
                    break
        last = sizes[marks[-1]] if marks else 0
        written = max(0, last - read) if last >= LEAST else 0
        self._known |= {names[mark] for mark in marks if sizes[mark] >= LEAST}
        self.counts.add(read, written, size - read - written)
        return {
            "input_tokens": size - read - written,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
            "output_tokens": 10,
        }


def _blocks(request: Json) -> Any:
    yield from request.get("tools", [])
    system = request.get("system", [])
    yield from [{"type": "text", "text": system}] if isinstance(system, str) else system
    for message in request["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            yield {**block, "role": message["role"]}


@dataclass
class OpenAiCache:
    """As `AnthropicCache`."""

    counts: Counts = field(default_factory=Counts)
    _known: dict[str, list[str]] = field(default_factory=dict)

    def usage(self, request: Json) -> Json:
        whole = json.dumps(
            [request.get("tools", []), request.get("instructions"), request.get("messages", request.get("input"))]
        )
        earlier = self._known.setdefault(request.get("prompt_cache_key", ""), [])
        alike = max((in_common(whole, other) for other in earlier), default=0) // 4
        read = alike // STEP * STEP if alike >= LEAST else 0
        earlier.append(whole)
        self.counts.add(read, 0, tokens(whole) - read)
        return {
            "prompt_tokens": tokens(whole),
            "completion_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": read},
        }
