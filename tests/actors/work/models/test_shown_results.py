"""Results of tools that show more than text, in every provider's format."""

from __future__ import annotations

from typing import Any

import msgspec

from callboard.actors.work.models.anthropic import AnthropicCodec
from callboard.actors.work.models.gemini import GeminiCodec
from callboard.actors.work.models.ollama import OllamaCodec
from callboard.actors.work.models.openai import OpenAiCodec
from callboard.protocol.chat import (
    AssistantTurn,
    ChatRequest,
    FilePart,
    ImagePart,
    TextPart,
    ToolCall,
    ToolTurn,
    UserTurn,
)

IMAGE = ImagePart(data=b"\x89PNG")
REPORT = FilePart(name="report.pdf", data=b"%PDF", media_type="application/pdf")
REQUEST = ChatRequest(
    messages=(
        UserTurn("look"),
        AssistantTurn("", (ToolCall(id="c1", name="show"), ToolCall(id="c2", name="add"))),
        ToolTurn(call="c1", name="show", content=(TextPart("Two things:"), IMAGE, REPORT)),
        ToolTurn(call="c2", name="add", content="2"),
        AssistantTurn("I see."),
    ),
)


def sent(codec: Any) -> list[Any]:
    """The messages from the results on."""
    body = msgspec.json.decode(codec.encode(REQUEST, "m", stream=False).body)
    found: list[Any] = body.get("contents") or body["messages"]
    return found[2:]


def test_openai_is_shown_them_after_the_last_result() -> None:
    told = "Two things:\n[image, image/png: see below]\n[file report.pdf: see below]"
    assert sent(OpenAiCodec(own=True)) == [
        {"role": "tool", "tool_call_id": "c1", "content": told},
        {"role": "tool", "tool_call_id": "c2", "content": "2"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What show shows:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
                {
                    "type": "file",
                    "file": {"filename": "report.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
                },
            ],
        },
        {"role": "assistant", "content": "I see."},
    ]


def test_anthropic_is_shown_them_in_the_result() -> None:
    result = sent(AnthropicCodec())[0]["content"][0]
    assert [part["type"] for part in result["content"]] == ["text", "image", "document"]


def test_gemini_is_shown_them_beside_the_results() -> None:
    parts = sent(GeminiCodec())[0]["parts"]
    assert [next(iter(part)) for part in parts] == [
        "functionResponse",
        "functionResponse",
        "inlineData",
        "inlineData",
    ]


def test_ollama_is_shown_images_and_told_of_files() -> None:
    assert sent(OllamaCodec())[0] == {
        "role": "tool",
        "tool_name": "show",
        "content": "Two things:\n[file report.pdf]",
        "images": ["iVBORw=="],
    }
