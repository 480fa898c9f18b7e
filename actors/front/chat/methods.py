"""`_chat/*` methods of a connection, and its client as the sender of lines.

    ChatMethods(peer, chats).methods      # like the methods of ACP (`acp.agent`)

A chat ends with the connection that opened it, unless it was opened with `keep`. An actor of each watching connection
sends it the frames. A watcher that falls too many bytes behind (`watcher`) is removed. `_chat/closed` reports this, as
well as the end of the chat.

`_chat/open` puts the chat into an agent, role and session with settings, from the client's request or the preludes of
config.yaml (`opened`). The order of the steps matters. Preludes apply only if the request names none of agent, role and
session. A stored chat or a named agent precedes the default agent. The model is set twice: first for the checks of the
agent, then in the scope that the agent, role or session has created.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.control import chat as frames
from ....protocol.control.errors import Refused, error_for_client
from ....protocol.control.method_structs import Done, Nothing
from ....protocol.decoding import convert
from ....protocol.errors import CallboardError, NotFound, ShuttingDown, UsageError
from ....protocol.settings.model import prelude_of
from ...io.outbox import PeerClosed
from ...io.secret_redaction import hidden
from ...runs.sessions.names import as_id
from ..control.hub import Method
from ..control.peer import ControlPeer
from ..control.runs.running import check_owner
from .chat import Chats
from .clients import Given, Watcher
from .command_line import ChatLine, SaidKind
from .commands.agent import begin_agent, begin_default
from .commands.rag import use_rag
from .commands.resume import last_exchange, reopen, stores
from .commands.role import use_prompt, use_role
from .commands.session import enter
from .commands.settings import set_model
from .commands.tools import asks_for_trust
from .completion import completions
from .execution import execute_in_turn, execute_line
from .prompting import interrupted_notice

if TYPE_CHECKING:
    from ....supervisors import Actor
    from .chat import Chat, LineTurn
    from .clients import ClientPort


class ConnectedClient:
    """Client of a connection as the sender of lines: sends frames to it, and requests."""

    def __init__(self, peer: ControlPeer) -> None:
        self.caller = peer.caller
        self._peer = peer

    async def began(self, told: frames.Began) -> None:
        await self._peer.notify("_chat/began", told)

    async def show(self, told: frames.Said) -> None:
        await self._peer.notify("_chat/said", told)

    async def changed(self, told: frames.Changed) -> None:
        await self._peer.notify("_chat/changed", told)

    async def ask(self, asked: frames.AskPerson) -> Given | None:
        """Ask the client; one that does not support the request counts as no answer."""
        answer = await self._requested("_chat/ask", asked, frames.PersonAnswered)
        return None if answer is None else answer.value

    async def edit(self, asked: frames.EditText) -> str | None:
        answer = await self._requested("_chat/edit", asked, frames.Edited)
        return None if answer is None else answer.text

    async def copy(self, asked: frames.CopyText) -> None:
        await self._peer.request("_chat/copy", asked)

    async def _requested(self, method: str, params: msgspec.Struct, kind: type[Any]) -> Any:
        try:
            return convert(await self._peer.request(method, params), kind)
        except (Refused, msgspec.ValidationError):
            # A refusal by the client and a closed connection raise the same error here.
            if self._peer.is_closed:  # a lost connection is not a refusal: end the line without acting on an answer
                raise PeerClosed from None
            return None


class ChatMethods:
    """Methods of one connection.

    Attributes:
        methods: handlers by name.
    """

    def __init__(self, peer: ControlPeer, chats: Chats) -> None:
        self._peer = peer
        self._chats = chats
        self._person = ConnectedClient(peer)
        self._own: set[str] = set()
        self._watching: dict[str, Watcher] = {}
        self._holding = contextlib.ExitStack()
        self._unread = self._holding.enter_context(peer.hub.unread.of(peer.caller.subject))
        peer.me.on_end(lambda _: self._end_connection())
        handlers: dict[str, Callable[[Any], Any]] = {
            "_chat/open": self._open,
            "_chat/list": self._list,
            "_chat/get": self._get,
            "_chat/line": self._line,
            "_chat/interrupt": self._interrupt,
            "_chat/complete": self._complete,
            "_chat/watch": self._watch,
            "_chat/unwatch": self._unwatched,
            "_chat/close": self._close,
        }
        self.methods = {name: self._method(name, handler) for name, handler in handlers.items()}

    @staticmethod
    def _method(name: str, answer: Callable[[Any], Any]) -> Method:
        params, result = frames.METHODS[name]
        return Method(params, result, lambda _, given: answer(given))

    def _of(self, id: str) -> Chat:
        chat, caller = self._chats.open.get(id), self._peer.caller
        is_known = chat is not None and (chat.owner == caller.subject or caller.has("read:runs"))
        if chat is None or not is_known:
            raise NotFound(f"there is no open chat '{id[:60]}'; list the open chats with _chat/list")
        # `NotFound` above hides the chats of others; from here on the caller may know that it exists.
        check_owner(caller, chat.owner, chat.id)
        chat.touched = time.monotonic()
        return chat

    async def _open(self, wanted: frames.OpenChat) -> frames.Opened:
        chat = self._chats.new(self._peer.caller.subject)
        try:
            notes = await opened(chat, self._person, wanted)
        except BaseException:  # cancellation included: the client lacks the id to close it
            self._chats.close(chat)
            raise
        chat.keep = wanted.keep
        if not wanted.keep:
            self._own.add(chat.id)
        said = [frames.Said(chat=chat.id, kind=kind, text=hidden(text)) for kind, text in seen_again(chat)]
        return frames.Opened(chat=chat.info(), notes=notes, said=said, trust=asks_for_trust(self._peer.caller))

    def _list(self, _: Nothing) -> frames.ChatList:
        return frames.ChatList(chats=[chat.info() for chat in self._chats.seen_by(self._peer.caller)])

    def _get(self, of: frames.OfChat) -> frames.OneChat:
        return frames.OneChat(chat=self._of(of.chat).info())

    def _line(self, sent: frames.SendLine) -> Coroutine[Any, Any, frames.LineDone]:
        chat = self._of(sent.chat)
        # `join` runs synchronously in the order of the frames; the coroutine may start in any order.
        return self._play(chat, sent.line, chat.order.join())

    async def _play(self, chat: Chat, text: str, turn: LineTurn) -> frames.LineDone:
        done = await execute_in_turn(chat, text, self._person, turn)
        if done.leave:
            self._end(chat)
        return done

    def _interrupt(self, of: frames.OfChat) -> frames.Interrupted:
        return frames.Interrupted(interrupted=self._of(of.chat).interrupt())

    async def _complete(self, typed: frames.Complete) -> frames.Completions:
        chat = self._of(typed.chat)
        found = await trio.to_thread.run_sync(completions, chat, self._peer.caller, typed.line)
        return frames.Completions(items=found)

    def _watch(self, wanted: frames.WatchChat) -> frames.WatchingChat:
        chat = self._of(wanted.chat)
        # A second `_chat/watch` only reads the backlog again.
        if chat.id not in self._watching:
            watcher = self._watching[chat.id] = Watcher(self._unread)

            def send(frame: bytes) -> None:
                if not watcher.put(frame):
                    self._unwatch(chat.id)

            # Before the backlog is read below, without a checkpoint between: no output is lost or sent twice.
            chat.watchers[self._person] = send
            chat.on_close[self._person] = lambda: self._unwatch(chat.id)
            with contextlib.suppress(ShuttingDown):
                self._peer.me.spawn(self._notify, chat.id, watcher, name=f"watch-{chat.id}", link=False)
        told = [] if wanted.after is None else chat.backlog.after(wanted.after, self._peer.caller.has)
        return frames.WatchingChat(chat=chat.info(), told=told)

    async def _notify(self, _: Actor, id: str, watcher: Watcher) -> None:
        try:
            with contextlib.suppress(PeerClosed):
                async for frame in watcher:
                    await self._peer.send(frame)
                # A client that unsubscribed gets no `_chat/closed`.
                if not watcher.left:
                    await self._peer.notify("_chat/closed", frames.ChatClosed(chat=id, lagged=watcher.lagged))
        finally:
            watcher.drop()

    def _unwatch(self, id: str) -> None:
        watcher = self._watching.pop(id, None)
        if watcher is not None:
            watcher.end()
        chat = self._chats.open.get(id)
        if chat is not None:
            chat.watchers.pop(self._person, None)
            chat.on_close.pop(self._person, None)

    def _unwatched(self, of: frames.OfChat) -> Done:
        watcher = self._watching.get(of.chat)
        if watcher is not None:
            watcher.leave()
            self._unwatch(of.chat)
        return Done()

    def _close(self, of: frames.OfChat) -> Done:
        self._end(self._of(of.chat))
        return Done()

    def _end(self, chat: Chat) -> None:
        self._own.discard(chat.id)
        self._unwatch(chat.id)
        self._chats.close(chat)

    def _end_connection(self) -> None:
        """Close the chats and watchers of a connection that has ended."""
        # A copy, because `_unwatch` removes the entries.
        for id, watcher in list(self._watching.items()):
            watcher.drop()
            self._unwatch(id)
        for id in self._own:
            chat = self._chats.open.get(id)
            if chat is not None:
                with contextlib.suppress(CallboardError):
                    self._chats.close(chat)
        self._own.clear()
        self._holding.close()


async def opened(chat: Chat, person: ClientPort, wanted: frames.OpenChat) -> list[str]:
    """Prepare a new chat as requested; returns the notices for the user.

    Raises:
        CallboardError: a part of the request cannot be satisfied.
    """
    line = ChatLine(chat, person, "")
    notes = [str(problem) for problem in chat.hub.root.problems]
    chat.warned.update(notes)
    role, session = wanted.role, wanted.session
    named = (role, wanted.role_prompt, session, wanted.agent)
    if wanted.preludes and all(each is None for each in named):
        notes += await _with_prelude(line)
    if role is not None and wanted.role_prompt is not None:
        raise UsageError(f"a chat can start with a role ('{role}') or with the prompt of a role, not with both")
    if wanted.model is not None:
        await set_model(line, wanted.model)
    chat.stores = wanted.store and stores(chat, person.caller)
    if wanted.reopen is not None and await reopen(line, wanted.reopen):
        pass
    elif wanted.agent is not None:
        if role is not None or wanted.role_prompt is not None:
            raise UsageError(f"a role can't be used together with an agent, and this chat uses '{wanted.agent}'")
        await begin_agent(line, wanted.agent, session, wanted.variables)
    elif (first := await _by_default(line, wanted)) is not None:
        notes = [*first, *notes]
    elif session is not None:
        await enter(line, session, asks=False)
    if role is not None and (chat.session is None or chat.session.is_empty):
        await use_role(line, role)
    if wanted.role_prompt is not None:
        await use_prompt(line, wanted.role_prompt)
    # Again: the first call set the chat's model, which a session, role or agent overrides.
    if wanted.model is not None and chat.scoped:
        await set_model(line, wanted.model)
    if wanted.empty_session and chat.session is not None:
        await chat.session.empty(chat.hub, person.caller)
    if wanted.save_session is not None and chat.session is not None:
        # A choice for this chat only: the session's file keeps its own setting.
        if wanted.save_session is False and chat.session.kept:
            chat.session = chat.session.apart()
        async with chat.session.change(chat.hub, person.caller) as changed:
            changed.save_session = wanted.save_session
    if wanted.rag is not None:
        await use_rag(line, wanted.rag)
    if wanted.files or wanted.attach:
        person.caller.need("run:files")
        chat.pending_files = (*wanted.files, *wanted.attach)
    if wanted.macro is not None:
        person.caller.need("write:runs")
        await execute_line(chat, f".macro {shlex.join([wanted.macro, *wanted.macro_arguments])}", person)
    gateway = chat.hub.root.gateway
    # Only for the automatic choice: a model that the user names has its own error.
    if chat.agent is None and chat.model_in_use == gateway.choice().model and (missing := gateway.lacks_model()):
        notes.append(missing)
    return [*notes, *interrupted_notice(line)]


def seen_again(chat: Chat) -> list[tuple[SaidKind, str]]:
    """Return counts, last prompt and answer for a user who reopens a session; empty if the chat is not stored."""
    return last_exchange(chat) if chat.stores else []


async def _by_default(line: ChatLine, wanted: frames.OpenChat) -> list[str] | None:
    """Begin in the default agent if it applies; returns the first lines of the screen, else None."""
    chat, session = line.chat, wanted.session
    named = wanted.role or wanted.role_prompt or wanted.macro or chat.has_role or chat.session is not None
    if not wanted.default_agent or named:
        return None
    # A session given by its id, or one outside of agents, must not be opened within the default agent.
    if session and (as_id(session) is not None or await _is_agentless(line, session)):
        return None
    first = await begin_default(line, session, wanted.variables)
    if first is not None and session is not None and not chat.in_default_agent:
        await enter(line, session, asks=False)
    return first


async def _is_agentless(line: ChatLine, session: str) -> bool:
    """Return True if a session of this name exists outside of agents."""
    try:
        await line.root.sessions.get(line.caller, session, agent=None)
    except NotFound:
        return False
    return True


async def _with_prelude(line: ChatLine) -> list[str]:
    """Apply `repl_prelude`; an error in it is returned as a notice and does not prevent the chat."""
    chat = line.chat
    try:
        prelude = prelude_of(chat.hub.root.settings, "repl_prelude")
        if prelude.session is not None:
            await enter(line, prelude.session, asks=False)
        if prelude.role is not None and (chat.session is None or chat.session.is_empty):
            await use_role(line, prelude.role)
    except CallboardError as error:
        return [f"`repl_prelude`: {error_for_client(line.caller, error)}"]
    return []
