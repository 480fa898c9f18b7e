"""A call as people read it: what the model saw in its order, then what it said."""

from __future__ import annotations

from callboard.actors.views.call_text import call_text, reply_parts
from callboard.protocol.chat import ToolCall
from callboard.protocol.control.resources import FailedTry, ModelCallDetail, ShownReply, ShownRequest


def detail(**given: object) -> ModelCallDetail:
    fields: dict[str, object] = {"number": 3, "actor": "/run-1/a", "model": "x:y", "request": ShownRequest()}
    return ModelCallDetail(**(fields | given))  # type: ignore[arg-type] # any field


def test_a_whole_call_is_one_text() -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "url": "https://x.test/a"}]},
        {"role": "user", "content": [{"type": "file", "name": "a.txt", "text": "words"}, "odd"]},
        {"role": "assistant", "text": "I look", "tool_calls": [{"name": "ls", "arguments": {"p": "é"}}]},
        {"role": "assistant", "tool_calls": [{"name": "ls", "malformed": "{p"}]},
        {"role": "tool", "name": "ls", "content": "none", "error": True},
        {"role": "user", "content": [{"type": "image", "media_type": "image/png", "bytes": 5000}]},
    ]
    tools = [
        {"name": "ls", "description": "Lists\n all. " + "x" * 200, "parameters": {"properties": {"p": {}, "q": {}}}}
    ]
    request = ShownRequest(system="Be brief.\n", messages=messages, tools=tools, parameters={"stop": ["a"]})
    calls = [ToolCall(id="1", name="ls", arguments={"p": "."})]
    reply = ShownReply(text="so", reasoning="hm", tool_calls=calls, stop="tools")
    text = call_text(detail(request=request, reply=reply, seconds=1.25, input_tokens=1200, output_tokens=5, cost=0.01))
    assert text == "\n".join(
        [
            "call 3, /run-1/a, x:y, 1.2 s, 1,200 tokens in, 5 out, $0.0100",
            *("", "--- system ---", "Be brief."),
            *("", "--- user ---", "look", "  [image: https://x.test/a]"),
            *("", "--- user ---", "  [file: a.txt]", "words", "odd"),
            *("", "--- assistant ---", "I look", '  calls ls {"p": "é"}'),
            *("", "--- assistant ---", "  calls ls {p"),
            *("", "--- tool ls (failed) ---", "none"),
            *("", "--- user ---", "  [image: image/png, 5,000 bytes]"),
            *("", "--- tools (1) ---", "  ls(p, q)  Lists all. " + "x" * 88 + "…"),
            *("", "--- parameters ---", '  stop: ["a"]'),
            *("", "--- reasoning ---", "hm"),
            *("", "--- reply (tools) ---", "so", '  calls ls {"p": "."}'),
        ]
    )


def test_what_went_wrong_is_told_before_the_reply() -> None:
    tries = [FailedTry(error="busy", wait=0.5)]
    parts = list(reply_parts(detail(failures=tries, error="too long")))
    assert [(part.title, part.text, part.failed) for part in parts] == [
        ("try 1 failed", "busy\n  again after 0.5 s", True),
        ("failed", "too long", True),
    ]
    (part,) = reply_parts(detail())
    assert part.text == "no reply yet, or the request was cut off"
