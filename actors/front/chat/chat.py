"""A chat: its state, and what is at work in it.

    chat = Chat(hub, LOCAL.subject)
    await chat.play("Hello", person)              # a prompt: a run of the hub answers it
    await chat.play(".set temperature 0.2", person)

What becomes of a line is in `playing`; one is at work at a time (`taken`), and others wait for it (`come_to_rest`).

`interrupt` cancels what is under way: a run as if it were cancelled from outside, so that what was said by then is kept
in a form that models take (`work.agent.history`); a command where it waits; a line that waits for another, before it
has begun. Lines that come later wait until all of that has ended.

What `.set` sets has a scope, as in Loki: in a session it is the session's; in a role or an agent it goes with that;
else it is the chat's, which agents, roles and sessions go before. `.model` as well.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import trio

from ....protocol.control import chat as frames
from ....protocol.errors import CallboardError, Conflict
from ....protocol.jsonrpc import encode_notification
from ....protocol.settings import Settings
from ...runs.in_session import agent_of
from ...runs.sessions.roles import name_of, prompt_of
from ...runs.target import LoopAgent
from ..control.runs.summary import rfc3339
from .asked import Prompt
from .order import Order
from .place import Place
from .playing import play, play_in_turn
from .prompting import model_of, window_of
from .setting import applied, shown
from .told import ToldBefore

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ....supervisors import Actor
    from ...runs.target import Loaded
    from ..control.hub import Hub
    from .chats import Chats
    from .line import Line
    from .order import Turn
    from .person import Person


class Chat:
    """See the module.

    Args:
        hub: where its runs are.
        owner: the subject that has opened it.
        among: the chats that it is one of, if it is.

    Attributes:
        id: its own.
        hub, owner, among: as given.
        model: chosen with `.model` outside of session, role and agent.
        agent: whose the prompts are; `loaded` is what its files said when it was begun with.
        in_default_agent: whether nobody has named the agent; see `default_agent`.
        variables: of the agent.
        rag: the knowledge base that prompts are looked up in.
        memory: what was said without a session.
        session: the one that it is in.
        own: what `.set` has set for the chat, by key.
        asked: what was asked last.
        reply: what was answered last.
        run: the run under way; `last_run` the last one.
        attached: the run of others that `.attach` shows, as if it answered here.
        cost: of all its runs, USD; None once one has used a model whose price is not known.
        shell: what `!` lines have written, for the next prompt.
        brought: files that come with the next prompt.
        title: what it is about, by what was asked first.
        doing: work that goes on beside runs, in words for clients.
        on_close: what to do when it is closed, for those who watch.
        order: of the lines that come.
        closed: whether it has ended; then it plays no line any more.
        keep: whether it goes on, with its run, when the connection that has opened it closes.
        started: when it was opened.
        touched: when a client last asked something of it, or a run of it was over, by `time.monotonic`.
        watchers: who is sent the frames that tell what happens, with who they are.
        told: what was told before.
        warned: the problems of files that the person was told of, which its runs do not tell again.
        terms: of all its runs: their limits, and what is allowed without asking, as in `StartRun`.
        remembers: whether it remembers what was said without a session. A macro's own conversation does not: there each
            prompt stands alone, as in Loki.
        stores: whether what is said without a session is stored, to be reopened; see `reopening`.
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
        self.memory = Place.in_memory()
        self.session: Place | None = None
        self.own: dict[str, Any] = {}
        self.asked: Prompt | None = None
        self.reply: str | None = None
        self.run: str | None = None
        self.last_run: str | None = None
        self.attached: str | None = None
        self.cost: float | None = 0.0
        self.shell: list[str] = []
        self.brought: tuple[str, ...] = ()
        self.steered: list[str] = []
        self.title: str | None = None
        self.doing: str | None = None
        self.watchers: dict[Person, Callable[[bytes], None]] = {}
        self.told = ToldBefore()
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

    # --- what it is -------------------------------------------------------------------------------------------

    @property
    def place(self) -> Place:
        """Where what is said lies."""
        return self.session or self.memory

    @property
    def role(self) -> str | None:
        """The role in which the model answers."""
        return name_of(self.place.session) if self.agent is None else None

    @property
    def role_prompt(self) -> str | None:
        """The text that stands for a role."""
        return prompt_of(self.place.session) if self.agent is None else None

    @property
    def has_role(self) -> bool:
        """Whether it is in a role."""
        return self.role is not None or self.role_prompt is not None

    @property
    def scoped(self) -> bool:
        """Whether what is set now goes with a session, a role or an agent."""
        return self.session is not None or self.agent is not None or self.has_role

    @property
    def settings(self) -> Settings:
        """Those of the root, with what the chat has set."""
        return applied(self.hub.root.settings, self.own)

    @property
    def busy(self) -> bool:
        """Whether a line is at work."""
        return self._scope is not None

    @property
    def answering(self) -> str | None:
        """The run that answers, to which prompts are told; none that was interrupted, also while it ends."""
        return None if self._interrupted else self.run or self.attached

    @property
    def model_in_use(self) -> str:
        """The model that answers the next prompt; "" if none is known."""
        return model_of(self)

    @property
    def subject(self) -> str | None:
        """What it is about: as its session is called, else as it began."""
        return (self.session.session.title if self.session is not None else None) or self.title

    def info(self) -> frames.ChatInfo:
        """As clients are told."""
        model, place = self.model_in_use, self.place
        tokens, window = place.tokens if place.turns else None, window_of(self, model)
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
            settings=shown(self),
            run=self.run,
            title=self.subject,
            doing=self.doing,
            started=self.started,
        )

    def watched(self, method: str, told: Any, *, but: object = None, scopes: tuple[str, ...] = ()) -> None:
        """Tell those who watch and have these scopes, except for the sender, whom the line itself tells.

        It is a frame, which is made once for all of them.
        """
        watchers = list(self.watchers.items())
        tells = [tell for who, tell in watchers if who is not but and all(map(who.caller.has, scopes))]
        if tells:
            frame = encode_notification(method, told)
            for tell in tells:
                tell(frame)

    async def change(self, person: Person) -> None:
        """Tell how it is now."""
        told = frames.Changed(chat=self.info())
        await person.changed(told)
        self.watched("_chat/changed", told, but=person)

    # --- lines ------------------------------------------------------------------------------------------------

    async def play_in_turn(self, text: str, person: Person, turn: Turn) -> frames.LineDone:
        """As `play`, once the lines that came before have begun; who only looks waits for none that waits itself."""
        return await play_in_turn(self, text, person, turn)

    async def play(self, text: str, person: Person, *, in_macro: bool = False) -> frames.LineDone:
        """Play one line; returns when all that it has begun is over.

        Args:
            in_macro: whether a macro plays it.

        Raises:
            CallboardError: it can't be played. The chat goes on.
        """
        return await play(self, text, person, in_macro=in_macro)

    @contextmanager
    def taken(self, line: Line) -> Iterator[trio.CancelScope]:
        """This line is at work during the block, and no other beside it.

        Raises:
            Conflict: a run answers, or the chat was closed.
        """
        if self.answering is not None:
            raise Conflict(f"{self.answering} answers; wait for its end, or interrupt it")
        self.check_open()
        self._interrupted, self._caller = False, line.caller
        with trio.CancelScope() as scope:
            self._scope = scope
            line.begun()
            try:
                yield scope
            finally:
                self._scope = None
                if self.run is None:  # else it goes on, see `outlive`
                    self._caller = None
                self._moved.unpark_all()

    @contextmanager
    def looking(self, line: Line) -> Iterator[None]:
        """This line only looks during the block, and is interrupted beside what is at work."""
        line.begun()
        with trio.CancelScope() as scope:
            self._looking.add(scope)
            try:
                yield
            finally:
                self._looking.discard(scope)
        if scope.cancelled_caught:
            line.status = "cancelled"

    async def come_to_rest(self) -> None:
        """Wait while a line is at work that no run answers: one that has its answer may still be kept or compressed.

        So may one that was interrupted, and it may have left a run that ends.
        """
        while (self._scope is not None or self.run is not None) and self.answering is None:
            self._parked += 1
            try:
                await self._moved.park()
            finally:
                self._parked -= 1
        self.check_open()
        await trio.lowlevel.checkpoint_if_cancelled()  # it may have been withdrawn in this moment

    @property
    def waited_for(self) -> bool:
        """Whether a line waits for the one that is at work."""
        return self._parked > 0

    def check_open(self) -> None:
        """Raise `Conflict` if it was closed."""
        if self.closed:
            raise Conflict("this chat was closed")

    def close(self) -> None:
        """End it, with what it has under way; lines that wait are refused."""
        self.closed, self.keep = True, False
        self._moved.unpark_all()
        for end in list(self.on_close.values()):
            end()
        self._cancel()

    # --- interrupting -----------------------------------------------------------------------------------------

    @property
    def interrupted(self) -> bool:
        """Whether the line at work was interrupted."""
        return self._interrupted or (self._within is not None and self._within.interrupted)

    def interrupt(self) -> bool:
        """Cancel all lines that have come and not ended; False if there are none. What was said by then is kept."""
        begun = self._cancel()
        return self.order.withdraw() or begun

    def _cancel(self) -> bool:
        """Cancel what has begun; False if nothing has."""
        at_work = self._scope is not None or self.run is not None
        answers = self.run is not None and self._caller is not None and self.hub.cancel(self._caller, self.run)
        self._interrupted = self._interrupted or at_work
        if self._scope is not None and not answers:  # its run may just have ended: what follows it is cancelled
            self._scope.cancel()
        for scope in self._looking:
            scope.cancel()
        return at_work or bool(self._looking)

    def outlive(self, run: str, over: trio.Event, settle: Callable[[], Awaitable[None]]) -> None:
        """Who has asked is gone, and the run goes on; it is the chat's until it is over, and is settled then."""

        async def wait(_: Actor) -> None:
            await over.wait()
            with suppress(CallboardError):  # its session is gone, say
                await settle()
            if self.run == run:
                self.outlived()
                self.watched("_chat/changed", frames.Changed(chat=self.info()))

        self.hub.root.kernel.spawn(wait, name="chat-run", link=False)

    def outlived(self) -> None:
        """A run that has gone on without who has asked is over."""
        self.run = self._caller = None
        self._moved.unpark_all()
        if self._within is not None:
            self._within.outlived()

    @property
    def goes_on(self) -> bool:
        """Whether its run goes on when who has asked is gone."""
        return self.keep or (self._within is not None and self._within.goes_on)

    def begun(self, run: str) -> None:
        """A run of it has begun."""
        self.last_run = run
        self.answered_by(run)

    def over(self) -> None:
        """Its run is over."""
        self.touched = time.monotonic()
        self.answered_by(None)

    def answered_by(self, run: str | None) -> None:
        """This run answers now; None for none. Lines that wait look again."""
        self.run = run
        self._moved.unpark_all()
        if self._within is not None:
            self._within.answered_by(run)

    @contextmanager
    def attached_to(self, run: str) -> Iterator[None]:
        """This run reads what is said during the block."""
        self.attached = run
        self._moved.unpark_all()
        try:
            yield
        finally:
            self.attached = None

    def beside(self) -> Chat:
        """A fresh conversation within this one, as a macro has it, with the model and what `.set` has set of this one.

        Clients see it as this one; its runs are interrupted with this one's.
        """
        fresh = Chat(self.hub, self.owner)
        fresh.id, fresh.model, fresh.own = self.id, self.model, dict(self.own)
        fresh.terms, fresh.remembers, fresh._within = self.terms, False, self
        fresh.watchers, fresh.told, fresh.started = self.watchers, self.told, self.started
        fresh.warned = self.warned
        return fresh

    def add_cost(self, cost: float, *, priced: bool) -> None:
        """A run of it has cost this, in USD."""
        self.cost = None if self.cost is None or not priced else self.cost + cost
        if self._within is not None:
            self._within.add_cost(cost, priced=priced)

    def new_memory(self) -> None:
        """Forget what was said without a session, and what was set for the role or the agent that it went with."""
        self.memory = Place.in_memory(self._scope_of_agent())
        self.asked = self.reply = None

    def leave_agent(self) -> None:
        """Be in no agent any more, nor in a session of it; what was said without a session is forgotten."""
        self.session = None
        self.agent, self.loaded, self.variables, self.in_default_agent = None, None, {}, False
        self.new_memory()

    def _scope_of_agent(self) -> str | None:
        return None if self.loaded is None else agent_of(self.loaded)

    @property
    def loop_agent(self) -> LoopAgent | None:
        """The LLM agent that it is in; None for none, and for a graph or a workflow."""
        return self.loaded if isinstance(self.loaded, LoopAgent) else None
