"""The official openai SDK against our server: `openai_checks.py BASE_URL TOKEN`; prints the outcome of each check.

The model behind the server does what the prompt says (see `test_openai_clients.scripted`). `agent/clerk` has a tool
`add`; `graph/hello` greets.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import openai
from checks import check, print_outcomes
from pydantic import BaseModel

BASE, TOKEN = sys.argv[1:]
MODEL, VECTORS = "fake:model", "fake:vectors"
PIXEL = "data:image/png;base64,iVBORw0KGgo="
PARAMETERS = {
    "type": "object",
    "properties": {"zone": {"type": "string"}},
    "required": ["zone"],
    "additionalProperties": False,
}
CLOCK: Any = {"type": "function", "function": {"name": "clock", "parameters": PARAMETERS, "strict": True}}
FLAT: Any = {"type": "function", "name": "clock", "parameters": PARAMETERS, "strict": True}
CALL = 'CALL clock {"zone": "UTC"}'

client = openai.OpenAI(base_url=BASE, api_key=TOKEN, max_retries=0)


class Person(BaseModel):
    name: str
    age: int


def user(content: Any) -> Any:
    return [{"role": "user", "content": content}]


def chat(content: Any = "hi", model: str = MODEL, **more: Any) -> Any:
    return client.chat.completions.create(model=model, messages=user(content), **more)


def refused(kind: type[openai.APIStatusError], ask: Callable[[], Any]) -> Any:
    """The body of the error that the call raises, which has to be of this type."""
    try:
        ask()
    except kind as error:
        return error.response.json()["error"]
    raise AssertionError(f"no {kind.__name__}")


# --- models and errors ---


@check
def models_are_listed() -> None:
    assert {MODEL, "agent/clerk", "graph/hello"} <= {model.id for model in client.models.list()}


@check
def an_agent_is_a_model() -> None:
    assert client.models.retrieve("agent/clerk").id == "agent/clerk"


@check
def a_model_of_a_client_is_one() -> None:
    assert client.models.retrieve(MODEL).id == MODEL


@check
def an_unknown_model_is_not_found() -> None:
    refused(openai.NotFoundError, lambda: client.models.retrieve("agent/nobody"))


@check
def a_bad_key_is_an_authentication_error() -> None:
    other = openai.OpenAI(base_url=BASE, api_key="nope", max_retries=0)
    refused(openai.AuthenticationError, lambda: other.models.list())


@check
def an_error_has_the_fields_of_openai() -> None:
    body = refused(openai.NotFoundError, lambda: chat(model="agent/nobody"))
    assert {"message", "type", "param", "code"} <= set(body)


@check
def several_answers_are_a_bad_request() -> None:
    assert refused(openai.BadRequestError, lambda: chat(n=2))["param"] == "n"


@check
def no_messages_are_a_bad_request() -> None:
    refused(openai.BadRequestError, lambda: client.chat.completions.create(model=MODEL, messages=[]))


@check
def logprobs_are_a_bad_request() -> None:
    refused(openai.BadRequestError, lambda: chat(logprobs=True))


@check
def tools_of_other_types_are_a_bad_request() -> None:
    custom: Any = [{"type": "custom", "custom": {"name": "x"}}]
    refused(openai.BadRequestError, lambda: chat(tools=custom))


@check
def sound_is_a_bad_request() -> None:
    part = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    refused(openai.BadRequestError, lambda: chat([part]))


@check
def files_are_a_bad_request() -> None:
    part = {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGVsbG8="}}
    refused(openai.BadRequestError, lambda: chat([part]))


@check
def what_is_not_offered_is_not_found() -> None:
    refused(openai.NotFoundError, lambda: client.moderations.create(input="x"))


@check
def replies_have_a_request_id() -> None:
    assert client.chat.completions.with_raw_response.create(model=MODEL, messages=user("x")).headers["x-request-id"]


# --- chat completions ---


@check
def a_chat_is_answered() -> None:
    reply = chat()
    assert reply.choices[0].message.content == "echo: hi"
    assert reply.usage.total_tokens


@check
def developers_have_their_say() -> None:
    messages: Any = [{"role": "developer", "content": "x"}, *user("hi")]
    assert client.chat.completions.create(model=MODEL, messages=messages).choices[0].message.content


@check
def content_may_be_parts() -> None:
    assert chat([{"type": "text", "text": "hi"}]).choices[0].message.content == "echo: hi"


@check
def images_are_shown() -> None:
    assert chat([{"type": "text", "text": "what"}, {"type": "image_url", "image_url": {"url": PIXEL}}]).choices


@check
def a_stream_has_text_and_usage() -> None:
    chunks = list(chat("hello there", stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "echo: hello there"
    assert chunks[-1].usage.total_tokens


@check
def the_streaming_helper_has_the_whole() -> None:
    with client.chat.completions.stream(model=MODEL, messages=user("hello")) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.content == "echo: hello"


@check
def a_tool_is_called_and_its_result_continues() -> None:
    messages = user(CALL)
    first = client.chat.completions.create(model=MODEL, messages=messages, tools=[CLOCK]).choices[0]
    assert first.finish_reason == "tool_calls"
    assert first.message.tool_calls
    call = first.message.tool_calls[0]
    messages += [first.message.model_dump(exclude_none=True)]
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "12:00"}]
    second = client.chat.completions.create(model=MODEL, messages=messages, tools=[CLOCK])
    assert second.choices[0].message.content == "done: 12:00"


@check
def tool_calls_are_streamed() -> None:
    chunks = list(chat(CALL, stream=True, tools=[CLOCK]))
    assert any(chunk.choices and chunk.choices[0].delta.tool_calls for chunk in chunks)


@check
def a_call_can_be_required() -> None:
    assert chat(CALL, tools=[CLOCK], tool_choice="required").choices[0].finish_reason == "tool_calls"


@check
def a_function_can_be_required() -> None:
    choice: Any = {"type": "function", "function": {"name": "clock"}}
    assert chat(CALL, tools=[CLOCK], tool_choice=choice).choices[0].finish_reason == "tool_calls"


@check
def json_is_answered() -> None:
    assert json.loads(chat(response_format={"type": "json_object"}).choices[0].message.content)


@check
def a_schema_is_parsed() -> None:
    reply = client.chat.completions.parse(model=MODEL, messages=user("json"), response_format=Person)
    assert reply.choices[0].message.parsed == Person(name="Ann", age=5)


@check
def an_agent_uses_its_own_tool() -> None:
    assert "3" in chat("CALL add {}", model="agent/clerk").choices[0].message.content


@check
def an_agent_calls_the_clients_tool() -> None:
    assert chat(CALL, model="agent/clerk", tools=[CLOCK]).choices[0].finish_reason == "tool_calls"


@check
def a_graph_answers() -> None:
    assert chat("you", model="graph/hello").choices[0].message.content == "hello you"


# --- responses, embeddings, old completions ---


@check
def a_response_is_made_and_continued() -> None:
    first = client.responses.create(model=MODEL, input="hi", instructions="Be brief.")
    assert (first.output_text, first.status) == ("echo: hi", "completed")
    assert first.usage
    second = client.responses.create(model=MODEL, input="and?", previous_response_id=first.id)
    assert second.output_text == "echo: and?"


@check
def a_response_is_streamed() -> None:
    with client.responses.stream(model=MODEL, input="hello there") as stream:
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_text == "echo: hello there"
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"


@check
def a_response_calls_a_function_and_goes_on() -> None:
    with client.responses.stream(model=MODEL, input=CALL, tools=[FLAT]) as stream:
        for _ in stream:
            pass
        first = stream.get_final_response()
    (call,) = first.output
    assert (call.type, json.loads(call.arguments)) == ("function_call", {"zone": "UTC"})
    output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "12:00"}]
    second = client.responses.create(model=MODEL, input=output, previous_response_id=first.id, tools=[FLAT])
    assert second.output_text == "done: 12:00"


@check
def a_response_is_parsed() -> None:
    assert client.responses.parse(model=MODEL, input="json", text_format=Person).output_parsed == Person(
        name="Ann", age=5
    )


@check
def texts_become_vectors() -> None:
    reply = client.embeddings.create(model=VECTORS, input=["a", "bb"])  # the SDK asks for base64
    assert [len(entry.embedding) for entry in reply.data] == [3, 3]
    short = client.embeddings.create(model="vectors", input="a", dimensions=2, encoding_format="float")
    assert len(short.data[0].embedding) == 2


@check
def an_old_completion_is_answered() -> None:
    assert client.completions.create(model=MODEL, prompt="hi", max_tokens=9).choices[0].text == "echo: hi"


@check
def an_old_completion_is_streamed() -> None:
    chunks = client.completions.create(model=MODEL, prompt="hello there", stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "echo: hello there"


if __name__ == "__main__":
    print_outcomes()
