"""A model server for tests that speaks the real wire formats of OpenAI, Anthropic and Ollama.

Real sockets on loopback, in the test's own nursery: nothing of the product is replaced. Use the fixture
`fake_model` of tests/conftest.py:

    async def test_x(fake_model):
        fake_model.script("first", Reply(calls=[("add", {"a": 1, "b": 2})]), Reply(status=429, error="slow down"))
        outcome = await callboard.run(graph, config_dir=fake_model.config_dir(tmp_path))
        assert fake_model.requests[0].json["messages"][0]["content"] == "..."

Scripted replies are used in the order in which requests arrive; afterwards, and always when `answer_with` was
given a function, that function decides (by default it answers "ok"). Which format is spoken depends on the
path alone, without its query: it ends with `/chat/completions`, `/responses`, `/messages`, `/api/chat` or Gemini's
`:generateContent` and `:streamGenerateContent` (`gemini_wire`).
"""

from __future__ import annotations

import json
import socket
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httptools
import trio

from support import gemini_wire

Json = Any


@dataclass
class Reply:
    """What the server does with one request.

    Attributes:
        text: what the model says; sent in pieces of `piece` characters when the client asked for a stream.
        calls: tool calls as (name, arguments); arguments given as str are sent as they are.
        reasoning: what it thinks first, as far as it shows that; `sealed`: what it does not show, encrypted.
        delay: seconds (of trio's clock) before the first byte.
        status, headers, error: another status than 200 sends a provider-style error with the text `error`.
        drop: close the connection `at once`, after the `headers`, or in the `middle` of the body.
        hold: nothing is sent before this event is set.
        gap: seconds between the pieces of a stream.
        stall: where a stream stops for good: after so many pieces (0: headers alone), before the last (-1), or behind
            the first one in which these bytes are; what comes as a whole stops in its middle. `stalled` is set then.
        raw: this body is sent in place of the provider's format.
    """

    text: str = ""
    calls: list[tuple[str, Json]] = field(default_factory=list)
    reasoning: str = ""
    sealed: str = ""
    delay: float = 0.0
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    error: str = ""
    drop: Literal["at once", "headers", "middle"] | None = None
    hold: trio.Event | None = None
    gap: float = 0.0
    piece: int = 5
    input_tokens: int = 10
    output_tokens: int = 5
    stop: str = ""
    raw: bytes | None = None
    stall: int | bytes | None = None
    stalled: trio.Event = field(default_factory=trio.Event)

    def sent_of(self, chunks: list[bytes]) -> list[bytes]:
        """What is sent of a stream that stalls."""
        if isinstance(self.stall, bytes):
            at = next(index for index, chunk in enumerate(chunks) if self.stall in chunk)
            return chunks[: at + 1]
        return chunks[: self.stall]


@dataclass
class Request:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        """The decoded body."""
        return json.loads(self.body or b"{}")

    @property
    def prompt(self) -> str:
        """Text of the last user message, whichever the format."""
        for message in reversed(self.json.get("messages") or self.json["input"]):
            if message.get("role") == "user":
                content = message["content"]
                if isinstance(content, str):
                    return content
                return "\n".join(part.get("text", "") for part in content)
        return ""

    @property
    def system(self) -> str:
        """The system prompt; "" if there is none."""
        given = self.json.get("system", self.json.get("instructions"))
        if given is not None:
            return given if isinstance(given, str) else "\n".join(part["text"] for part in given)
        if "input" in self.json:
            return ""
        first = self.json["messages"][0]
        return str(first["content"]) if first["role"] == "system" else ""

    @property
    def offered(self) -> list[str]:
        """Names of the tools offered."""
        return [tool.get("function", tool)["name"] for tool in self.json.get("tools", [])]

    @property
    def results(self) -> list[str]:
        """The texts of all tool results in the history, in order."""
        found = [item["output"] for item in self.json.get("input", ()) if item.get("type") == "function_call_output"]
        for message in self.json.get("messages", ()):
            if message["role"] == "tool":
                found.append(message["content"])
            elif isinstance(message["content"], list):
                parts = [part["content"] for part in message["content"] if part["type"] == "tool_result"]
                found += [part if isinstance(part, str) else part[0]["text"] for part in parts]
        return found


class FakeModels:
    """The server. Attributes: `requests` so far, `open` connections, `accepted` connections, `cut`: requests
    whose client hung up before the answer was complete; `models` to list, which are no `requests`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.openai_base = f"{self.url}/v1"
        self.anthropic_base = f"{self.url}/v1"
        self.requests: list[Request] = []
        self.open = 0
        self.accepted = 0
        self.cut = 0
        self.models: list[str] = []
        self._script: deque[Reply] = deque()
        self._answer: Callable[[Request], Reply | str] = lambda request: "ok"
        self._changed = trio.lowlevel.ParkingLot()

    def script(self, *replies: Reply | str) -> None:
        """Append replies; each is used once."""
        self._script.extend(_reply(reply) for reply in replies)

    def answer_with(self, answer: Callable[[Request], Reply | str]) -> None:
        """Let a function answer whatever the script does not."""
        self._answer = answer

    @property
    def unused(self) -> int:
        """Scripted replies that no request has taken yet."""
        return len(self._script)

    def environ(self, client: str = "OPENAI") -> dict[str, str]:
        """Variables that make this server the default provider (`OPENAI` or `ANTHROPIC`)."""
        return {f"{client}_API_KEY": "sk-test", f"{client}_BASE_URL": self.openai_base}

    def config(self, model: str = "fake:model", type: str = "openai-compatible") -> str:
        """The text of a config.yaml with this server as client `fake`."""
        base = self.url if type == "ollama" else self.openai_base
        client = {"type": type, "name": "fake", "api_base": base, "api_key": "sk-test"}
        return json.dumps({"model": model, "clients": [client]}, indent=1)

    def config_dir(self, directory: Path, **options: str) -> Path:
        """Write `config.yaml` into `directory` (made if missing) and return it."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.yaml").write_text(self.config(**options))
        return directory

    async def until(self, happened: Callable[[FakeModels], bool]) -> None:
        """Wait until `happened(self)`; looked at whenever a request comes or a connection goes."""
        while not happened(self):
            await self._changed.park()

    async def arrived(self, count: int) -> None:
        """Wait until that many requests have come in all."""
        await self.until(lambda server: len(server.requests) >= count)

    # --- serving

    async def serve(self, listener: trio.SocketListener) -> None:
        """Serve until cancelled."""
        await trio.serve_listeners(self._connection, [listener])

    async def _connection(self, stream: trio.SocketStream) -> None:
        self.open += 1
        self.accepted += 1
        try:
            await self._requests_of(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.cut += 1
        finally:
            self.open -= 1
            stream.socket.close()
            self._changed.unpark_all()

    async def _requests_of(self, stream: trio.SocketStream) -> None:
        incoming = Incoming(stream)
        while (request := await incoming.next()) is not None:
            if request.method == "GET" and request.path.endswith(("/models", "/api/tags")):
                await self._answered(stream, request, self._listed(request))
                continue
            self.requests.append(request)
            reply = self._script.popleft() if self._script else _reply(self._answer(request))
            self._changed.unpark_all()
            if not await self._answered(stream, request, reply):
                return

    def _listed(self, request: Request) -> Reply:
        """Which models it has, `models`; a server without that interface has none."""
        if not self.models:
            return Reply(status=404, error="not found")
        key, name = ("models", "name") if request.path.endswith("/api/tags") else ("data", "id")
        return Reply(raw=json.dumps({key: [{name: model, "object": "model"} for model in self.models]}).encode())

    async def _answered(self, stream: trio.SocketStream, request: Request, reply: Reply) -> bool:
        """Send the reply; False when the connection ends with it."""
        if not await _still_there(stream, reply):
            self.cut += 1
            return False
        if reply.drop == "at once":
            return False
        chunks = list(body_of(request, reply))
        streamed = len(chunks) > 1 or _wants_stream(request)
        await stream.send_all(_head(reply, None if streamed else sum(map(len, chunks)), request))
        if reply.drop == "headers":
            return False
        if reply.stall is not None:
            half = [chunks[0][: len(chunks[0]) // 2]]
            await stream.send_all(b"".join(map(_chunked, reply.sent_of(chunks)) if streamed else half))
            reply.stalled.set()
            await stream.receive_some(1)  # until the client hangs up
            self.cut += 1
            return False
        if reply.drop == "middle":
            chunks = [chunks[0][: len(chunks[0]) // 2]] if len(chunks) == 1 else chunks[: len(chunks) // 2]
        if not streamed or not reply.gap:
            await stream.send_all(b"".join(_chunked(chunk) if streamed else chunk for chunk in chunks))
        else:
            for chunk in chunks:
                await stream.send_all(_chunked(chunk))
                await trio.sleep(reply.gap)
        if reply.drop == "middle":
            return False
        if streamed:
            await stream.send_all(b"0\r\n\r\n")
        return reply.headers.get("connection") != "close"


async def _still_there(stream: trio.SocketStream, reply: Reply) -> bool:
    """Wait as long as the reply says; False if the client hangs up meanwhile."""
    if not reply.delay and reply.hold is None:
        return True
    gone = False

    async def watch(scope: trio.CancelScope) -> None:
        nonlocal gone
        if not await stream.receive_some(1):
            gone = True
            scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, nursery.cancel_scope)
        if reply.hold is not None:
            await reply.hold.wait()
        await trio.sleep(reply.delay)
        nursery.cancel_scope.cancel()
    return not gone


class Incoming:
    """The requests of a connection, one after the other; for every server of these tests."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._reset()

    async def next(self) -> Request | None:
        """The next one; None when the client has closed."""
        while not self.complete:
            data = await self._stream.receive_some(65536)
            if not data:
                return None
            self.parser.feed_data(data)
        return self.take()

    def _reset(self) -> None:
        self.complete = False
        self.path = b""
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.parser = httptools.HttpRequestParser(self)

    def on_url(self, url: bytes) -> None:
        self.path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode().lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True

    def take(self) -> Request:
        method = self.parser.get_method().decode()
        request = Request(method, self.path.decode(), self.headers, bytes(self.body))
        self._reset()
        return request


def _reply(reply: Reply | str) -> Reply:
    return Reply(reply) if isinstance(reply, str) else reply


def _wants_stream(request: Request) -> bool:
    if ":streamGenerateContent" in request.path:
        return True
    try:
        stream = request.json.get("stream")
    except ValueError:
        return False
    return bool(stream) if stream is not None else request.path.endswith("/api/chat")


def _head(reply: Reply, length: int | None, request: Request) -> bytes:
    kind = "application/json"
    if length is None:
        kind = "application/x-ndjson" if request.path.endswith("/api/chat") else "text/event-stream"
    headers = {"content-type": kind, **reply.headers}
    if length is None:
        headers["transfer-encoding"] = "chunked"
    else:
        headers["content-length"] = str(length)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {reply.status} Scripted\r\n{lines}\r\n".encode()


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def body_of(request: Request, reply: Reply) -> Iterator[bytes]:
    """The answer's body in the pieces in which it is sent."""
    path = request.path.partition("?")[0]
    if reply.raw is not None:
        yield reply.raw
    elif reply.status != 200:
        yield _error(path, reply)
    elif path.endswith("/chat/completions"):
        yield from _openai_stream(request, reply) if _wants_stream(request) else [_openai(request, reply)]
    elif path.endswith("/responses"):
        yield from _responses_stream(request, reply) if _wants_stream(request) else [_responses(request, reply)]
    elif path.endswith("/messages"):
        yield from _anthropic_stream(request, reply) if _wants_stream(request) else [_anthropic(request, reply)]
    elif path.endswith("/api/chat"):
        yield from _ollama(request, reply, streamed=_wants_stream(request))
    elif path.endswith((":generateContent", ":streamGenerateContent")):
        yield from gemini_wire.body_of(request.path, reply)
    else:
        yield b'{"error": {"message": "no such path"}}'


def _error(path: str, reply: Reply) -> bytes:
    if path.endswith("/messages"):
        kind = "overloaded_error" if reply.status == 529 else "api_error"
        return _dump({"type": "error", "error": {"type": kind, "message": reply.error}})
    if path.endswith("/api/chat"):
        return _dump({"error": reply.error})
    return _dump({"error": {"message": reply.error, "type": "error", "param": None, "code": None}})


def _dump(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _arguments(arguments: Json) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


# --- OpenAI: POST /v1/chat/completions


def _openai_usage(reply: Reply) -> Json:
    total = reply.input_tokens + reply.output_tokens
    return {"prompt_tokens": reply.input_tokens, "completion_tokens": reply.output_tokens, "total_tokens": total}


def _openai_stop(reply: Reply) -> str:
    return reply.stop or ("tool_calls" if reply.calls else "stop")


def _openai(request: Request, reply: Reply) -> bytes:
    message: dict[str, Json] = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = [
            {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": _arguments(arguments)}}
            for n, (name, arguments) in enumerate(reply.calls)
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _openai_stop(reply)}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": request.json["model"]}
    return _dump({**head, "choices": [choice], "usage": _openai_usage(reply)})


def _openai_stream(request: Request, reply: Reply) -> Iterator[bytes]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": request.json["model"]}

    def chunk(delta: Json, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return b"data: " + _dump({**head, "choices": [choice], "usage": None}) + b"\n\n"

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for piece in _pieces(reply.reasoning, reply.piece):
        yield chunk({"reasoning_content": piece})
    for piece in _pieces(reply.text, reply.piece):
        yield chunk({"content": piece})
    for index, (name, arguments) in enumerate(reply.calls):
        function = {"name": name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function", "function": function}]})
        for piece in _pieces(_arguments(arguments), reply.piece):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, _openai_stop(reply))
    if (request.json.get("stream_options") or {}).get("include_usage"):
        yield b"data: " + _dump({**head, "choices": [], "usage": _openai_usage(reply)}) + b"\n\n"
    yield b"data: [DONE]\n\n"


# --- OpenAI: POST /v1/responses


def _response_items(reply: Reply) -> list[dict[str, Json]]:
    items: list[dict[str, Json]] = []
    if reply.reasoning or reply.sealed:
        summary = [{"type": "summary_text", "text": reply.reasoning}] if reply.reasoning else []
        items.append({"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": reply.sealed or None})
    if reply.text:
        content = [{"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}]
        items.append({"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": content})
    for index, (name, arguments) in enumerate(reply.calls):
        call = {"id": f"fc_{index}", "type": "function_call", "status": "completed", "call_id": f"call_{index}"}
        items.append({**call, "name": name, "arguments": _arguments(arguments)})
    return items


def _response(request: Request, reply: Reply, items: list[Json], status: str) -> Json:
    usage = {
        "input_tokens": reply.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 2 if reply.reasoning or reply.sealed else 0},
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }
    head = {"id": "resp_1", "object": "response", "created_at": 1, "status": status, "error": None, "store": False}
    head |= {"incomplete_details": None, "model": request.json["model"], "output": items}
    return {**head, "usage": usage if status != "in_progress" else None}


def _responses(request: Request, reply: Reply) -> bytes:
    return _dump(_response(request, reply, _response_items(reply), "completed"))


def _responses_stream(request: Request, reply: Reply) -> Iterator[bytes]:
    number = iter(range(100_000))

    def event(kind: str, **data: Json) -> bytes:
        body = {"type": f"response.{kind}", "sequence_number": next(number), **data}
        return b"event: response.%b\ndata: %b\n\n" % (kind.encode(), _dump(body))

    items = _response_items(reply)
    yield event("created", response=_response(request, reply, [], "in_progress"))
    yield event("in_progress", response=_response(request, reply, [], "in_progress"))
    for index, item in enumerate(items):
        at = {"item_id": item["id"], "output_index": index}
        if item["type"] == "reasoning":
            yield event("output_item.added", output_index=index, item={**item, "summary": []})
            if item["summary"]:
                part = {**at, "summary_index": 0}
                yield event("reasoning_summary_part.added", **part, part={"type": "summary_text", "text": ""})
                for piece in _pieces(reply.reasoning, reply.piece):
                    yield event("reasoning_summary_text.delta", **part, delta=piece)
                yield event("reasoning_summary_text.done", **part, text=reply.reasoning)
                yield event("reasoning_summary_part.done", **part, part=item["summary"][0])
        elif item["type"] == "message":
            yield event("output_item.added", output_index=index, item={**item, "status": "in_progress", "content": []})
            part = {**at, "content_index": 0}
            yield event("content_part.added", **part, part={**item["content"][0], "text": ""})
            for piece in _pieces(reply.text, reply.piece):
                yield event("output_text.delta", **part, delta=piece, logprobs=[])
            yield event("output_text.done", **part, text=reply.text, logprobs=[])
            yield event("content_part.done", **part, part=item["content"][0])
        else:
            yield event("output_item.added", output_index=index, item={**item, "arguments": ""})
            for piece in _pieces(item["arguments"], reply.piece):
                yield event("function_call_arguments.delta", **at, delta=piece)
            yield event("function_call_arguments.done", **at, arguments=item["arguments"])
        yield event("output_item.done", output_index=index, item=item)
    yield event("completed", response=_response(request, reply, items, "completed"))


# --- Anthropic: POST /v1/messages


def _anthropic_blocks(reply: Reply) -> list[dict[str, Json]]:
    blocks: list[dict[str, Json]] = []
    if reply.reasoning:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": "sig"})
    if reply.sealed:
        blocks.append({"type": "redacted_thinking", "data": reply.sealed})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for index, (name, arguments) in enumerate(reply.calls):
        blocks.append({"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": arguments})
    return blocks


def _anthropic_stop(reply: Reply) -> str:
    return reply.stop or ("tool_use" if reply.calls else "end_turn")


def _anthropic(request: Request, reply: Reply) -> bytes:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": request.json["model"]}
    message |= {"content": _anthropic_blocks(reply), "stop_reason": _anthropic_stop(reply), "stop_sequence": None}
    usage = {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens}
    return _dump({**message, "usage": usage})


def _anthropic_stream(request: Request, reply: Reply) -> Iterator[bytes]:
    def event(kind: str, **data: Json) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), _dump({"type": kind, **data}))

    usage = {"input_tokens": reply.input_tokens, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": request.json["model"], "content": []}
    yield event("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": usage})
    yield event("ping")
    for index, block in enumerate(_anthropic_blocks(reply)):
        text, kind, key = "", "", ""
        if block["type"] == "tool_use":
            start = {**block, "input": {}}
            text, kind, key = _arguments(block["input"]), "input_json_delta", "partial_json"
        elif block["type"] == "text":
            start = {"type": "text", "text": ""}
            text, kind, key = block["text"], "text_delta", "text"
        elif block["type"] == "thinking":
            start = {"type": "thinking", "thinking": "", "signature": ""}
            text, kind, key = block["thinking"], "thinking_delta", "thinking"
        if block["type"] == "redacted_thinking":
            start = block
        yield event("content_block_start", index=index, content_block=start)
        for piece in _pieces(text, reply.piece):
            yield event("content_block_delta", index=index, delta={"type": kind, key: piece})
        if block["type"] == "thinking":
            signed = {"type": "signature_delta", "signature": block["signature"]}
            yield event("content_block_delta", index=index, delta=signed)
        yield event("content_block_stop", index=index)
    stop = {"stop_reason": _anthropic_stop(reply), "stop_sequence": None}
    yield event("message_delta", delta=stop, usage={"output_tokens": reply.output_tokens})
    yield event("message_stop")


# --- Ollama: POST /api/chat


def _ollama(request: Request, reply: Reply, *, streamed: bool) -> Iterator[bytes]:
    head = {"model": request.json["model"], "created_at": "2026-01-01T00:00:00Z"}
    calls = [{"function": {"name": name, "arguments": arguments}} for name, arguments in reply.calls]
    counts = {"prompt_eval_count": reply.input_tokens, "eval_count": reply.output_tokens, "total_duration": 1}
    end = {"done": True, "done_reason": reply.stop or "stop", **counts}
    message: dict[str, Json] = {"role": "assistant", "content": "" if streamed else reply.text}
    if reply.reasoning and not streamed:
        message["thinking"] = reply.reasoning
    if streamed:
        for piece in _pieces(reply.reasoning, reply.piece):
            line = {**head, "message": {"role": "assistant", "content": "", "thinking": piece}, "done": False}
            yield _dump(line) + b"\n"
        for piece in _pieces(reply.text, reply.piece):
            line = {**head, "message": {"role": "assistant", "content": piece}, "done": False}
            yield _dump(line) + b"\n"
        if calls:
            yield _dump({**head, "message": {**message, "tool_calls": calls}, "done": False}) + b"\n"
    elif calls:
        message["tool_calls"] = calls
    yield _dump({**head, "message": message, **end}) + (b"\n" if streamed else b"")


def listening() -> tuple[trio.SocketListener, int]:
    """A listener on a free loopback port, and that port."""
    sock = socket.create_server(("127.0.0.1", 0), backlog=2048)
    sock.setblocking(False)
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock)), sock.getsockname()[1]
