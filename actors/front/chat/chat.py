"""Chat: state of a conversation, and the line that is being executed in it.

    chat = Chat(hub, LOCAL.subject)
    await chat.play("Hello", person)              # a prompt: a run of the hub answers it
    await chat.play(".set temperature 0.2", person)

`playing` executes lines. One line runs at a time (`taken`); later ones wait for it (`come_to_rest`),
in the order of their arrival (`Order`). Commands that only
read state run concurrently with it (`looking`).

`interrupt` cancels all unfinished lines:

- A run is cancelled like any run of the hub. The messages up to then are stored in a form that models accept
  (`work.agent.history`).
- A command is cancelled at its next checkpoint.
- A line that waits for another one never begins.

Lines that arrive after the interrupt wait until these have ended.

The line's task may end before its run: a client disconnects, but the chat was opened with `keep`. Then `outlive` takes
over the run. `busy` is then False, but `run` keeps the id of the run until its end, and the hub does not remove the
chat. `_within` links a macro's own conversation to the chat that started it; state changes of runs propagate along that
link.

`.set` and `.model` change a scope, as in Loki: the session if there is one, else the role or the agent, else the chat.
Values of session, role and agent override values of the chat.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import trio

from ....protocol.control import chat as frames
from ....protocol.errors import CallboardError, Conflict, Saturated
from ....protocol.jsonrpc import encode_notification
from ....protocol.settings import Settings
from ...runs.session_run import agent_of
from ...runs.sessions.roles import name_of, prompt_of
from ...runs.target import LoopAgent
from ..control.runs.running import sees
from ..control.runs.summary import rfc3339
from .chat_storage import ChatStorage, LastPrompt
from .clients import NotificationBacklog
from .options import KEYS, Value, applied, configured_value

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ....supervisors import Actor
    from ...runs.target import Loaded
    from ..control.hub import Hub
    from .clients import ClientPort


class Chat:
    """Conversation of one owner.

    Args:
        hub: hub that executes its runs.
        owner: subject that opened it.
        among: registry of chats that contains it, if any.

    Attributes:
        id: its id.
        hub, owner, among: see the arguments.
        model: model set by `.model` outside of session, role and agent.
        agent: name of the agent that answers; `loaded` is its definition.
        in_default_agent: whether the agent is the default one, not named by the user; see `default_agent`.
        variables: variables of the agent.
        rag: knowledge base that is searched for each prompt.
        memory: messages of the conversation outside of sessions.
        session: current session, if any.
        own: values set by `.set` for the chat, by key.
        last_prompt: last prompt of the user, for `.retry` and `.regenerate`.
        reply: last answer.
        run: run under way.
        last_run: last run that began.
        attached: run of another caller that `.attach` shows as if it answered here.
        cost: cost of all its runs in USD, as far as prices are known; `priced` is false once a price was missing.
        shell: output of `!` lines for the next prompt.
        pending_files: files attached to the next prompt.
        steered: lines sent to the agent while it works on the current run.
        title: subject of the conversation, from its first prompt.
        doing: description for clients of work between runs.
        on_close: callbacks for the end of the chat, by watcher.
        order: queue of lines.
        closed: whether it has ended; a closed chat executes no lines.
        keep: whether the chat and its run outlive the connection that opened it.
        started: time of opening.
        touched: time of the last client request or end of a run, by `time.monotonic`.
        watchers: functions that send frames to the clients that watch, by client.
        backlog: output of events for late subscribers.
        warned: file problems already reported to the user; runs do not report them again.
        terms: limits and approvals for all its runs, as in `StartRun`.
        remembers: whether the conversation outside of sessions has a memory. A macro's own conversation has none: each
            of its prompts is independent, as in Loki.
        stores: whether the conversation outside of sessions is stored, so that the chat can be reopened.
    """

    def __init__(self, hub: Hub, owner: str, among: Chats | None = None) -> None:
        self.id = f"chat-{secrets.token_hex(4)}"
        self.hub: Hub = hub
        self.owner = owner
        self.among = among
        self.model: str | None = None
        self.agent: str | None = None
        self.loaded: Loaded | None = None
        self.in_default_agent = False
        self.variables: dict[str, str] = {}
        self.rag: str | None = None
        self.memory = ChatStorage.in_memory()
        self.session: ChatStorage | None = None
        self.own: dict[str, Any] = {}
        self.last_prompt: LastPrompt | None = None
        self.reply: str | None = None
        self.run: str | None = None
        self.last_run: str | None = None
        self.attached: str | None = None
        self.cost = 0.0
        self.priced = True
        self.shell: list[str] = []
        self.pending_files: tuple[str, ...] = ()
        self.steered: list[str] = []
        self.title: str | None = None
        self.doing: str | None = None
        self.watchers: dict[ClientPort, Callable[[bytes], None]] = {}
        self.backlog = NotificationBacklog()
        self.warned: set[str] = set()
        self._scope: trio.CancelScope | None = None
        self._caller: Caller | None = None
        self.terms: dict[str, Any] = {}
        self.remembers = True
        self.stores = False
        self._interrupted = False
        self._moved = trio.lowlevel.ParkingLot()
        self._parked = 0
        self._looking: set[trio.CancelScope] = set()
        self.on_close: dict[object, Callable[[], None]] = {}
        self.order = Order()
        self.closed = False
        self.keep = False
        self.touched = time.monotonic()
        self.started = rfc3339(datetime.now(UTC))
        self._within: Chat | None = None

    # --- state ------------------------------------------------------------------------------------------------

    @property
    def place(self) -> ChatStorage:
        """Storage of the current conversation: the session, else the memory."""
        return self.session or self.memory

    @property
    def role(self) -> str | None:
        """Name of the current role; None without a named role, and in an agent."""
        return name_of(self.place.session) if self.agent is None else None

    @property
    def role_prompt(self) -> str | None:
        """Text of a role without a name (`.prompt`); None if there is none, and in an agent."""
        return prompt_of(self.place.session) if self.agent is None else None

    @property
    def has_role(self) -> bool:
        """True if a role is active, with or without a name."""
        return self.role is not None or self.role_prompt is not None

    @property
    def scoped(self) -> bool:
        """True if settings apply to a session, role or agent rather than to the chat."""
        return self.session is not None or self.agent is not None or self.has_role

    @property
    def settings(self) -> Settings:
        """Settings of the root, overridden by the values that `.set` has stored for the chat (`own`)."""
        return applied(self.hub.root.settings, self.own)

    @property
    def busy(self) -> bool:
        """True during a block of `taken`. A command in `looking`, and a run that outlives its line, do not count."""
        return self._scope is not None

    @property
    def answering(self) -> str | None:
        """Run that receives further prompts: the run under way, else the attached one; None after an interrupt, even
        before the run has ended.
        """
        return None if self._interrupted else self.run or self.attached

    @property
    def model_in_use(self) -> str:
        """Model for the next prompt; "" if none is configured.

        The first that is set: of the session, of the agent's or role's file, of the chat, of config.yaml, of a usable
        client.
        """
        found = self.place.session.model or self.model_of_files or self.model or self.hub.root.settings.model
        if found:
            return str(found)
        try:
            return self.hub.root.gateway.choice().model
        except CallboardError:
            return ""

    @property
    def model_of_files(self) -> str | None:
        """Model named in the file of the agent or role, which overrides the chat's; None if the file names none."""
        from ...work.roles import find

        if self.loop_agent is not None:
            return self.loop_agent.agent.model
        if self.role is None:
            return None
        try:
            return find(self.role, self.hub.root.config_dir).model
        except CallboardError:  # the next prompt reports it
            return None

    def window_of(self, model: str) -> int | None:
        """Return the context window of a model in tokens; None if unknown."""
        try:
            return self.hub.root.gateway.known_window(model) if model else None
        except CallboardError:
            return None

    def value_of(self, key: str) -> Value:
        """Return the effective value of a key of `.set`: that of the conversation, else of the settings; None without
        either.
        """
        if KEYS[key].session:
            value: Value = getattr(self.place.session, key)
            if value is not None:
                return value
        return configured_value(self.settings, key)

    def current_values(self) -> dict[str, Value]:
        """Return every key of `.set` that has a value."""
        return {key: value for key in KEYS if (value := self.value_of(key)) is not None}

    @property
    def subject(self) -> str | None:
        """Title of the session, else of the chat; None without either."""
        return (self.session.session.title if self.session is not None else None) or self.title

    def info(self) -> frames.ChatInfo:
        """Return the state of the chat for clients."""
        model, place = self.model_in_use, self.place
        tokens, window = place.tokens if place.turns else None, self.window_of(model)
        return frames.ChatInfo(
            chat=self.id,
            model=model,
            agent=self.agent,
            role=self.role,
            role_prompt=self.role_prompt is not None,
            session=None if self.session is None else self.session.name,
            session_id=self.place.stored.id if self.place.kept else None,
            rag=self.rag,
            turns=place.turns,
            tokens=tokens,
            window=window,
            percent=round(100 * tokens / window) if tokens and window else None,
            cost=self.cost,
            priced=self.priced,
            settings=self.current_values(),
            run=self.run,
            title=self.subject,
            doing=self.doing,
            started=self.started,
        )

    def watched(self, method: str, told: Any, *, but: object = None, scopes: tuple[str, ...] = ()) -> None:
        """Send a notification to all watchers with these scopes, except to `but`, the sender, which gets it directly.

        The frame is encoded once for all of them.
        """
        # A copy: a watcher that falls behind removes itself while it is called.
        watchers = list(self.watchers.items())
        sends = [send for who, send in watchers if who is not but and all(map(who.caller.has, scopes))]
        if sends:
            frame = encode_notification(method, told)
            for send in sends:
                send(frame)

    async def change(self, person: ClientPort) -> None:
        """Send the current state to the sender and to all watchers."""
        told = frames.Changed(chat=self.info())
        await person.changed(told)
        self.watched("_chat/changed", told, but=person)

    # --- lines ------------------------------------------------------------------------------------------------

    @contextmanager
    def taken(self, caller: Caller) -> Iterator[trio.CancelScope]:
        """Mark this caller's line as the only one executed during the block; yield the scope that an interrupt cancels.

        Raises:
            Conflict: a run is answering, or the chat was closed.
        """
        if self.answering is not None:
            raise Conflict(f"{self.answering} is answering; wait until it has finished, or interrupt it")
        self.check_open()
        self._interrupted, self._caller = False, caller
        with trio.CancelScope() as scope:
            self._scope = scope
            try:
                yield scope
            finally:
                self._scope = None
                if self.run is None:  # a run that outlives the line still needs its caller for a cancellation
                    self._caller = None
                self._moved.unpark_all()

    @contextmanager
    def looking(self) -> Iterator[trio.CancelScope]:
        """Execute a command that only reads state, concurrently with the current line; an interrupt cancels both."""
        with trio.CancelScope() as scope:
            self._looking.add(scope)
            try:
                yield scope
            finally:
                self._looking.discard(scope)

    async def come_to_rest(self) -> None:
        """Wait until no earlier line is being executed, or a run is answering it and can receive the next line.

        A line whose answer is complete may still store or compress messages, and an interrupted one may have a run
        that is ending.
        """
        while (self._scope is not None or self.run is not None) and self.answering is None:
            self._parked += 1
            try:
                await self._moved.park()
            finally:
                self._parked -= 1
        self.check_open()
        await trio.lowlevel.checkpoint_if_cancelled()  # `withdraw` may cancel the scope just after the wake-up

    @property
    def waited_for(self) -> bool:
        """True if a line waits for the current one."""
        return self._parked > 0

    def check_open(self) -> None:
        """Raise `Conflict` if the chat was closed."""
        if self.closed:
            raise Conflict("this chat was closed")

    def close(self) -> None:
        """Close the chat, cancel its lines and its run, and call `on_close`; waiting lines fail with `Conflict`."""
        # Without `keep`, the run that is cancelled below does not outlive its line.
        self.closed, self.keep = True, False
        self._moved.unpark_all()
        # A copy, because the callbacks remove themselves.
        for end in list(self.on_close.values()):
            end()
        self._cancel()

    # --- interrupting -----------------------------------------------------------------------------------------

    @property
    def interrupted(self) -> bool:
        """True if the current line was interrupted."""
        return self._interrupted or (self._within is not None and self._within.interrupted)

    def interrupt(self) -> bool:
        """Cancel the lines that have begun, and withdraw those that wait; return False if there are none.

        Does not wait until they have ended. Messages up to then are stored.
        """
        # Both calls must run, so the result of the first is stored and `or` follows the second.
        begun = self._cancel()
        return self.order.withdraw() or begun

    def _cancel(self) -> bool:
        """Cancel the lines that have begun; returns False if there are none."""
        at_work = self._scope is not None or self.run is not None
        answers = self.run is not None and self._caller is not None and self.hub.cancel(self._caller, self.run)
        self._interrupted = self._interrupted or at_work
        if self._scope is not None and not answers:  # no run to cancel, or it has just ended: cancel the work after it
            self._scope.cancel()
        for scope in self._looking:
            scope.cancel()
        return at_work or bool(self._looking)

    def outlive(self, run: str, over: trio.Event, store_results: Callable[[], Awaitable[None]]) -> None:
        """Take over a run whose client is gone. Does not block.

        A new actor waits for `over` and calls `store_results`. It notifies the watchers unless a later run has begun.
        """

        async def wait(_: Actor) -> None:
            await over.wait()
            with suppress(CallboardError):  # for example, its session was deleted
                await store_results()
            if self.run == run:
                self.outlived()
                self.watched("_chat/changed", frames.Changed(chat=self.info()))

        self.hub.root.kernel.spawn(wait, name="chat-run", link=False)

    def outlived(self) -> None:
        """Forget the run of a client that is gone, because it has ended, and wake the waiting lines."""
        self.run = self._caller = None
        self._moved.unpark_all()
        if self._within is not None:
            self._within.outlived()

    @property
    def goes_on(self) -> bool:
        """True if a run of this chat continues although the client that requested it is gone."""
        return self.keep or (self._within is not None and self._within.goes_on)

    def begun(self, run: str) -> None:
        """Record a run as the last and the answering one, and wake the waiting lines."""
        self.last_run = run
        self.answered_by(run)

    def over(self) -> None:
        """Record the end of the run with its time, and wake the waiting lines."""
        self.touched = time.monotonic()
        self.answered_by(None)

    def answered_by(self, run: str | None) -> None:
        """Set the answering run, None for none, and wake the waiting lines."""
        self.run = run
        self._moved.unpark_all()
        if self._within is not None:
            self._within.answered_by(run)

    @contextmanager
    def attached_to(self, run: str) -> Iterator[None]:
        """Send prompts to this run during the block."""
        self.attached = run
        self._moved.unpark_all()
        try:
            yield
        finally:
            self.attached = None

    def macro_chat(self) -> Chat:
        """Return a new conversation within this chat for a macro, with the same model and settings.

        Clients see it as this chat, and an interrupt of this chat cancels its runs.
        """
        fresh = Chat(self.hub, self.owner)
        # The id of this chat, so that clients see the macro's output in it.
        fresh.id, fresh.model, fresh.own = self.id, self.model, dict(self.own)
        # Shared, not copied: limits, watchers and warnings of the chat apply to its macros.
        fresh.terms, fresh.remembers, fresh._within = self.terms, False, self
        fresh.watchers, fresh.backlog, fresh.started = self.watchers, self.backlog, self.started
        fresh.warned = self.warned
        return fresh

    def add_cost(self, cost: float, *, priced: bool) -> None:
        """Add the cost of a run in USD, for a macro also to its chat; `priced` is False if a price was missing."""
        self.cost += cost
        self.priced = self.priced and priced
        if self._within is not None:
            self._within.add_cost(cost, priced=priced)

    def new_memory(self) -> None:
        """Replace the conversation outside of sessions with an empty one of the same agent, without a role.

        The last prompt and reply are forgotten, too.
        """
        self.memory = ChatStorage.in_memory(None if self.loaded is None else agent_of(self.loaded))
        self.last_prompt = self.reply = None

    def leave_agent(self) -> None:
        """Leave the agent and its session, and forget the conversation outside of sessions."""
        self.session = None
        self.agent, self.loaded, self.variables, self.in_default_agent = None, None, {}, False
        self.new_memory()

    @property
    def loop_agent(self) -> LoopAgent | None:
        """LLM agent in use; None without an agent, or for a graph or workflow."""
        return self.loaded if isinstance(self.loaded, LoopAgent) else None


MOST_CHATS = 1000
MOST_OF_ONE = 100
"""Maximum number of chats of one subject."""

KEPT_FOR = 24 * 3600.0
"""Seconds without a request after which a kept chat may be closed to make room."""


class Chats:
    """Open chats of a hub, by id."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.open: dict[str, Chat] = {}

    def new(self, owner: str) -> Chat:
        """Return a new chat.

        Raises:
            Saturated: too many chats are open, of this owner or in total.
        """
        # First, so that abandoned chats do not count.
        self._close_abandoned()
        own = sum(chat.owner == owner for chat in self.open.values())
        if own >= MOST_OF_ONE:
            raise Saturated(f"{owner} has {own} chats open, the maximum; close one of those that _chat/list returns")
        if len(self.open) >= MOST_CHATS:
            raise Saturated(f"{MOST_CHATS} chats are open, the maximum of this server; close one first")
        chat = Chat(self.hub, owner, self)
        self.open[chat.id] = chat
        return chat

    def seen_by(self, caller: Caller) -> list[Chat]:
        """Return the chats that a caller may see, oldest first; callable from any thread."""
        # A copy, because completion calls this in a worker thread.
        return [chat for chat in list(self.open.values()) if sees(caller, chat.owner)]

    def _close_abandoned(self) -> None:
        """Close kept chats whose clients have been gone for long."""
        last = time.monotonic() - KEPT_FOR
        for chat in [each for each in self.open.values() if each.keep and each.touched < last]:
            if not (chat.busy or chat.run is not None or chat.watchers):
                self.close(chat)

    def close(self, chat: Chat) -> None:
        """Close a chat and cancel its work."""
        if self.open.pop(chat.id, None) is not None:
            chat.close()


class _QueuePlace:
    def __init__(self) -> None:
        self.next = trio.Event()
        self.scope = trio.CancelScope()


class LineTurn:
    """Position of one line in the input queue of a chat.

        turn = order.join()      # synchronously, when the line arrives
        with turn.waiting:       # an interrupt cancels this block until the line has begun
            await turn.come()    # in the line's task: waits until all earlier lines have begun
            turn.leave()         # lets the next line begin; also needed if this one never does

    `__del__` leaves it as well, because a line's task may be cancelled before its first step.

    Attributes:
        waiting: scope that is cancelled when the line is withdrawn before it has begun.
    """

    def __init__(self, places: deque[_QueuePlace]) -> None:
        self._places = places
        self._place = _QueuePlace()
        self.waiting = self._place.scope
        places.append(self._place)
        # No line is before this one, so none would let it begin.
        if len(places) == 1:
            self._place.next.set()

    async def come(self) -> None:
        """Wait until all earlier lines have begun. A checkpoint only if it has to wait or was withdrawn."""
        if self._place.next.is_set():
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await self._place.next.wait()

    def leave(self) -> None:
        """Let the next line begin; idempotent."""
        if self._place in self._places:
            self._places.remove(self._place)
            if self._places:
                self._places[0].next.set()

    def __del__(self) -> None:
        self.leave()


class Order:
    """Input queue: lines that have not begun, executed in the order of their arrival, whichever task runs first."""

    def __init__(self) -> None:
        self._places: deque[_QueuePlace] = deque()

    def join(self) -> LineTurn:
        """Return a place at the end of the queue."""
        return LineTurn(self._places)

    def withdraw(self) -> bool:
        """Cancel all lines that have not begun; returns True if there were any. Later lines are not affected."""
        for place in self._places:
            place.scope.cancel()
        return bool(self._places)
