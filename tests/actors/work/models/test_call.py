"""One request: about how many tokens it takes."""

from __future__ import annotations

from callboard.actors.work.models.call import PICTURE_TOKENS, about_tokens
from callboard.protocol.chat import (
    AssistantTurn,
    ChatRequest,
    FilePart,
    ImagePart,
    TextPart,
    Tool,
    ToolCall,
    ToolTurn,
    UserTurn,
)


def asked(*turns: UserTurn | AssistantTurn | ToolTurn) -> int:
    return about_tokens(ChatRequest(messages=turns))


def test_a_request_takes_a_quarter_of_its_characters_and_what_the_reply_may_have() -> None:
    request = ChatRequest(
        system="s" * 400,
        messages=(UserTurn("u" * 400), AssistantTurn("a" * 400), ToolTurn(call="1", name="t", content="r" * 400)),
        max_tokens=1_000,
    )
    assert about_tokens(request) == 1_400


def test_calls_of_tools_and_the_tools_offered_count_as_they_are_sent() -> None:
    call = ToolCall(id="1", name="t", arguments={"path": "p" * 4_000})
    assert 1_000 < asked(AssistantTurn("", (call,))) < 1_100
    offered = ChatRequest(messages=(), tools=(Tool(name="t", description="d" * 4_000),))
    assert 1_000 < about_tokens(offered) < 1_100


def test_an_image_counts_the_same_however_many_bytes_it_has() -> None:
    small, large = ImagePart(data=b"x"), ImagePart(data=b"x" * 3_000_000)
    assert (
        asked(UserTurn((TextPart("abcd"), small))) == asked(UserTurn((TextPart("abcd"), large))) == 1 + PICTURE_TOKENS
    )
    assert asked(ToolTurn(call="1", name="shot", content=(large, large))) == 2 * PICTURE_TOKENS


def test_a_file_of_text_counts_as_text_and_another_as_a_picture() -> None:
    text = FilePart(name="a.json", data=b"x" * 8_000, media_type="application/json")
    pdf = FilePart(name="a.pdf", data=b"x" * 900_000, media_type="application/pdf")
    assert asked(UserTurn((text,))) == 2_000
    assert asked(UserTurn((pdf,))) == PICTURE_TOKENS
