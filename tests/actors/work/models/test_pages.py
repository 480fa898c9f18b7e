"""A web page where a model's reply should be: told as what it is, and not asked for again."""

from __future__ import annotations

import pytest
from support.fake_models import FakeModels, Reply
from support.gateways import Silent, reaching
from support.messages import has_message, says

from callboard.actors.work.models.client import LOOKED_AT, WebPageFilter
from callboard.protocol.chat import ChatReply, ChatRequest, Delta, UserTurn
from callboard.protocol.errors import ModelError, UpstreamError
from callboard.protocol.settings import ClientSettings, Settings

LOGIN = b"""<!DOCTYPE html><html><head><style>p {}</style><title>
  Sign in &amp; surf</title></head><body><p>Welcome to our hotel</p></body></html>"""
HTML = {"content-type": "text/html; charset=utf-8"}
HELLO = ChatRequest(messages=(UserTurn("hello"),))


def hears(_: Delta) -> None:
    """Asks for a stream by being there."""


async def asked(server: FakeModels, *, streamed: bool, type: str = "openai-compatible") -> ChatReply:
    base = server.openai_base.replace("://", "://user:secret@")
    client = ClientSettings(type=type, name="fake", api_base=base, api_key="sk")
    async with reaching(Settings(model="fake:m", clients=(client,))) as gateway:
        return await gateway.chat(Silent(), HELLO, on_delta=hears if streamed else None)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("type", ["openai-compatible", "claude", "gemini", "ollama"])
async def test_a_login_page_with_status_200_is_told_as_a_page_and_not_asked_for_again(
    fake_model: FakeModels, *, streamed: bool, type: str
) -> None:
    fake_model.answer_with(lambda _: Reply(raw=LOGIN, headers=HTML))
    with pytest.raises(ModelError) as caught:
        await asked(fake_model, streamed=streamed, type=type)
    text = str(caught.value)
    assert not isinstance(caught.value, UpstreamError)
    assert len(fake_model.requests) == 1
    assert has_message(
        text, "work.models.client.WebPageFilter.finish", _head="text/html; charset=utf-8, title 'Sign in & surf'"
    )
    assert f"http://127.0.0.1:{fake_model.port}/" in text
    assert "(HTTP 200)" in text
    assert has_message(text, "work.models.client.WebPageFilter.finish")
    assert "secret" not in text


async def test_a_page_that_does_not_say_that_it_is_html_is_a_page(fake_model: FakeModels) -> None:
    fake_model.answer_with(lambda _: Reply(raw=LOGIN, headers={"content-type": "text/plain"}))
    with pytest.raises(ModelError, match=says("work.models.client.WebPageFilter.finish", _head="text/plain, title…")):
        await asked(fake_model, streamed=True)


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_reply_that_a_server_calls_html_is_a_reply(fake_model: FakeModels, *, streamed: bool) -> None:
    fake_model.script(Reply("hello", headers=HTML))
    assert (await asked(fake_model, streamed=streamed)).text == "hello"


def told(content_type: str, *pieces: bytes) -> tuple[bytes, str]:
    """What is handed on of a body, and the error it ends with."""
    taken: list[bytes] = []
    body = WebPageFilter("m", "http://x", content_type, taken.append)
    try:
        for piece in pieces:
            body(piece)
        body.finish()
    except ModelError as error:
        return b"".join(taken), str(error)
    return b"".join(taken), ""


def test_a_page_that_comes_byte_by_byte_is_told_the_same() -> None:
    whole = told("text/html", LOGIN)
    assert told("text/html", *(LOGIN[i : i + 1] for i in range(len(LOGIN)))) == whole
    assert whole[0] == b""


@pytest.mark.parametrize("content_type", ["text/html", "text/plain", ""])
def test_a_page_that_begins_with_a_byte_order_mark_is_a_page(content_type: str) -> None:
    taken, error = told(content_type, *(b"\xef\xbb\xbf", LOGIN[:3], LOGIN[3:]))
    assert taken == b""
    assert "title 'Sign in & surf'" in error
    assert "begins 'Access denied'" in told(content_type, b"\xef\xbb\xbf<p>Access denied")[1]


def test_a_page_without_a_title_is_told_by_its_first_words() -> None:
    _, error = told("text/html", b"<body><script>var x = 1</script><h1>Access  denied</h1> by the proxy")
    assert "(text/html, begins 'Access denied by the proxy')" in error
    assert "begins 'Please log in first'" in told("text/html", b"Please log in first")[1]
    assert has_message(told("", b"<html>")[1], "work.models.client.WebPageFilter.finish")


def test_a_page_without_end_is_told_as_soon_as_enough_of_it_is_there() -> None:
    taken: list[bytes] = []
    body = WebPageFilter("m", "http://x", "text/html", taken.append)
    for _ in range(LOOKED_AT // 1024 - 1):
        body(b"<p>" + b"x" * 1021)
    with pytest.raises(ModelError, match=r"begins 'x{99}…'"):
        body(b"<p>" + b"x" * 1021)
    assert not taken


@pytest.mark.parametrize(
    "text", [b"", b" \n", b'{"choices": []}', b": ping\n\ndata: {}\n\n", b"\xef\xbb\xbfdata: {}\n\n", b"event: x\n\n"]
)
def test_what_is_no_page_is_handed_on_to_the_last_byte(text: bytes) -> None:
    for content_type in ("text/html", "", "text/plain"):
        assert told(content_type, *(text[i : i + 1] for i in range(len(text)))) == (text, "")
