"""Chats on the page: in a real browser, against a real server, with another client that plays a part of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
import trio
from support.access_keys import made_key
from support.browser import Browser, Page
from support.fake_models import FakeModels, Reply, Request
from support.page_scripted import Scripted
from support.page_server import PageServer
from trio_websocket import open_websocket_url

Json = Any

ANSWER = 'So **be it**: see [there](https://example.org).\n\n- one\n- two <img src=x onerror="window.pwned=1">\n'
WORDS = "[...document.querySelectorAll('.told .markdown')].map(each => each.textContent)"
LINE = "document.querySelector('[name=line]')"


class Client:
    """A client of the websocket, as another terminal is."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._last = 0

    async def ask(self, method: str, **params: Json) -> Json:
        """The result of a request; what is told meanwhile is passed over."""
        self._last += 1
        frame = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        await self._socket.send_message(json.dumps(frame))
        with trio.fail_after(60):
            while True:
                answer = json.loads(await self._socket.get_message())
                if answer.get("id") == self._last and "method" not in answer:
                    return answer["result"]


@asynccontextmanager
async def client(page_server: PageServer, token: str = "") -> AsyncIterator[Client]:
    address = urlsplit(page_server.page)
    headers = [("authorization", f"Bearer {token or parse_qs(address.fragment)['token'][0]}")]
    async with open_websocket_url(f"ws://{address.netloc}/ws", extra_headers=headers) as socket:
        yield Client(socket)


async def enter(page: Page, text: str) -> None:
    await page.until(f"document.activeElement === {LINE} && !document.querySelector('.entry .primary').disabled")
    await page.type(text)
    await page.press("Enter")


def answer(request: Request) -> Reply:
    last = request.json["messages"][-1]
    if last["role"] == "tool":
        return Reply(text=f"You said {json.loads(last['content'])['answer']}")
    if "colour" in str(last["content"]):
        return Reply(calls=[("user__ask", {"question": "Which colour?", "options": ["red", "green"]})])
    return Reply(text=ANSWER, piece=7)


async def test_a_chat_of_another_client_is_watched_taken_part_in_and_seen_whole_after_a_reload(
    page_server: PageServer, browser: Browser
) -> None:
    page_server.plain("description: x\ninstructions: y\ncan_ask_user: true", name="painter")
    page_server.models.answer_with(answer)
    async with client(page_server) as other, browser.page(page_server.page, 1400, 900) as page:
        await page.until("document.body.dataset.connection === 'open'")
        await page.press("c")
        await page.until("document.querySelector('.empty').textContent.startsWith('No chat is open')")
        opened = await other.ask("_chat/open", agent="painter", keep=True)
        id = opened["chat"]["chat"]
        await other.ask("_chat/line", chat=id, line="said before")
        await page.click(f"tr[data-chat={id}] a")  # which has come by itself
        await page.until(f"{WORDS}.length === 1 && document.querySelector('.exchange[data-status=done]')")
        assert await page.evaluate("document.querySelector('.exchange .prompt').textContent") == "said before"
        items = "[...document.querySelectorAll('.markdown li')].map(each => each.textContent)"
        assert await page.evaluate(items) == ["one", 'two <img src=x onerror="window.pwned=1">']
        assert await page.evaluate("document.querySelector('.markdown a').href") == "https://example.org/"

        await other.ask("_chat/line", chat=id, line="said meanwhile")  # and is seen as it comes
        await page.until("document.querySelectorAll('.exchange[data-status=done]').length === 2")
        await enter(page, ".info")
        await page.until("document.querySelector('.said-by-command[data-kind=text]')?.textContent.includes('painter')")
        await enter(page, "ask me for a colour")
        await page.until("document.querySelector('.questions .choices')")
        await page.press("Tab")  # from the empty line, past `red`
        await page.press("Tab", "Enter")
        await page.until(f"{WORDS}.at(-1) === 'You said green'")
        prompts = "[...document.querySelectorAll('.exchange .prompt')].map(each => each.textContent)"
        said = ["said before", "said meanwhile", "ask me for a colour"]
        assert await page.evaluate(prompts) == said
        assert await page.evaluate("[...document.querySelectorAll('.told .line:not([hidden])')].length") == 1  # `.info`
        await page.until(f"document.activeElement === {LINE}")  # where it was before the question
        await page.press("ArrowUp")
        assert await page.evaluate(f"{LINE}.value") == said[-1]

        await page.reload()
        await page.until(f"{WORDS}.at(-1) === 'You said green'")
        assert await page.evaluate(prompts) == said
        assert await page.evaluate("document.querySelectorAll('.said-by-command').length") == 1
        await page.size(400, 800)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 400
        await other.ask("_chat/close", chat=id)
        await page.until("document.querySelector('.aside')?.textContent.startsWith('This chat was closed')")
        assert await page.evaluate(f"{LINE}.disabled")
        assert await page.evaluate("window.pwned === undefined")
        assert page.problems == []


async def test_a_chat_is_begun_asks_for_a_command_is_interrupted_and_closed(
    page_server: PageServer, browser: Browser
) -> None:
    page_server.models.answer_with(lambda _: Reply(text="never said", hold=trio.Event()))
    async with browser.page(page_server.page, 1400, 900) as page:
        await page.click("a[href='#/chats']")
        await page.click("[name=model]")
        await page.type("fake:model")
        await page.press("Enter")
        await page.until("location.hash.startsWith('#/chat/chat-')")
        await enter(page, "work")
        with trio.fail_after(60):
            await page_server.models.arrived(1)
        await page.until("document.querySelector('.head .badge').dataset.state === 'running'")
        await page.press("Escape")
        await page.until("document.querySelector('.exchange .end')?.textContent.startsWith('Interrupted')")
        await page.until("document.querySelector('.head .badge').dataset.state === 'idle'")
        await enter(page, ".session notes")
        await page.until("document.querySelector('.head .sub').textContent.includes('session notes')")
        await enter(page, ".delete session")
        await page.until("document.querySelector('.question header').textContent.includes('The chat asks')")
        await page.click(".question form > .quiet")
        await page.until("!document.querySelector('.question')")
        await page.click(".head button")
        await page.press("Tab", "Enter")
        await page.until("location.hash === '#/chats' && document.querySelector('.empty p')")
        assert page.problems == []


async def test_after_a_lost_connection_what_was_missed_is_shown_and_nothing_twice(
    nursery: trio.Nursery, browser: Browser
) -> None:
    server = Scripted()
    nursery.start_soon(server.serve)
    info = {"chat": "chat-1", "model": "a:b", "turns": 0, "run": None, "title": "plans", "cost": 0.0}
    told = [{"said": {"chat": "chat-1", "kind": "note", "text": f"n{n}", "seq": n}} for n in (1, 2, 3)]
    server.answers["_server/info"] = {"scopes": ["*"]}
    server.answers["_chat/watch"] = {"chat": info, "told": told[:2]}
    shown = "[...document.querySelectorAll('.said-by-command')].map(each => each.textContent).join()"
    async with browser.page(f"{server.url}", 1400, 900) as page:
        await page.evaluate("location.hash = '#/chat/chat-1'")
        await page.until(f"{shown} === 'n1,n2'")
        await page.type("half a line")
        server.answers["_chat/watch"] = {"chat": info, "told": told[1:]}
        await server.cut()
        await page.until(f"{shown} === 'n1,n2,n3'")
        assert await page.evaluate(f"{LINE}.value") == "half a line"
        afters = [params["after"] for method, params in server.calls if method == "_chat/watch"]
        assert afters == [0, 2]


@pytest.fixture
def tokens(fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Two of alice's, which the configuration of the server has: one that may only read, and one for chats."""
    made = [made_key("alice", "read:runs"), made_key("alice", "read:runs", "write:runs", "run:agents")]
    keys = {"api": {"auth": {"keys": [msgspec.to_builtins(entry) for _, entry in made]}}}
    written = fake_model.config
    monkeypatch.setattr(fake_model, "config", lambda **options: json.dumps(json.loads(written(**options)) | keys))
    return made[0][0], made[1][0]


async def test_a_token_that_may_only_read_reads_along_and_is_told_what_it_lacks(
    tokens: tuple[str, str], page_server: PageServer, browser: Browser
) -> None:
    page_server.models.answer_with(answer)
    address = f"{page_server.page.partition('#')[0]}#token={tokens[0]}"
    async with client(page_server, tokens[1]) as other, browser.page(address) as page:
        await page.evaluate("location.hash = '#/chats'")
        await page.until("document.querySelector('.problem')?.textContent.includes('run:agents')")
        assert await page.evaluate("document.querySelectorAll('.newchat :enabled').length") == 0
        id = (await other.ask("_chat/open", keep=True))["chat"]["chat"]
        await page.click(f"tr[data-chat={id}] a")
        await page.until("document.querySelector('.entry .hint')?.textContent.includes('run:agents and write:runs')")
        await other.ask("_chat/line", chat=id, line="hello")
        await page.until(f"{WORDS}.at(-1)?.startsWith('So be it')")
        assert await page.evaluate(f"{LINE}.disabled && document.querySelector('.entry .primary').disabled")
        assert await page.evaluate("document.querySelector('.head button').hidden")
        assert page.problems == []
