"""A prompt as a run of the hub, and what clients hear of it."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.agent import Agent
from ....protocol.control import chat as frames
from ....protocol.control.caller import LOCAL
from ....protocol.control.own import StartRun
from ....protocol.errors import CallboardError, Conflict, ShuttingDown
from ....protocol.mcp.config import split
from ....protocol.requests import Overrides, RunRequest
from ...io.handed_out import hidden
from ...io.last_reply import keep_reply
from ...io.messages_file import add_message
from ...io.outbox import Gone
from ...runs.files import images_in
from ...runs.loading import NO_HOOKS, Hooks
from ...runs.sessions.summary import compressed, first_words, too_long
from ...runs.target import LoopAgent
from .asked import Prompt
from .place import Place, Start, Taken, wish

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ....protocol.outcome import Outcome
    from ....protocol.session import Session
    from ....protocol.settings import Settings
    from ..control.sessions import SessionTurn
    from .chat import Chat
    from .line import Line

END_WITHIN = 0.4
"""Seconds for a session to be written, when the wait for its turn is interrupted."""

PUT_BACK_WITHIN = 2.0
"""Seconds for an answer to be put back, when none comes in its place."""

NAME = "chat"
"""What a model without an agent is called in a chat."""


def model_of(chat: Chat) -> str:
    """The model that answers the next prompt."""
    found = chat.place.session.model or _model_of_files(chat) or chat.model or chat.hub.root.settings.model
    if found:
        return str(found)
    try:
        return chat.hub.root.gateway.choice().model
    except CallboardError:
        return ""


def window_of(chat: Chat, model: str) -> int | None:
    """How many tokens the model takes, where that is known."""
    try:
        return chat.hub.root.gateway.known_window(model) if model else None
    except CallboardError:
        return None


def _model_of_files(chat: Chat) -> str | None:
    """The one that the file of the agent or of the role names, which goes before the chat's."""
    from ...work.roles.files import find

    if chat.loop_agent is not None:
        return chat.loop_agent.agent.model
    if chat.role is None:
        return None
    try:
        return find(chat.role, chat.hub.root.config_dir).model
    except CallboardError:  # a prompt that wants it says so
        return None


def plain_agent(settings: Settings, session: Session, *, asks: bool, files: bool) -> Agent:
    """A model without an agent: with the tools and servers that the settings name.

    Args:
        session: may name others.
        asks: whether a model with tools may ask the person. One without is sent no tools at all: not every model takes
            them.
        files: whether the caller may use this machine's files; what the settings name is its user's own.
    """
    calls = settings.calls_functions
    tools = split(settings.enabled_tools) if calls and files else []
    servers = split(settings.enabled_mcp_servers) if calls and files and settings.mcp_server_support else []
    return Agent(
        name=NAME,
        global_tools=tuple(tools),
        mcp_servers=tuple(servers),
        can_ask_user=calls and asks and bool(tools or servers or session.enabled_tools or session.enabled_mcp_servers),
        inject_user_instructions=False,
    )


async def ask(
    line: Line,
    prompt: Prompt,
    place: Place | None = None,
    *,
    shown: str | None = None,
    start: Start | None = None,
    instead: Taken | None = None,
) -> Outcome:
    """Ask, and wait for the answer.

    Args:
        place: where the question and its answer are kept, if not in the chat's own; then they are not its last, either.
        shown: what the run is called, if not by the prompt, which is then none that could be asked again.
        start: where it begins, if that is marked already.
        instead: the exchange that was taken out for it; it is put back if nothing comes of this one.
    """
    chat, where = line.chat, place or line.chat.place
    before = chat.shell if shown is None else []  # what `!` has written goes with what the person says
    text = "\n\n".join([*before, prompt.text]) if before else prompt.text
    start = start or where.mark()
    if place is None and shown is None:
        chat.asked = msgspec.structs.replace(prompt, text=text)
    try:
        await _store(line, where)
        request, hooks = await _request(line, text, prompt, where)
        turn = await where.begin(chat.hub, line.caller, request, hooks, title=shown or "")
    except BaseException:  # interrupted, too: what was taken out for this answer must not be lost
        if instead is not None:
            with chat.hub.root.kernel.shield(PUT_BACK_WITHIN):
                await where.put_back(chat.hub, line.caller, *instead)
        with chat.hub.root.kernel.shield(PUT_BACK_WITHIN):
            await _discard_empty(chat, line.caller, where)
        raise
    chat.shell = chat.shell[len(before) :]
    start.run = turn.info.run
    stored = len(where.session.compressed_messages)
    return await _followed(line, Asking(chat, line.caller, prompt, where, start, turn, stored, instead))


async def _store(line: Line, where: Place) -> None:
    """Store what is said without a session from now on, if the chat is one that is stored."""
    chat = line.chat
    if not chat.stores or where is not chat.memory or where.kept:
        return
    if wish(where.session, chat.settings) is False or chat.settings.dry_run:
        return
    await where.store(chat.hub, line.caller, about_chat(chat))


def about_chat(chat: Chat) -> dict[str, str]:
    """What the file of a session says of the chat that it is from: its directory, and the agent as it was named."""
    return {"cwd": str(Path.cwd()), **({"target": chat.agent} if chat.agent is not None else {})}


async def _discard_empty(chat: Chat, caller: Caller, where: Place) -> None:
    """Remove the session that was made for a first prompt which has brought nothing."""
    if where.kept and where is chat.memory and where.is_empty:
        with suppress(CallboardError):  # another process has it meanwhile
            await where.discard(chat.hub, caller)


async def go_on(line: Line, run: str, prompt: Prompt) -> Outcome:
    """Go on with a turn of the chat's session that another process has begun, and wait for the answer."""
    chat, where = line.chat, line.chat.place
    line.caller.need("write:runs")
    await where.refresh(chat.hub, line.caller)
    info = await chat.hub.look(line.caller, run)
    stored, start = len(where.session.compressed_messages), where.mark()
    turn = await chat.hub.resuming.resume(info)
    assert turn is not None, "it is a turn of a session"
    chat.asked = prompt
    start.run = run
    return await _followed(line, Asking(chat, line.caller, prompt, where, start, turn, stored, None))


@dataclass(eq=False)
class Asking:
    """A prompt whose run has begun.

    Attributes:
        compressed: how many messages its session had in store then.
        instead: as in `ask`.
        charged: whether the chat's cost has its cost.
    """

    chat: Chat
    caller: Caller
    prompt: Prompt
    where: Place
    start: Start
    turn: SessionTurn
    compressed: int
    instead: Taken | None
    charged: bool = False

    async def settle(self, answer: str | None = None) -> None:
        """Take over what its run has brought; to be called when all of that is kept, and again if it was cancelled."""
        chat, where, turn = self.chat, self.where, self.turn
        if not self.charged:
            self.charged = True
            chat.add_cost(turn.info.cost, priced=turn.info.priced)
        await where.refresh(chat.hub, self.caller)
        await _discard_empty(chat, self.caller, where)
        where.brought(self.start, turn.at, len(turn.added))
        shortened = turn.rounded.compressed or len(where.session.compressed_messages) != self.compressed
        if shortened:
            where.starts.clear()
        elif self.instead is not None and not turn.added:
            with chat.hub.root.kernel.shield(PUT_BACK_WITHIN):
                await where.put_back(chat.hub, self.caller, *self.instead)
        chat.reply = answer or where.last_reply
        chat.title = chat.title or first_words(self.prompt.text) or None


async def _followed(line: Line, asking: Asking) -> Outcome:
    chat, turn, prompt, where = asking.chat, asking.turn, asking.prompt, asking.where
    run = turn.info.run
    chat.begun(run)
    chat.steered = []
    told = frames.Began(chat=chat.id, run=run, prompt=hidden(prompt.text), title=_title(chat))
    chat.told.keep(told, ())
    chat.watched("_chat/began", told, but=line.person)
    try:
        if chat.interrupted:  # in the very moment in which it began
            chat.hub.cancel(line.caller, run)
        await _tell_began(line, told, turn.over)
        outcome = await chat.hub.wait(line.caller, run)
    except BaseException:  # who has asked is gone; or it was interrupted in the moment in which its run began or ended
        if chat.goes_on and not chat.interrupted:
            chat.outlive(run, turn.over, asking.settle)
            raise
        chat.hub.cancel(line.caller, run)
        chat.over()
        if chat.interrupted or asking.instead is not None:
            turn.rounding.cancel()
            with chat.hub.root.kernel.shield(PUT_BACK_WITHIN), suppress(Gone):
                if line.run != run:
                    await _tell_began(line, told, turn.over)
                await turn.over.wait()
                await asking.settle()
                await _give_back(line, asking)
        raise
    chat.over()
    if chat.interrupted:
        turn.rounding.cancel()
    try:
        await _over(line, turn)
        await asking.settle(outcome.output)
        await _give_back(line, asking)
    except trio.Cancelled:  # what is done with the session after its turn is left out
        turn.rounding.cancel()
        with chat.hub.root.kernel.shield(END_WITHIN), suppress(Gone):
            await turn.over.wait()
            await asking.settle(outcome.output)
            await _give_back(line, asking)
        raise
    line.status = outcome.status
    await _keep(line, prompt.text, chat.reply or "")
    await _round_off(line, turn, where)
    return outcome


async def _over(line: Line, turn: SessionTurn) -> None:
    """Wait until all that the turn has brought is stored; while its session is shortened, the chat says so."""
    await turn.shortening.wait()
    try:
        if not turn.over.is_set():
            await announce_shortening(line)
        await turn.over.wait()
    finally:
        line.chat.doing = None


async def announce_shortening(line: Line) -> None:
    """Say that a model is asked for a summary now; `Chat.doing` shows it until it is set to None."""
    line.chat.doing = "shortening the conversation"
    await line.note("Compressing the session.")
    await line.chat.change(line.person)


def shortened_by(tokens: int, now: int) -> str:
    """What to say of a conversation that was shortened."""
    return f"Compressed: about {tokens:,} tokens became {now:,}; `.context` shows what is left."


async def _tell_began(line: Line, told: frames.Began, over: trio.Event) -> None:
    """Tell the person of the line's run; a client that takes nothing does not hold it up when that is over."""
    failed: list[Gone] = []
    async with trio.open_nursery() as nursery:

        async def tell() -> None:
            try:
                await line.person.began(told)
            except Gone as error:  # and not as a group
                failed.append(error)
            nursery.cancel_scope.cancel()

        nursery.start_soon(tell)
        await over.wait()
        nursery.cancel_scope.cancel()
    for error in failed:
        raise error
    line.run = told.run


async def _give_back(line: Line, asking: Asking) -> None:
    """Tell the person which of the lines told to the agent it has not read, since it was interrupted before."""
    steered, line.chat.steered = line.chat.steered, []
    if len(asking.where.session.compressed_messages) != asking.compressed:
        return  # what it has read may stand in a summary
    read = [str(message.get("content")) for message in asking.turn.added if message.get("role") == "user"]
    unread = [text for text in map(hidden, steered) if not any(text in each for each in read)]
    if unread:
        await line.note("The agent has not read this; send it again if it still counts:\n" + "\n".join(unread))


async def _keep(line: Line, prompt: str, reply: str) -> None:
    """For `%%`, which means this machine's last reply, and in the file of messages, if `save` says so."""
    chat = line.chat
    if line.caller.subject != LOCAL.subject or not reply:
        return
    saves = chat.settings.other.get("save") is True and chat.session is None
    try:
        await trio.to_thread.run_sync(keep_reply, reply, os.environ)
        if saves:
            await trio.to_thread.run_sync(add_message, chat.hub.root.config_dir, _title(chat), prompt, reply)
    except OSError as error:
        await line.warn(f"the answer could not be kept: {error}")


async def _round_off(line: Line, turn: SessionTurn, where: Place) -> None:
    """Tell what was done with a session after its turn; one that is in memory is compressed here."""
    if turn.error is not None:
        await line.warn(f"what was said could not be kept: {turn.error}")
    if turn.rounded.autonamed:
        await line.note(f"The session is called '{turn.rounded.autonamed}'.")
    if (rounded := turn.rounded).compressed:
        await line.note(shortened_by(rounded.tokens, rounded.tokens_now))
    if where.temporary and not line.chat.interrupted:
        await _compress(line, where)


async def _compress(line: Line, where: Place) -> None:
    """As the store's sessions are after their turns (`runs.in_session`), where it has become long."""
    chat, agent = line.chat, line.chat.loop_agent
    of_agent = None if agent is None else agent.agent.compression_threshold
    model, payer, before = chat.model_in_use or None, line.caller.subject, where.tokens
    if not await too_long(line.root, where.session, of_agent, model, chat.settings):
        return
    try:
        await announce_shortening(line)
        await compressed(line.root, where.session, where.stored.agent, model, payer=payer)
        await line.note(shortened_by(before, where.tokens))
    except ShuttingDown:
        raise
    except CallboardError as error:
        await line.warn(f"The session could not be compressed, and stays as it is: {error}")
    finally:
        chat.doing = None
    where.starts.clear()


def _title(chat: Chat) -> str:
    return chat.agent or chat.role or chat.model_in_use


async def _request(line: Line, text: str, prompt: Prompt, where: Place) -> tuple[RunRequest, Hooks]:
    chat, caller = line.chat, line.caller
    settings = chat.settings
    if not await where.prepare(chat.hub, caller, settings):
        await line.note("What is said from now on is not kept in the session's file.")
    session = where.session
    agent = chat.agent if where is chat.place or where.stored.agent is not None else None  # `.role NAME TEXT`
    model = session.model or (None if _model_of_files(chat) else chat.model)
    files, images = await trio.to_thread.run_sync(images_in, prompt.files) if prompt.files else ((), ())
    if prompt.files:
        caller.need("run:files")
    wanted = StartRun(
        target=agent or "",
        prompt=text,
        model=model,
        variables=chat.variables if agent is not None else {},
        files=list(files),
        knowledge=[chat.rag] if chat.rag else [],
        **chat.terms,
    )
    request = await chat.hub.request(caller, wanted)
    request = msgspec.structs.replace(request, parts=images)
    hooks = msgspec.structs.replace(NO_HOOKS, settings=settings, told=chat.warned)
    if agent is not None:
        return await _of_agent(chat, request, hooks, where)
    target = plain_agent(settings, session, asks=chat.remembers, files=caller.has("run:files"))
    return msgspec.structs.replace(request, target=target, default_tools=True), hooks


async def _of_agent(chat: Chat, request: RunRequest, hooks: Hooks, where: Place) -> tuple[RunRequest, Hooks]:
    """The run of an agent: what was set since it was begun with goes before its file."""
    loaded = chat.loaded = await chat.hub.root.loader.load(request, hooks)
    session = where.session
    if not isinstance(loaded, LoopAgent):
        return request, hooks
    keys = ("auto_continue", "max_auto_continues", "inject_todo_instructions", "continuation_prompt")
    own = {key: value for key in keys if (value := getattr(session, key)) is not None}
    if session.model is not None and loaded.agent.model is not None:
        request = msgspec.structs.replace(request, overrides=Overrides(sampling={"model": session.model}))
    if own:
        loaded = msgspec.structs.replace(loaded, agent=msgspec.structs.replace(loaded.agent, **own))
        hooks = msgspec.structs.replace(hooks, loaded=loaded)
    return request, hooks


async def mentioned(line: Line) -> tuple[str, ...]:
    """The files that a prompt mentions (`@path`); for a caller who may have none, a mention is text like any other."""
    from .mentions import files_in

    if not line.caller.has("run:files"):
        return ()
    return await trio.to_thread.run_sync(files_in, line.rest, abandon_on_cancel=True)


async def steer(line: Line) -> None:
    """Tell the agent that answers what the person says meanwhile.

    Raises:
        Conflict: no agent is at work that would read it.
    """
    chat, run = line.chat, line.chat.answering
    assert run is not None
    for actor in chat.hub.actors.tree(line.caller, run):
        if actor.kind == "agent":
            await chat.hub.actors.send(line.caller, actor.path, line.rest)
            if chat.loaded is None or isinstance(chat.loaded, LoopAgent):  # what others read stands in no session
                chat.steered.append(line.rest)
            return
    raise Conflict(f"no agent of {run} would read this now; wait for its end, or interrupt it")
