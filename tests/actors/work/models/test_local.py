"""Local models: tools as a schema, engines as shared processes, and one real conversation."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import trio
from support.gateways import Silent
from support.messages import says

from callboard.actors.work.models import engines, weights
from callboard.actors.work.models.engines import LocalEngines
from callboard.actors.work.models.gateway import Gateway
from callboard.actors.work.models.local import LocalCodec, bounded
from callboard.protocol.chat import AssistantTurn, ChatReply, ChatRequest, Tool, ToolCall, ToolTurn, UserTurn
from callboard.protocol.errors import ConfigError, ModelError, UpstreamError
from callboard.protocol.settings import Settings
from callboard.supervisors import Root

NUMBERS = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}
ADD = Tool(name="add", description="Add two numbers", parameters=NUMBERS)
NOW = Tool(name="now", description="Tell the time")
ASKED = ChatRequest(messages=(UserTurn("what is 1 + 2?"),), tools=(ADD, NOW), system="Be kind.")


def sent(request: ChatRequest) -> dict[str, Any]:
    return json.loads(LocalCodec().encode(request, "m", stream=False).body)


def offered(request: ChatRequest) -> list[str]:
    schema = sent(request)["response_format"]["json_schema"]["schema"]
    return [branch["properties"]["tool"]["const"] for branch in schema["anyOf"]]


def test_a_reply_in_words_is_bounded_and_repeating_costs_unless_the_request_says_otherwise() -> None:
    plain = ChatRequest(messages=(UserTurn("hi"),))
    body = sent(plain)
    assert (body["max_tokens"], body["repeat_penalty"]) == (256, 1.1)
    body = sent(msgspec.structs.replace(plain, max_tokens=9, extra={"repeat_penalty": 1.0}))
    assert (body["max_tokens"], body["repeat_penalty"]) == (9, 1.0)
    assert sent(ASKED)["max_tokens"] == 512


def test_names_of_tools_and_words_to_choose_from_cost_nothing_for_standing_in_the_prompt() -> None:
    shaped = ChatRequest(messages=(UserTurn("calm or angry?"),), response_schema={"type": "string"})
    assert "repeat_penalty" not in sent(ASKED)
    assert "repeat_penalty" not in sent(shaped)
    assert sent(msgspec.structs.replace(shaped, extra={"repeat_penalty": 1.1}))["repeat_penalty"] == 1.1


def answered(text: str, request: ChatRequest, finish: str = "stop") -> ChatReply:
    body = json.dumps({"choices": [{"message": {"content": text}, "finish_reason": finish}]}).encode()
    return LocalCodec().encode(request, "m", stream=False).decode(body)


# --- tools as a schema ------------------------------------------------------------------------------------


def test_tools_become_one_schema_with_an_example_each() -> None:
    body = sent(ASKED)
    assert "tools" not in body
    assert offered(ASKED) == ["add", "now", "answer"]
    system, *examples, question = body["messages"]
    assert system["content"].startswith("Be kind.\n\nYou choose a tool.")
    assert "- add: Add two numbers. args: a, b" in system["content"]
    schema = body["response_format"]["json_schema"]["schema"]
    for example in examples[1::2]:
        jsonschema.validate(json.loads(example["content"]), schema)
    assert [json.loads(example["content"])["tool"] for example in examples[1::2]] == ["answer", "add", "now"]
    assert question == {"role": "user", "content": "what is 1 + 2?"}


@pytest.mark.parametrize(
    ("choice", "names"), [("required", ["add", "now"]), ("now", ["now"]), ("auto", ["add", "now", "answer"])]
)
def test_a_tool_choice_narrows_what_is_offered(choice: str, names: list[str]) -> None:
    assert offered(ChatRequest(messages=ASKED.messages, tools=ASKED.tools, tool_choice=choice)) == names


def test_choosing_none_means_plain_words() -> None:
    request = ChatRequest(messages=ASKED.messages, tools=ASKED.tools, tool_choice="none")
    assert "response_format" not in sent(request)
    assert answered("three", request).text == "three"


def test_a_choice_is_turned_back_into_a_call_or_an_answer() -> None:
    call = answered('{"tool": "add", "args": {"a": 1, "b": 2}}', ASKED)
    assert call.tool_calls == (ToolCall(id="call_0", name="add", arguments={"a": 1, "b": 2}),)
    assert (call.text, call.stop) == ("", "tools")
    words = answered('{"tool": "answer", "args": {"text": "three"}}', ASKED)
    assert (words.text, words.tool_calls, words.stop) == ("three", (), "end")


def test_a_choice_that_was_cut_off_says_so_and_nonsense_is_an_error() -> None:
    assert answered('{"tool": "add", "ar', ASKED, "length").stop == "length"
    with pytest.raises(ModelError, match=says("work.models.local._chosen")):
        answered("three", ASKED)


def test_a_tool_whose_result_is_in_is_not_offered_again_until_the_user_speaks() -> None:
    call = AssistantTurn("", (ToolCall(id="1", name="add", arguments={"a": 1, "b": 2}),))
    result = ToolTurn(call="1", name="add", content="3")
    request = ChatRequest(messages=(*ASKED.messages, call, result), tools=ASKED.tools)
    assert offered(request) == ["now", "answer"]
    assert sent(request)["messages"][-2:] == [
        {"role": "assistant", "content": '{"tool":"add","args":{"a":1,"b":2}}'},
        {"role": "user", "content": "Result of add: 3"},
    ]
    later = ChatRequest(messages=(*request.messages, UserTurn("again")), tools=ASKED.tools)
    assert offered(later) == ["add", "now", "answer"]


def test_texts_and_lists_without_a_bound_get_one() -> None:
    schema = {
        "type": "object",
        "properties": {
            "why": {"type": "string"},
            "kind": {"type": "string", "enum": ["type", "string"]},
            "short": {"type": "string", "maxLength": 5},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    }
    copy = bounded(schema)
    assert copy["properties"]["why"]["maxLength"] > 0
    assert copy["properties"]["kind"] == schema["properties"]["kind"]
    assert copy["properties"]["short"]["maxLength"] == 5
    assert copy["properties"]["tags"]["maxItems"] > 0
    assert "maxLength" not in schema["properties"]["why"]


# --- engines ----------------------------------------------------------------------------------------------

SERVER = """
    import http.server, json, os, sys, threading
    model = sys.argv[1]
    if model == "broken":
        sys.exit("the file is not a model")
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            if model == "dies":
                os._exit(3)
            text = f"{os.getpid()} {self.headers['authorization']} {os.environ['OMP_WAIT_POLICY']}"
            answer = {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({"url": f"http://127.0.0.1:{server.server_port}", "key": "k"}), flush=True)
    sys.stdin.read()
    os._exit(0)
"""


@asynccontextmanager
async def local_gateway(tmp_path: Path, model: str) -> AsyncIterator[tuple[Gateway, str]]:
    """A gateway whose local engine is the script above, told that the model file is `model`."""
    script = tmp_path / "server.py"
    script.write_text(textwrap.dedent(SERVER))
    file = tmp_path / f"{model}.gguf"
    file.write_bytes(b"GGUF")

    class Plain(LocalEngines):
        def lease(self, path: str) -> Any:
            return super().lease(Path(path).stem)

    async with Root() as root:
        local = Plain(root, {"PATH": os.environ["PATH"]}, server=script)
        async with Gateway(root, Settings(), {}, engines=local) as gateway:
            yield gateway, f"local:{file}"


def asking(model: str) -> ChatRequest:
    return ChatRequest(model=model, messages=(UserTurn("hi"),))


needs_engine = pytest.mark.skipif(find_spec("xllamacpp") is None, reason="the extra `local` is not installed")


@needs_engine
async def test_callers_share_one_engine_that_is_started_when_it_is_needed(tmp_path: Path) -> None:
    texts: list[str] = []
    async with local_gateway(tmp_path, "good") as (gateway, model):

        async def one() -> None:
            texts.append((await gateway.chat(Silent(), asking(model))).text)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(one)
    assert len(set(texts)) == 1
    pid, scheme, key, policy = texts[0].split()
    assert (scheme, key, policy) == ("Bearer", "k", "passive")
    assert not Path(f"/proc/{pid}").exists()


@needs_engine
async def test_an_engine_that_died_is_started_again(tmp_path: Path) -> None:
    async with local_gateway(tmp_path, "good") as (gateway, model):
        first = (await gateway.chat(Silent(), asking(model))).text
        os.kill(int(first.split()[0]), 9)
        second = (await gateway.chat(Silent(), asking(model), attempts=5)).text
    assert first != second


@needs_engine
async def test_an_engine_that_cannot_load_its_model_says_why(tmp_path: Path) -> None:
    async with local_gateway(tmp_path, "broken") as (gateway, model):
        with pytest.raises(ConfigError, match=says("work.models.engines._announced", path="broken")):
            await gateway.chat(Silent(), asking(model))


@needs_engine
async def test_an_engine_that_dies_while_answering_is_a_passing_error(tmp_path: Path) -> None:
    async with local_gateway(tmp_path, "dies") as (gateway, model):
        with pytest.raises(UpstreamError):
            await gateway.chat(Silent(), asking(model), attempts=1)


@needs_engine
async def test_an_engine_that_dies_again_and_again_is_left_alone_for_a_while(tmp_path: Path) -> None:
    async with local_gateway(tmp_path, "broken") as (gateway, model):
        for _ in range(5):
            with pytest.raises(ConfigError):
                await gateway.chat(Silent(), asking(model))
        with pytest.raises(UpstreamError, match=says("supervisors.policy.Breaker.check", _most=5, _period=60)):
            await gateway.chat(Silent(), asking(model), attempts=1)


async def test_without_the_engine_installed_the_command_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    async with Root() as root:
        with pytest.raises(ConfigError, match=says("work.models.engines.require_engine")):
            async with LocalEngines(root, {}).lease("x"):
                pass


def test_one_core_is_left_for_everybody_else() -> None:
    assert engines.threads() == max(1, len(os.sched_getaffinity(0)) - 1)


# --- the real thing ---------------------------------------------------------------------------------------


def real_weights() -> str:
    """Why the real model can't be tried here; empty if it can."""
    if find_spec("xllamacpp") is None:
        return "the extra `local` is not installed"
    try:
        weights.located("smollm2", os.environ)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.full
@pytest.mark.skipif(bool(real_weights()), reason=real_weights() or "-")
async def test_the_real_model_talks_keeps_a_schema_and_chooses_a_tool() -> None:
    schema = {
        "type": "object",
        "properties": {"colour": {"type": "string", "maxLength": 20}, "score": {"type": "integer"}},
        "required": ["colour", "score"],
        "additionalProperties": False,
    }
    deltas: list[Any] = []
    async with Root() as root, Gateway(root, Settings(), os.environ, engines=LocalEngines(root, os.environ)) as gateway:
        hello = ChatRequest(model="local:smollm2", messages=(UserTurn("Say hello."),), max_tokens=12)
        reply = await gateway.chat(Silent(), hello, on_delta=deltas.append)
        assert reply.text == "".join(delta.text for delta in deltas) != ""
        assert reply.usage.output_tokens > 0

        shaped = ChatRequest(model="local:smollm2", messages=(UserTurn("Rate blue."),), response_schema=schema)
        jsonschema.validate(json.loads((await gateway.chat(Silent(), shaped)).text), schema)

        tool = ChatRequest(
            model="local:smollm2", messages=(UserTurn("What is 12 plus 30?"),), tools=(ADD,), tool_choice="required"
        )
        (call,) = (await gateway.chat(Silent(), tool)).tool_calls
        assert call.name == "add"
        jsonschema.validate(call.arguments, NUMBERS)

        clock = Tool(name="get_current_time", description="Get the current time")
        free = ChatRequest(model="local:smollm2", messages=(UserTurn("What time is it?"),), tools=(clock,))
        assert [call.name for call in (await gateway.chat(Silent(), free)).tool_calls] == ["get_current_time"]


def test_the_server_script_needs_nothing_of_ours() -> None:
    source = engines.SERVER.read_text()
    assert "callboard" not in source.split('"""')[2]
