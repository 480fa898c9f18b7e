"""Prompts: execution as a run of the hub, and the events that clients get.

`ask` starts a turn and waits for its answer. Both steps may be interrupted at any point, and each exit path must leave
the session consistent:

- An exchange that was removed for a retry is put back if the new one adds nothing (`instead`).
- A session file that was created for the prompt is deleted if it is empty.
- The cost of the run is counted once (`RunningPrompt.store_results`).
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.agent import Agent
from ....protocol.control import chat as frames
from ....protocol.control.caller import LOCAL
from ....protocol.control.method_structs import StartRun
from ....protocol.errors import CallboardError, Conflict, ShuttingDown
from ....protocol.mcp.config import split
from ....protocol.requests import Overrides, RunRequest
from ...io.outbox import PeerClosed
from ...io.saved_replies import add_message, store_reply
from ...io.secret_redaction import hidden
from ...runs.files import images_in
from ...runs.loading import NO_HOOKS, RunCallbacks
from ...runs.sessions.summary import compressed, first_words, too_long
from ...runs.target import LoopAgent
from ..control.runs.running import sees
from .chat_storage import ChatStorage, LastPrompt, PromptStart, RemovedExchange, wish

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ....protocol.outcome import Outcome
    from ....protocol.session import Session
    from ....protocol.settings import Settings
    from ...runs.stored_runs import InterruptedRun
    from ..control.sessions import SessionTurn
    from .chat import Chat
    from .command_line import ChatLine


END_WITHIN = 0.4
"""Seconds to write the session when the wait for its turn is interrupted."""

PUT_BACK_WITHIN = 2.0
"""Seconds to put back a removed exchange when no new answer replaces it."""

NAME = "chat"
"""Agent name of a model without an agent."""


def _role_has_tools(chat: Chat) -> bool:
    from ...work.roles import find

    if chat.role is None:
        return False
    try:
        role = find(chat.role, chat.hub.root.config_dir)
    except CallboardError:  # the next prompt reports it
        return False
    return bool(role.tools or role.servers)


def plain_agent(
    settings: Settings, session: Session, *, asks: bool, files: bool, role_has_tools: bool = False
) -> Agent:
    """Return an agent that is a bare model with the configured tools and servers.

    Args:
        session: session whose own tools and servers count as well.
        asks: whether a model with tools may ask the user. A model without tools gets no tool at all, because not every
            model accepts tools.
        files: whether the caller may access this machine's files. The configured tools belong to its user.
        role_has_tools: whether the role names tools or servers of its own.
    """
    calls = settings.calls_functions
    tools = split(settings.enabled_tools) if calls and files else []
    servers = split(settings.enabled_mcp_servers) if calls and files and settings.mcp_server_support else []
    return Agent(
        name=NAME,
        global_tools=tuple(tools),
        mcp_servers=tuple(servers),
        can_ask_user=calls
        and asks
        and bool(tools or servers or session.enabled_tools or session.enabled_mcp_servers or role_has_tools),
        inject_user_instructions=False,
    )


async def ask(
    line: ChatLine,
    prompt: LastPrompt,
    place: ChatStorage | None = None,
    *,
    shown: str | None = None,
    start: PromptStart | None = None,
    instead: RemovedExchange | None = None,
) -> Outcome:
    """Execute a prompt and wait for the answer.

    Args:
        place: storage of the exchange, if not the chat's; then it is not the chat's last exchange either.
        shown: title of the run; such a prompt cannot be repeated. By default the prompt is the title.
        start: position of the prompt, if already marked.
        instead: exchange that was removed for this one; put back if this one adds nothing.
    """
    chat, where = line.chat, place or line.chat.place
    before = chat.shell if shown is None else []  # shell output belongs to a prompt of the user only
    text = "\n\n".join([*before, prompt.text]) if before else prompt.text
    start = start or where.mark()
    if place is None and shown is None:
        chat.last_prompt = msgspec.structs.replace(prompt, text=text)
    try:
        await _store(line, where)
        request, hooks = await _request(line, text, prompt, where)
        turn = await where.begin(chat.hub, line.caller, request, hooks, title=shown or "")
    except BaseException:  # cancellation included: a removed exchange must not be lost
        if instead is not None:
            with chat.hub.root.kernel.shield(PUT_BACK_WITHIN):
                await where.put_back(chat.hub, line.caller, *instead)
        with chat.hub.root.kernel.shield(PUT_BACK_WITHIN):
            await _discard_empty(chat, line.caller, where)
        raise
    chat.shell = chat.shell[len(before) :]
    start.run = turn.info.run
    # Compared after the turn: a different number means that messages were summarised and positions are invalid.
    stored = len(where.session.compressed_messages)
    return await _followed(line, RunningPrompt(chat, line.caller, prompt, where, start, turn, stored, instead))


async def _store(line: ChatLine, where: ChatStorage) -> None:
    """Create a session file for the conversation outside of sessions, if the chat is stored."""
    chat = line.chat
    if not chat.stores or where is not chat.memory or where.kept:
        return
    if wish(where.session, chat.settings) is False or chat.settings.dry_run:
        return
    await where.store(chat.hub, line.caller, about_chat(chat))


def about_chat(chat: Chat) -> dict[str, str]:
    """Return the keys of a session file that describe its chat: working directory, and agent as named by the user."""
    return {"cwd": str(Path.cwd()), **({"target": chat.agent} if chat.agent is not None else {})}


async def _discard_empty(chat: Chat, caller: Caller, where: ChatStorage) -> None:
    """Delete the session file that was created for a first prompt without any result."""
    if where.kept and where is chat.memory and where.is_empty:
        with suppress(CallboardError):  # another process holds the session
            await where.discard(chat.hub, caller)


async def resume_turn(line: ChatLine, run: str, prompt: LastPrompt) -> Outcome:
    """Resume a turn of the chat's session that a dead process began, and wait for the answer."""
    chat, where = line.chat, line.chat.place
    line.caller.need("write:runs")
    await where.refresh(chat.hub, line.caller)
    info = await chat.hub.read_run(line.caller, run)
    stored, start = len(where.session.compressed_messages), where.mark()
    turn = await chat.hub.resuming.resume(info)
    assert turn is not None, "the run is a turn of a session"
    chat.last_prompt = prompt
    start.run = run
    return await _followed(line, RunningPrompt(chat, line.caller, prompt, where, start, turn, stored, None))


@dataclass(eq=False)
class RunningPrompt:
    """Prompt whose run has begun.

    Attributes:
        compressed: number of summarised messages in the session at that time.
        instead: as in `ask`.
        charged: whether the chat's cost includes this run.
    """

    chat: Chat
    caller: Caller
    prompt: LastPrompt
    where: ChatStorage
    start: PromptStart
    turn: SessionTurn
    compressed: int
    instead: RemovedExchange | None
    charged: bool = False

    async def store_results(self, answer: str | None = None) -> None:
        """Update the chat with the results of the run once they are stored; call it again after a cancellation."""
        chat, where, turn = self.chat, self.where, self.turn
        if not self.charged:
            self.charged = True
            chat.add_cost(turn.info.cost, priced=turn.info.priced)
        await where.refresh(chat.hub, self.caller)
        await _discard_empty(chat, self.caller, where)
        where.record_messages(self.start, turn.at, len(turn.added))
        shortened = turn.rounded.compressed or len(where.session.compressed_messages) != self.compressed
        if shortened:
            where.starts.clear()
        elif self.instead is not None and not turn.added:
            with chat.hub.root.kernel.shield(PUT_BACK_WITHIN):
                await where.put_back(chat.hub, self.caller, *self.instead)
        chat.reply = answer or where.last_reply
        chat.title = chat.title or first_words(self.prompt.text) or None


async def _followed(line: ChatLine, asking: RunningPrompt) -> Outcome:
    chat, turn, prompt, where = asking.chat, asking.turn, asking.prompt, asking.where
    run = turn.info.run
    chat.begun(run)
    chat.steered = []
    told = frames.Began(chat=chat.id, run=run, prompt=hidden(prompt.text), title=_title(chat))
    chat.backlog.keep(told, ())
    chat.watched("_chat/began", told, but=line.person)
    try:
        if chat.interrupted:  # the interrupt came between the decision to start and `begun`
            chat.hub.cancel(line.caller, run)
        await _notify_began(line, told, turn.over)
        outcome = await chat.hub.wait(line.caller, run)
    except BaseException:  # the requester is gone, or an interrupt coincided with the begin or end of the run
        if chat.goes_on and not chat.interrupted:
            chat.outlive(run, turn.over, asking.store_results)
            raise
        chat.hub.cancel(line.caller, run)
        chat.over()
        if chat.interrupted or asking.instead is not None:
            turn.rounding.cancel()
            with chat.hub.root.kernel.shield(PUT_BACK_WITHIN), suppress(PeerClosed):
                if line.run != run:
                    await _notify_began(line, told, turn.over)
                await turn.over.wait()
                await asking.store_results()
                await _give_back(line, asking)
        raise
    chat.over()
    if chat.interrupted:
        turn.rounding.cancel()
    try:
        await _over(line, turn)
        await asking.store_results(outcome.output)
        await _give_back(line, asking)
    except trio.Cancelled:  # skip the work on the session after the turn
        turn.rounding.cancel()
        with chat.hub.root.kernel.shield(END_WITHIN), suppress(PeerClosed):
            await turn.over.wait()
            await asking.store_results(outcome.output)
            await _give_back(line, asking)
        raise
    line.status = outcome.status
    await _keep(line, prompt.text, chat.reply or "")
    await _round_off(line, turn, where)
    return outcome


async def _over(line: ChatLine, turn: SessionTurn) -> None:
    """Wait until the results of the turn are stored; announces a compression of the session."""
    await turn.shortening.wait()
    try:
        if not turn.over.is_set():
            await announce_shortening(line)
        await turn.over.wait()
    finally:
        line.chat.doing = None


async def announce_shortening(line: ChatLine) -> None:
    """Announce a compression; `Chat.doing` shows it until it is reset to None."""
    line.chat.doing = "compressing the conversation"
    await line.note("Compressing the session.")
    await line.chat.change(line.person)


def shortened_by(tokens: int, now: int) -> str:
    """Return the note about a compression: the conversation's tokens before and after it."""
    return f"The conversation was compressed from about {tokens:,} tokens to {now:,}; see `.context`."


async def _notify_began(line: ChatLine, told: frames.Began, over: trio.Event) -> None:
    """Notify the user of the run; a client that does not read blocks this no longer than the run."""
    failed: list[PeerClosed] = []
    async with trio.open_nursery() as nursery:

        async def send() -> None:
            try:
                await line.person.began(told)
            except PeerClosed as error:  # collected: the nursery would wrap it into an exception group
                failed.append(error)
            nursery.cancel_scope.cancel()

        nursery.start_soon(send)
        await over.wait()
        nursery.cancel_scope.cancel()
    for error in failed:
        raise error
    line.run = told.run


async def _give_back(line: ChatLine, asking: RunningPrompt) -> None:
    """Report the lines sent to the agent that it had not read before an interrupt."""
    steered, line.chat.steered = line.chat.steered, []
    if len(asking.where.session.compressed_messages) != asking.compressed:
        return  # messages were summarised, so read and unread lines cannot be distinguished
    read = [str(message.get("content")) for message in asking.turn.added if message.get("role") == "user"]
    unread = [text for text in map(hidden, steered) if not any(text in each for each in read)]
    if unread:
        await line.note(
            "The agent ended without reading these messages; send them again if they still apply:\n" + "\n".join(unread)
        )


async def _keep(line: ChatLine, prompt: str, reply: str) -> None:
    """Store the reply for `%%`, which is per machine, and append the exchange to the messages file if `save` is set."""
    chat = line.chat
    if line.caller.subject != LOCAL.subject or not reply:
        return
    saves = chat.settings.other.get("save") is True and chat.session is None
    try:
        await trio.to_thread.run_sync(store_reply, reply, os.environ)
        if saves:
            await trio.to_thread.run_sync(add_message, chat.hub.root.config_dir, _title(chat), prompt, reply)
    except OSError as error:
        await line.warn(f"the answer could not be stored for `%%` and in the messages file: {error}")


async def _round_off(line: ChatLine, turn: SessionTurn, where: ChatStorage) -> None:
    """Report the work on the session after the turn; compress a temporary session here."""
    if turn.error is not None:
        await line.warn(f"the messages of this turn could not be saved in the session: {turn.error}")
    if turn.rounded.autonamed:
        await line.note(f"The session was named '{turn.rounded.autonamed}'.")
    if (rounded := turn.rounded).compressed:
        await line.note(shortened_by(rounded.tokens, rounded.tokens_now))
    if where.temporary and not line.chat.interrupted:
        await _compress(line, where)


async def _compress(line: ChatLine, where: ChatStorage) -> None:
    """Compress a session in memory if it is too long, as `runs.session_run` does for stored ones."""
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
        await line.warn(f"The session could not be compressed, and is unchanged: {error}")
    finally:
        chat.doing = None
    where.starts.clear()


def _title(chat: Chat) -> str:
    return chat.agent or chat.role or chat.model_in_use


async def _request(
    line: ChatLine, text: str, prompt: LastPrompt, where: ChatStorage
) -> tuple[RunRequest, RunCallbacks]:
    chat, caller = line.chat, line.caller
    settings = chat.settings
    if not await where.prepare(chat.hub, caller, settings):
        await line.note("From now on, messages are not saved in the session's file (`save_session` is false).")
    session = where.session
    # `.role NAME TEXT` asks in a session of its own, outside of the agent.
    agent = chat.agent if where is chat.place or where.stored.agent is not None else None
    model = session.model or (None if chat.model_of_files else chat.model)
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
    files_too = caller.has("run:files")
    target = plain_agent(
        settings, session, asks=chat.remembers, files=files_too, role_has_tools=files_too and _role_has_tools(chat)
    )
    return msgspec.structs.replace(request, target=target, default_tools=True), hooks


async def _of_agent(
    chat: Chat, request: RunRequest, hooks: RunCallbacks, where: ChatStorage
) -> tuple[RunRequest, RunCallbacks]:
    """Return the run of an agent; values set since its start override its file."""
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


async def mentioned(line: ChatLine) -> tuple[str, ...]:
    """Return the files mentioned in a prompt (`@path`); none for a caller without access to files."""

    if not line.caller.has("run:files"):
        return ()
    return await trio.to_thread.run_sync(files_in, line.rest, abandon_on_cancel=True)


LOOKS_EVERY = 0.02
"""Seconds between two checks for the agent of a new run, which appears within some hundredths of a second."""


async def steer(line: ChatLine) -> bool:
    """Send a line to the agent that answers; returns False if the run ended before its agent existed.

    A run that has just begun has no agent yet. Lines that are typed ahead wait for it, in order.

    Raises:
        Conflict: the run is of a graph or workflow and has no active agent that can read the line.
    """
    chat, run = line.chat, line.chat.answering
    assert run is not None
    has_agent = chat.loaded is None or isinstance(chat.loaded, LoopAgent)
    while chat.answering == run:
        for actor in chat.hub.actors.tree(line.caller, run):
            if actor.kind == "agent":
                await chat.hub.actors.send(line.caller, actor.path, line.rest)
                if has_agent:  # graphs do not store such lines in the session, so `_give_back` could not check them
                    chat.steered.append(line.rest)
                return True
        if not has_agent:
            break
        await trio.sleep(LOOKS_EVERY)
    else:
        return False
    raise Conflict(f"{run} has no agent that can read this message now. Wait until it finishes, or interrupt it")


_MENTION = re.compile(r"(?<![\w@])@(\"[^\"\n]+\"|[^\s\"'`]+)")
_ENDS = ".,;:!?)]}>"
MOST = 50
MOST_TRIED = 200
"""Maximum number of names to look for; later ones are plain text."""


def files_in(text: str) -> tuple[str, ...]:
    """Return the mentioned files that exist; other words with an @ are plain text."""
    found: dict[str, None] = {}
    tried: set[str] = set()
    for match in _MENTION.finditer(text):
        name = match.group(1).strip('"')
        # First literally, then without punctuation: `see @main.py.` mentions main.py, but a name may end in a dot.
        for each in (name, name.rstrip(_ENDS)):
            if not each or each in tried:
                continue
            tried.add(each)
            if _is_there(each):
                found[each] = None
                break
        if len(found) >= MOST or len(tried) >= MOST_TRIED:
            break
    return tuple(found)


def _is_there(name: str) -> bool:
    try:
        return Path(name).expanduser().exists()
    except (OSError, RuntimeError, ValueError):  # name too long, unknown home directory, or a zero byte
        return False


SHOWN = 60
"""Characters of a prompt in the notice."""


def resumable_turns(line: ChatLine) -> list[InterruptedRun]:
    """Return the interrupted turns of the chat's session that can be resumed, oldest first."""
    place = line.chat.place
    if not place.kept:
        return []
    return [
        run
        for run in line.hub.logs.interrupted.values()
        if run.about is not None
        and run.about.session == place.stored.id
        and not run.why_not
        # Already resumed here, or about to be.
        and run.run not in line.hub.running.live
        and sees(line.caller, run.about.owner)
    ]


def interrupted_notice(line: ChatLine) -> list[str]:
    """Return the notice for a user who opens the session; empty without interrupted turns."""
    found = resumable_turns(line)
    if not found:
        return []
    about = found[-1].about
    words = " ".join(about.prompt.split()) if about is not None else ""
    shown = words if len(words) <= SHOWN else f"{words[: SHOWN - 3]}..."
    return [f"The answer to '{shown}' was interrupted ({found[-1].run}); continue it with `.resume`."]
