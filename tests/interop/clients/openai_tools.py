"""OpenAI's own SDK with tools of its own, images and errors: `openai_tools.py BASE_URL TOKEN`; prints what it got.

The model behind the server looks a word up with the client's tool, and then answers.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import openai

LOOKUP: Any = {
    "type": "function",
    "function": {"name": "lookup", "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}},
}
DOT = "data:image/png;base64,iVBORw0KGgo="


def main(base: str, token: str) -> dict[str, Any]:
    """Everything that it got, by name."""
    client = openai.OpenAI(base_url=base, api_key=token, max_retries=0)
    got: dict[str, Any] = {"whole": talked(client), "streamed": streamed(client)}
    shown: Any = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": DOT}}]
    seen = client.chat.completions.create(model="agent/clerk", messages=[{"role": "user", "content": shown}])
    got["seen"] = seen.choices[0].message.content
    got["model"] = client.models.retrieve("agent/clerk").id
    for name, ask in (
        ("bad", lambda: client.chat.completions.create(model="fake:model", messages=[])),
        ("absent", lambda: client.models.retrieve("agent/nobody")),
        ("nobody", lambda: openai.OpenAI(base_url=base, api_key="x", max_retries=0).models.list()),
        ("often", lambda: [list(client.models.list()) for _ in range(30)]),
    ):
        try:
            ask()
        except openai.RateLimitError as error:
            got[name] = [type(error).__name__, error.code, error.response.headers["retry-after"].isdigit()]
        except openai.APIStatusError as error:
            got[name] = [type(error).__name__, error.code, bool(error.request_id)]
    return got


def talked(client: openai.OpenAI) -> list[Any]:
    """A conversation with one call in it."""
    messages: list[Any] = [{"role": "user", "content": "sky?"}]
    first = client.chat.completions.create(model="agent/clerk", messages=messages, tools=[LOOKUP]).choices[0]
    assert first.message.tool_calls
    (call,) = first.message.tool_calls
    assert call.type == "function"
    messages += [first.message, {"role": "tool", "tool_call_id": call.id, "content": "green"}]
    second = client.chat.completions.create(model="agent/clerk", messages=messages, tools=[LOOKUP]).choices[0]
    return [first.finish_reason, call.function.name, json.loads(call.function.arguments), second.message.content]


def streamed(client: openai.OpenAI) -> list[Any]:
    """The call as the SDK puts it together from a stream's pieces."""
    messages: list[Any] = [{"role": "user", "content": "sky?"}]
    with client.chat.completions.stream(model="agent/clerk", messages=messages, tools=[LOOKUP]) as stream:
        for _ in stream:
            pass
        choice = stream.get_final_completion().choices[0]
    assert choice.message.tool_calls
    return [choice.finish_reason, choice.message.tool_calls[0].function.name]


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
