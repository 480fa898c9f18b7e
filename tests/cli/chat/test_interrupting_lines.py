"""An interrupt is for the lines that were entered before it, wherever they are by then; the server is scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from support.chat_screen import ScriptedScreen

from callboard.cli.chat.client import ChatClient
from callboard.cli.chat.conversation import ChatConversation
from callboard.cli.chat.display import Display
from callboard.cli.chat.screen.threaded import WaitingHandler
from callboard.cli.render.answer import AnswerStyle
from callboard.protocol.jsonrpc import encode_result

CHAT = {"chat": "chat-1", "model": "fake:model"}
QUICK = {
    "_chat/get": {"chat": CHAT},
    "_chat/watch": {"chat": CHAT},
    "_question/list": {"questions": []},
    "_question/subscribe": {"subscription": "s1"},
}
"""What is answered at once."""


class Server:
    """Takes in frames; what is asked is answered when the test says so, but for `QUICK`."""

    def __init__(self) -> None:
        self.client: ChatClient
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._ids: list[Any] = []

    def take(self, frame: bytes) -> None:
        request = json.loads(frame)
        if request["method"] in QUICK:
            self._tell(request["id"], QUICK[request["method"]])
            return
        self.asked.append((request["method"].removeprefix("_chat/"), request["params"]))
        self._ids.append(request["id"])

    def answer(self, at: int, result: Any) -> None:
        """Answers what was asked as number `at`."""
        self._tell(self._ids[at], result)

    def _tell(self, id: Any, result: Any) -> None:
        asyncio.get_running_loop().call_soon(self.client.receive, encode_result(id, result))

    @property
    def heard(self) -> list[str]:
        """The lines and interrupts that have come, in order."""
        return [params.get("line", method) for method, params in self.asked if method in ("line", "interrupt")]


class Talk:
    """A conversation on a screen; it opens when the body says so (`open`)."""

    def __init__(self) -> None:
        self.scripted_screen = ScriptedScreen()
        self.server = Server()

    def play(self, body: Callable[[], Awaitable[None]], *, begins: bool = True) -> None:
        async def play() -> None:
            if begins:
                self.begin()
            await body()

        self.scripted_screen.play(play)

    def begin(self) -> None:
        """The conversation is there, and leads the screen from now on."""
        look = AnswerStyle()
        display = Display(look, streams=True, coloured=False)
        self.server.client = client = ChatClient(self.server.take)
        self.conversation = ChatConversation(client, self.scripted_screen.screen, display, {})
        self.conversation.configure({}, display, lambda _: look)
        self.conversation.begin()

    async def open(self) -> None:
        await self.scripted_screen.until(lambda: self.server.asked)
        self.server.answer(0, {"chat": CHAT, "notes": []})
        await self.scripted_screen.until(lambda: ".help lists commands" in self.scripted_screen.display)

    async def press(self, keys: str, *heard: str) -> None:
        """Presses keys; then these are all lines and interrupts that have come to the server."""
        await self.scripted_screen.press(keys, lambda: self.server.heard == list(heard))

    async def shows(self, *texts: str) -> None:
        await self.scripted_screen.until(lambda: all(text in self.scripted_screen.display for text in texts))


def test_an_interrupt_right_behind_a_line_finds_it_before_it_is_sent() -> None:
    talk = Talk()

    async def body() -> None:
        await talk.open()
        await talk.press("hello\r\x03again\r", "again")  # all that a terminal has sent at once
        await talk.shows("> hello\n\u25b8 interrupted\nmodel> again")
        assert "To leave" not in talk.scripted_screen.display

    talk.play(body)


def test_an_interrupt_comes_to_the_server_behind_the_line_that_it_is_for() -> None:
    talk = Talk()

    async def body() -> None:
        await talk.open()
        await talk.press("hello\r", "hello")
        await talk.press("\x03", "hello", "interrupt")
        talk.server.answer(2, {"interrupted": True})
        talk.server.answer(1, {"chat": CHAT, "status": "cancelled"})
        await talk.shows("> hello\n\u25b8 interrupted\n")

    talk.play(body)


def test_lines_that_wait_for_the_chat_to_open_are_interrupted_and_never_sent() -> None:
    talk = Talk()

    async def body() -> None:
        await talk.press("one\rtwo\r\x1b")
        await talk.shows("\u25b8 interrupted\n", "\u25b8 interrupted: two\n")
        await talk.press("three\r")
        await talk.open()
        await talk.press("", "three")

    talk.play(body)


def test_what_is_done_before_the_conversation_is_there_is_done_in_order() -> None:
    talk = Talk()

    async def body() -> None:
        screen = talk.scripted_screen.screen
        screen.handler = waiting = WaitingHandler()
        await talk.scripted_screen.press("one\r", lambda: waiting.busy)
        await talk.scripted_screen.press("\x03", lambda: not waiting.busy)
        await talk.scripted_screen.press("two\r", lambda: waiting.busy)
        talk.begin()
        waiting.hand_over(talk.conversation)
        await talk.shows("> one\n\u25b8 interrupted\n> two")
        await talk.open()
        await talk.press("", "two")

    talk.play(body, begins=False)


def test_lines_that_wait_for_a_connection_are_interrupted_and_never_sent() -> None:
    talk = Talk()

    async def body() -> None:
        await talk.open()
        talk.conversation.disconnected("the connection is lost")
        await talk.press("one\r\x03two\r")
        await talk.shows("\u25b8 interrupted")
        talk.conversation.connected()
        await talk.press("", "two")

    talk.play(body)


def test_what_became_of_an_interrupt_is_said() -> None:
    talk = Talk()

    async def body() -> None:
        await talk.open()
        await talk.press("hello\r", "hello")
        await talk.press("\x03", "hello", "interrupt")
        talk.server.answer(1, {"chat": CHAT, "run": "run-1", "status": "done"})
        talk.server.answer(2, {"interrupted": False})
        await talk.shows("there was nothing to interrupt")
        await talk.press("and now\r", "hello", "interrupt", "and now")
        talk.conversation._client.lose("the connection is lost")
        talk.conversation.interrupt()
        await talk.shows("not interrupted: the connection is lost")

    talk.play(body)


def test_lines_that_were_interrupted_behind_another_are_named() -> None:
    talk = Talk()

    async def body() -> None:
        await talk.open()
        await talk.press(".compress session\rand then\r", ".compress session", "and then")
        await talk.press("\x03", ".compress session", "and then", "interrupt")
        talk.server.answer(3, {"interrupted": True})
        for at in (1, 2):
            talk.server.answer(at, {"chat": CHAT, "status": "cancelled"})
        await talk.shows("\u25b8 interrupted\n\u25b8 interrupted: and then\n")

    talk.play(body)


def test_ctrl_c_soon_after_an_interrupt_is_for_the_line_that_was_entered_since() -> None:
    talk = Talk()

    async def body() -> None:
        await talk.open()
        await talk.press("one\r", "one")
        await talk.press("\x03", "one", "interrupt")
        talk.server.answer(1, {"chat": CHAT, "status": "cancelled"})
        await talk.press("two\r", "one", "interrupt", "two")
        await talk.press("\x03", "one", "interrupt", "two", "interrupt")
        assert talk.scripted_screen.screen.app.is_running
        await talk.scripted_screen.press("\x03", lambda: not talk.scripted_screen.screen.app.is_running)

    talk.play(body)
