"""A codec without a server: what it makes of a request, and of whole and streamed answers."""

from __future__ import annotations

import json
from typing import Any

from callboard.actors.work.models.codec import Codec
from callboard.protocol.chat import ChatReply, ChatRequest, Delta, Tool, UserTurn

HELLO = ChatRequest(messages=(UserTurn("hello"),))
ADD = Tool(
    name="add", description="Add numbers", parameters={"type": "object", "properties": {"a": {"type": "number"}}}
)
NOW = Tool(name="now", description="The time")


class CodecBench:
    """A codec, asked for the model `m`. What it reads are answers to `HELLO`, unless another request is given."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def sent(self, request: ChatRequest, *, stream: bool = False) -> dict[str, Any]:
        """The body of a request."""
        body: dict[str, Any] = json.loads(self._codec.encode(request, "m", stream=stream).body)
        return body

    def whole(self, answer: Any, request: ChatRequest = HELLO) -> ChatReply:
        """What a whole answer says."""
        return self._codec.encode(request, "m", stream=False).decode(json.dumps(answer).encode())

    def read(self, data: bytes, size: int = 11, request: ChatRequest = HELLO) -> tuple[list[Delta], ChatReply]:
        """What a stream says, of which so many bytes come at a time."""
        reader = self._codec.encode(request, "m", stream=True).reader()
        deltas = [delta for i in range(0, len(data), size) for delta in reader.feed(data[i : i + size])]
        return deltas, reader.finish()
