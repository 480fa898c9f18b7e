"""Chat conversation: sends the user's lines to the server and displays their results.

The server decides the order of lines: which one waits for another, and which one the current run reads
(`actors.front.chat`). `UnsentLines` has the lines that wait for the connection, or for the chat to open. A line is
added in the moment it is entered, so that an interrupt right after it finds it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from ...protocol import jsonrpc
from ...protocol.control import chat, method_structs
from ...protocol.control.chat import ChatInfo
from ...protocol.decoding import decode_json
from ...protocol.errors import CallboardError, NotFound, ServerLost
from ...protocol.version import VERSION
from ..render.answer import AnswerStyle
from ..render.text import one_line
from .bridge import GOODBYE
from .client import ChatClient
from .display import Display, ScreenOutput
from .following import Following
from .prompts import Prompts
from .reconnect import Presence, Reconnect
from .screen.application import ChatScreen
from .server_requests import PersonAsked, QuestionNotice, ServerRequests

_COMPLETE_WITHIN = 30.0
"""Timeout of a completion request in seconds."""


class ChatConversation:
    """Controller of the chat screen.

    Args:
        client: control channel client.
        screen: chat screen.
        opening: parameters of `_chat/open`.
        presence: state of a chat that other clients can see too.

    Attributes:
        failed: error that prevented or ended the chat.
        parting: message to print after the terminal is restored.
    """

    def __init__(
        self,
        client: ChatClient,
        screen: ChatScreen,
        display: Display,
        opening: Mapping[str, Any],
        presence: Presence | None = None,
    ) -> None:
        self._seen = ScreenOutput(screen, display)
        self.failed: CallboardError | None = None
        self.parting = ""
        self._link: Callable[[str], str] | None = None
        self._client = client
        self._screen = screen
        self._presence = presence or Presence()
        self._prompts = Prompts({}, colour=display.coloured)
        self._opened = asyncio.Event()
        self._ready = asyncio.Event()
        self._configured = asyncio.Event()
        self._info: ChatInfo | None = None
        self._here: str | None = None
        self._lines = UnsentLines()
        self._questions = PersonAsked(
            client,
            screen,
            self._seen.print,
            self._seen.show,
            lambda run: run in self._seen.stories,
            coloured=display.coloured,
        )
        self._requested = ServerRequests(screen, self._seen, self._questions)
        self._joining = Reconnect(client, self._presence, self._seen, self._questions, opening)
        self._following = Following(client, self._seen, self._begin, self._take)
        self._joining.replay, self._joining.changed = self._following.replay, self._changed
        self._told: dict[str, tuple[type, Callable[[Any], None]]] = {
            "_chat/began": (chat.Began, self._run_began),
            "_chat/said": (chat.Said, self._print_output),
            "_chat/changed": (chat.Changed, self._chat_changed),
            "_chat/closed": (chat.ChatClosed, self._chat_closed),
            "_run/event": (method_structs.RunEvent, self._following.event),
            "_run/ended": (method_structs.RunEnded, self._following.ended),
            "_run/lagged": (method_structs.RunLagged, self._following.lagged),
            "_question/asked": (QuestionNotice, self._questions.asked),
            "_question/closed": (method_structs.Closed, self._questions.closed),
        }
        self._tasks: set[asyncio.Task[object]] = set()
        self._leaving = self._left = self._closed = False
        self._streams = display.streams
        self._looks: Callable[[object], AnswerStyle] | None = None
        self._highlight: object = None
        self._doing_since = 0.0
        screen.handler = self
        client.notified = self._notified
        client.requested = self._requested.answer

    # --- lifecycle ------------------------------------------------------------------------------------------

    def configure(self, settings: Mapping[str, Any], display: Display, looks: Callable[[object], AnswerStyle]) -> None:
        """Apply the settings.

        Args:
            looks: returns the answer style for a value of `highlight`; None means that of the settings.
        """
        self._seen.display = display
        self._streams = display.streams
        self._looks = looks
        self._requested.editor = str(settings["editor"]) if settings.get("editor") else None
        self._prompts = Prompts(settings, colour=display.coloured)
        self._configured.set()
        if self._info is not None:
            self._changed(self._info)

    def begin(self) -> None:
        """Start to open the chat."""
        self._begin(self._open())

    def served(self, place: str, link: Callable[[str], str]) -> None:
        """Record that this process serves its hub at `place`; the address is printed once the chat is open.

        Args:
            link: returns the line with the page's link for a chat id.
        """
        self._presence.place = place
        self._link = link

    def note(self, text: str) -> None:
        """Print a message of the program above the prompt."""
        self._seen.print(text, "dim")

    async def _open(self) -> None:
        """Open the chat on the server, and subscribe to it and to questions."""
        try:
            opened = await self._joining.open()
            await self._configured.wait()
            place = self._presence.place
            where = f" at {place}" if place else ""
            self._seen.print(
                f"callboard {VERSION}, {opened.chat.model}{where}: .help lists commands, Ctrl-D leaves", "dim"
            )
            if self._link is not None:
                self._seen.print(self._link(opened.chat.chat), "dim")
                elsewhere = f"callboard chat --attach {opened.chat.chat} --url {place}"
                self._seen.print(f"from other terminals: {elsewhere}", "dim")
            for note in opened.notes:
                self._seen.print(note, "dim")
            for said in opened.said:
                self._seen.show_output(said)
            if opened.said:
                self._seen.show([""])
            self._changed(opened.chat)
            if place:
                await self._joining.watch(opened.chat.chat)
            await self._joining.hear_questions()
        except CallboardError as error:
            self._fail(error)
            return
        if opened.trust:
            # The workspace trust question must precede the lines that the user typed while the chat was opening.
            self._begin(self._send_now(self._lines.add(".trust", first=True)))
            await asyncio.sleep(0)  # let it send before the lines that wait for the chat to open
        self._opened.set()
        self._ready.set()

    def _fail(self, error: CallboardError) -> None:
        self.failed = error
        self._screen.leave(error.exit_code)

    # --- connection ------------------------------------------------------------------------------------------

    def disconnected(self, why: str) -> None:
        """Fail pending requests and stop the replay, because the connection is lost for the reason `why`.

        Lines that are typed now wait for the next connection.
        """
        self._client.lose(why)
        self._following.lose()
        if self._opened.is_set() and not self._left:
            self._ready.clear()
            self._seen.print(f"{why}; reconnecting, your input is sent afterwards", "warning")

    def connected(self) -> None:
        """Begin to replay missed messages over a restored connection, if the chat was open."""
        self._client.regain()
        if self._opened.is_set():
            self._begin(self._resume())

    async def _resume(self) -> None:
        """Replay missed messages, each once. If the server does not know the chat any more, open a similar one."""
        assert self._info is not None
        try:
            try:
                await self._joining.watch(self._info.chat)
            except CallboardError as error:
                if error.code != NotFound.code or self._presence.attach is not None:
                    raise
                self._here = None
                await self._joining.open_again(self._info)
            else:
                self._seen.print("connected again", "dim")
            await self._joining.hear_questions()
        except ServerLost:
            return  # lost again; the next connection retries
        except CallboardError as error:
            self._fail(error)
            return
        for line in self._presence.take_unanswered():
            self._seen.print(f"not answered, and possibly not received: {one_line(line, 200)}", "warning")
        self._ready.set()

    def farewell(self) -> bytes | None:
        """Return the last request, which closes a chat opened here, or None for one that remains open."""
        if self._info is None or self._presence.attach is not None or not self._presence.place:
            return None
        return jsonrpc.encode_request(GOODBYE, "_chat/close", {"chat": self._info.chat})

    # --- input ----------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """True while lines are pending or a run works."""
        return bool(self._lines) or self._seen.at_work

    def entered(self, shown: str, text: str) -> None:
        """Echo a line as `shown`, and send `text` once the chat is open and connected. Does not block."""
        self._seen.write_line(shown)
        self._begin(self._send(self._lines.add(text)))

    async def _send(self, sending: Sending) -> None:
        """Send a line once the chat is ready."""
        await self._opened.wait()
        await self._ready.wait()
        await self._send_now(sending)

    async def _send_now(self, sending: Sending) -> None:
        if not self._lines.send(sending):
            return
        line = self._presence.sends(sending.text)
        try:
            assert self._info is not None
            done = await self._client.ask("_chat/line", chat.LineDone, chat=self._info.chat, line=sending.text)
            if self._is_current(done.chat.chat):
                self._changed(done.chat)
                if done.status == "cancelled" and done.run is None:  # a cancelled run shows its own end
                    self._show_interrupted(sending)
                if done.steered:
                    self._seen.print("the agent reads this before its next request", "dim")
                if done.leave:
                    self._left = True
                    self._screen.leave()
                if done.attach is not None:
                    await self._go_over(done.chat.chat, done.attach)
        except ServerLost:
            self._presence.unanswered(line)
        except CallboardError as error:
            self._seen.print(str(error), "error")
        finally:
            self._presence.answered(line)
            self._lines.end(sending)
            self._end_if_closed()
            self._screen.wake()

    async def _go_over(self, left: str, id: str) -> None:
        """Switch the terminal to another chat; the previous one stays open."""
        self._ready.clear()  # lines typed meanwhile are for the other chat
        try:
            there = (await self._client.ask("_chat/get", chat.OneChat, chat=id)).chat
        except CallboardError as error:
            if error.code != ServerLost.code:  # otherwise `connected` sets it
                self._ready.set()
            raise
        with suppress(CallboardError):  # a lost server or another version: its late messages are ignored
            await self._following.leave()
            await self._joining.leave(left)
        self._presence.go_over(id)
        self._lines.go_over()
        self._closed = False
        self._seen.print(f"now in {id}, {there.model}; to go back: `.attach {left}`", "dim")
        self._changed(there)
        try:
            await self._joining.watch(id)
            await self._joining.hear_questions()
        except ServerLost:
            raise
        except CallboardError as error:
            self._fail(error)
            return
        self._ready.set()

    def _is_current(self, id: str) -> bool:
        """Return True for the current chat, False for one that the user has left."""
        return self._here in (None, id)

    def interrupt(self) -> None:
        """Withdraw unsent lines and interrupt the current run."""
        for line in self._lines.withdraw():
            self._show_interrupted(line)
        if self._info is not None and self.busy:
            self._begin(self._interrupt(self._info.chat))

    async def _interrupt(self, id: str) -> None:
        """Interrupt everything that the server has already received, but nothing that is sent later."""
        try:
            done = await self._client.ask("_chat/interrupt", chat.Interrupted, chat=id)
            if not done.interrupted:
                self._seen.print("there was nothing to interrupt", "dim")
        except CallboardError as error:
            self._seen.print(f"not interrupted: {error}", "error")

    def _show_interrupted(self, line: Sending) -> None:
        """Report an interrupted line, with its text if it may not be the one right above."""
        which = f": {one_line(line.text, 200)}" if line.behind else ""
        self._seen.print(f"{self._seen.display.mark} interrupted{which}", "warning")

    def leave(self) -> None:
        """Leave the chat: with `.exit`, which may ask a question, or at once while something works.

        The terminal decides this itself: Ctrl-D must work even if the server does not answer.
        """
        if self.busy or self._leaving or not self._ready.is_set() or self._presence.attach is not None:
            self._left = True
            self._screen.leave()
            return
        self._leaving = True
        self._begin(self._exit())

    async def _exit(self) -> None:
        try:
            await self._send(self._lines.add(".exit"))
        finally:
            self._leaving = False  # the question of `.exit` may be withdrawn, and the chat continues

    def is_command(self, text: str) -> bool:
        """Return True if the text is a command of the chat."""
        from ...actors.front.chat.execution import find_command

        try:
            return text[:1] in (".", "/") and find_command(text) is not None
        except CallboardError:  # looks like a command, but does not exist
            return False

    async def complete(self, text: str) -> list[chat.Completion]:
        """Return completions of the text; empty on an error or timeout."""
        try:
            return await asyncio.wait_for(self._completions(text), _COMPLETE_WITHIN)
        except (CallboardError, TimeoutError):
            return []

    async def _completions(self, text: str) -> list[chat.Completion]:
        await self._ready.wait()  # a key may come before the chat is open, or during a reconnect
        assert self._info is not None
        found = await self._client.ask("_chat/complete", chat.Completions, chat=self._info.chat, line=text)
        return found.items

    async def edited(self, text: str) -> str | None:
        """Open the text in the user's editor."""
        return await self._requested.edited("line.md", text)

    # --- display ---------------------------------------------------------------------------------------------

    def show_thoughts(self) -> None:
        self._seen.show_thoughts()

    def show_call(self) -> None:
        self._seen.show_call()

    def settled(self) -> list[str]:
        return self._seen.settled()

    def rows(self, columns: int, room: int) -> list[str]:
        """Return the live rows; a spinner with the chat's activity if no run has any."""
        rows = self._seen.rows(columns, room)
        if not rows and self._info is not None and self._info.doing:
            seconds = time.monotonic() - self._doing_since
            spinner = self._seen.display.spinner
            row = f"{spinner[int(seconds * 10) % len(spinner)]} {self._info.doing}  {seconds:.0f}s"
            return [self._seen.display.painted(one_line(row, columns), "dim")]
        return rows

    # --- server messages -------------------------------------------------------------------------------------

    def _notified(self, method: str, params: msgspec.Raw) -> None:
        handler = self._told.get(method)
        if handler is not None:
            kind, call = handler
            try:
                told: Any = decode_json(params, kind)
            except msgspec.MsgspecError:
                return  # a message of another protocol version: ignored
            call(told)
            self._screen.wake()

    def _take(self, told: chat.Told) -> None:
        """Display a message of the backlog."""
        if told.began is not None:
            self._run_began(told.began)
        elif told.said is not None:
            self._print_output(told.said)

    def _run_began(self, began: chat.Began) -> None:
        if not self._is_current(began.chat) or self._following.waits(chat.Told(began=began)):
            return
        if not self._presence.is_new(began.seq) or began.run in self._seen.stories:
            return
        if began.seq and not self._presence.is_ours(began.prompt):
            self._seen.write_line(began.prompt)
        self._following.begin(began.run)
        self._questions.began(began.run)
        if self._info is not None:
            self._changed(msgspec.structs.replace(self._info, run=began.run))

    def _print_output(self, said: chat.Said) -> None:
        if not self._is_current(said.chat) or self._following.waits(chat.Told(said=said)):
            return
        if self._presence.is_new(said.seq):
            self._seen.show_output(said)

    def _chat_changed(self, changed: chat.Changed) -> None:
        if self._is_current(changed.chat.chat):
            self._changed(changed.chat)

    def _chat_closed(self, closed: chat.ChatClosed) -> None:
        if self._info is None or closed.chat != self._info.chat:
            return
        if closed.lagged:
            self._begin(self._watch_again(closed.chat))
        else:
            self._closed = True
            self._end_if_closed()

    async def _watch_again(self, id: str) -> None:
        with suppress(CallboardError):  # the end of the chat is reported elsewhere
            await self._joining.watch(id)

    def _end_if_closed(self) -> None:
        """Leave a chat that another client has closed.

        A pending line of this client may have closed it: its answer decides.
        """
        if self._closed and not self._lines and not self._left:
            self._left = True
            self.parting = "this chat was ended by another client"
            self._screen.leave()

    def _changed(self, info: ChatInfo) -> None:
        if info.doing and (self._info is None or self._info.doing != info.doing):
            self._doing_since = time.monotonic()
        self._info, self._here = info, info.chat
        highlight = info.settings.get("highlight")
        if self._looks is not None and highlight != self._highlight:
            self._highlight, self._seen.display.look = highlight, self._looks(highlight)
        self._seen.display.streams = self._streams and info.settings.get("stream") is True
        left, right = self._prompts.of(info)
        self._screen.prompts(left, right)

    def _begin(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Sending:
    """Entered line.

    Attributes:
        text: entered text.
        behind: True if other lines were unfinished at that time.
        is_out: True if it was sent.
    """

    def __init__(self, text: str, *, behind: bool) -> None:
        self.text = text
        self.behind = behind
        self.is_out = False


class UnsentLines:
    """Unfinished lines; true while there are any."""

    def __init__(self) -> None:
        self._lines: list[Sending] = []

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, text: str, *, first: bool = False) -> Sending:
        """Add an entered line. `first`: a line of the program itself, which precedes lines entered so far."""
        line = Sending(text, behind=bool(self._lines) and not first)
        self._lines.insert(0 if first else len(self._lines), line)
        return line

    def send(self, line: Sending) -> bool:
        """Mark a line as sent; return False if it was withdrawn."""
        line.is_out = line in self._lines
        return line.is_out

    def end(self, line: Sending) -> None:
        """Remove a finished line."""
        if line in self._lines:
            self._lines.remove(line)

    def withdraw(self) -> list[Sending]:
        """Withdraw and return the lines that were not sent."""
        waiting = [each for each in self._lines if not each.is_out]
        self._lines = [each for each in self._lines if each.is_out]
        return waiting

    def go_over(self) -> None:
        """Forget sent lines when the user switches to another chat: they belong to the previous one."""
        self._lines = [each for each in self._lines if not each.is_out]
