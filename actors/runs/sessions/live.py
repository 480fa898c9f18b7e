"""The sessions in use in a process: work on one happens in turns.

    async with root.sessions.turn(None, "bridges", agent="researcher") as turn:
        outcome = await callboard.run("researcher", "And arches?", history=turn.history, on_history=turn.keep)

Turns of one session come one after another, in the order of their requests; the session's file is read when a turn
begins (if it has changed) and written when it ends, whatever ended it. All other operations on sessions are here as
well, for outside callers, too: see `access` for what they may.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, final

import msgspec
import trio

from ....protocol.errors import ActorDead, CallboardError, Conflict, NotFound
from ....protocol.session import Session
from .access import claim
from .export import Form, exported
from .roles import change_role
from .store import SessionMeta, SessionStore, Stored
from .turn import Turn

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ....supervisors import Actor
    from .disk.files import Lock
    from .summary import Services

T = TypeVar("T")
SAVE_WITHIN = 5.0
"""Seconds for a session to be written when its turn was interrupted."""
_LOOK_AGAIN = 0.05
IDLE = 300.0
"""Seconds after which an unused session is forgotten; its file stays."""


class Sessions:
    """See the module. Attributes: `store`, the files; `created`, how many sessions this process has made."""

    def __init__(self, services: Services) -> None:
        self.store = SessionStore(services.config_dir)
        self.created = 0
        self._services = services
        self._house: Actor | None = None
        self._live: dict[str, tuple[LiveSession, Actor]] = {}

    # --- turns ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def turn(
        self,
        caller: Caller | None,
        name: str,
        *,
        agent: str | None = None,
        wait: float = 0.0,
        on_wait: Callable[[CallboardError], None] | None = None,
    ) -> AsyncIterator[Turn]:
        """The session, to work with.

        Args:
            name: its id, or its alias among those of `agent`.
            wait: seconds to wait for another process that works with it. Others of this process are always waited for.
            on_wait: told, once, that it is waited for another process.

        Raises:
            NotFound, Denied: there is none, or it has another owner.
            Conflict: another process works with it.
            CallboardError: at the end of the turn: what it has brought could not be written (`Turn.unkept`).
        """
        stored = await self._found(caller, name, agent, "write:sessions")
        loan: Loan = await self._ask_turn(stored.id)
        try:
            lock = await self._lock(stored, wait, on_wait)
            try:
                fresh = await _threaded(self.store.fresh, loan.known or stored)
                if claim(caller, fresh.session.meta, fresh.id):
                    await _threaded(self.store.save, fresh)
                turn = Turn(fresh)
                loan.known = fresh
                try:
                    yield turn
                finally:
                    await self._finish(turn, loan)
                if turn.unkept is not None:
                    raise turn.unkept
            finally:
                lock.release()
        finally:
            loan.give_back()

    async def _finish(self, turn: Turn, loan: Loan) -> None:
        """Write the turn's changes to the file; a reason why that fails is in `turn.unkept`."""
        if turn.keeps and not turn.dirty:
            turn.settle()
            return
        loan.known = None  # unknown until it is written
        if not turn.keeps or turn.is_lost():
            turn.settle()
            return
        with self._services.kernel.shield(SAVE_WITHIN):
            try:
                loan.known = await _threaded(turn.write, self.store)
                turn.settle()
            except CallboardError as error:
                if isinstance(error, NotFound):
                    turn.settle()
                turn.unkept = error
                self.store.warn(f"what was said in session '{turn.stored.label}' could not be kept: {error}")

    async def _ask_turn(self, id: str) -> Loan:
        while True:
            actor = self._actor(id)
            try:
                loan: Loan = await actor.ref.ask(TakeTurn())
            except ActorDead:  # it was idle for long, at this very moment
                if self._services.kernel.stopping:
                    raise
                continue
            return loan

    def _actor(self, id: str) -> Actor:
        if self._house is None or self._house.end is not None:
            self._house = self._services.kernel.actor.adopt(_keep_house, (), name="sessions", bond="watched")
            self._house.launch()
        if id not in self._live or self._live[id][1].end is not None:
            live = LiveSession()
            actor = self._house.adopt(live, (), name=id, bond="watched")
            actor.launch()
            self._live[id] = (live, actor)
            actor.on_end(lambda _: self._forget(id, live))
        return self._live[id][1]

    def _forget(self, id: str, live: LiveSession) -> None:
        if id in self._live and self._live[id][0] is live:
            del self._live[id]

    async def _lock(self, stored: Stored, wait: float, on_wait: Callable[[CallboardError], None] | None) -> Lock:
        until = trio.current_time() + wait
        told = False
        while (lock := await _threaded(self.store.try_hold, stored.id, stored.agent)) is None:
            if trio.current_time() >= until:
                raise self.store.in_use(stored)
            if not told and on_wait is not None:
                on_wait(self.store.in_use(stored))
            told = True
            await trio.sleep(_LOOK_AGAIN)
        return lock

    @property
    def live(self) -> int:
        """How many sessions are in use, or were a moment ago."""
        return len(self._live)

    # --- what else can be done ------------------------------------------------------------------------------

    async def create(
        self,
        caller: Caller | None,
        *,
        agent: str | None = None,
        alias: str | None = None,
        model: str | None = None,
        variables: Mapping[str, str] | None = None,
        rag: str | None = None,
        role: str | None = None,
        cwd: str | None = None,
    ) -> SessionMeta:
        """A new session.

        Args:
            role: in which the model answers, where no agent does.
            rag: a knowledge base that its turns look things up in.
            cwd: where the client works that wants it, for lists.

        Raises:
            Conflict: the alias is taken.
        """
        _need(caller, "write:sessions")
        other = {key: value for key, value in (("rag", rag), ("cwd", cwd)) if value}
        session = Session(model=model, role_name=role, agent_variables=dict(variables or {}), other=other)
        stored = await _threaded(self.store.create, agent, alias, session, caller=caller)
        self.created += 1
        return await self._meta(stored)

    async def set_agent(
        self, caller: Caller | None, name: str, to: str | None, *, agent: str | None = None
    ) -> SessionMeta:
        """Make an empty session one of another agent, or of none.

        Raises:
            Conflict: something was said in it already.
        """
        stored = await self._found(caller, name, agent, "write:sessions")
        if stored.session.messages or stored.session.compressed_messages:
            raise Conflict(f"session '{stored.label}' has messages, so it stays with its agent; empty it first")
        async with self._alone(stored):
            moved = await _threaded(self.store.move, stored.id, stored.agent, to, caller=caller)
        if stored.id in self._live:
            self._live.pop(stored.id)[1].interrupt()  # it remembers the session of the other agent
        return await self._meta(moved)

    async def set_rag(
        self, caller: Caller | None, name: str, rag: str | None, *, agent: str | None = None
    ) -> SessionMeta:
        """The knowledge base that its turns look things up in, as `rag` in the file; None for none."""
        async with self.change(caller, name, agent) as turn:
            turn.session.other = {key: value for key, value in turn.session.other.items() if key != "rag"}
            if rag:
                turn.session.other["rag"] = rag
        return await self._meta(turn.stored)

    async def set_role(
        self, caller: Caller | None, name: str, role: str | None, *, agent: str | None = None
    ) -> SessionMeta:
        """The role in which the model answers from now on; None for none.

        Raises:
            Conflict: an agent answers there.
        """
        async with self.change(caller, name, agent) as turn:
            if role is not None and turn.stored.agent is not None:
                raise Conflict(f"in session '{turn.stored.label}' an agent answers, which a role can't change")
            change_role(turn.session, role)
        return await self._meta(turn.stored)

    async def list(
        self, caller: Caller | None, *, agent: str | None = None, everywhere: bool = True
    ) -> list[SessionMeta]:
        """The sessions that the caller may see, newest first; of one agent, of all, or (neither) of none."""
        _need(caller, "read:sessions")
        return await _threaded(self.store.list, agent, everywhere=everywhere and agent is None, caller=caller)

    async def get(self, caller: Caller | None, name: str, *, agent: str | None = None) -> Stored:
        """The session of that id or alias."""
        return await self._found(caller, name, agent, "read:sessions")

    async def delete(self, caller: Caller | None, name: str, *, agent: str | None = None) -> None:
        """Remove it for good."""
        stored = await self._found(caller, name, agent, "write:sessions")
        async with self._alone(stored):
            await _threaded(self.store.delete, stored.id, stored.agent, caller=caller)

    async def rename(self, caller: Caller | None, name: str, alias: str, *, agent: str | None = None) -> SessionMeta:
        """Give it another alias."""
        stored = await self._found(caller, name, agent, "write:sessions")
        async with self._alone(stored):
            return await self._meta(await _threaded(self.store.rename, stored.id, alias, stored.agent, caller=caller))

    async def empty(self, caller: Caller | None, name: str, *, agent: str | None = None) -> None:
        """Forget all that was said."""
        async with self.change(caller, name, agent) as turn:
            forget_all(turn.session)
            turn.todos.clear()

    async def compress(self, caller: Caller | None, name: str, *, agent: str | None = None) -> bool:
        """Put a summary in the place of what was said; False if there is too little to shorten."""
        from .summary import compressed

        async with self.change(caller, name, agent) as turn:
            turn.dirty = await compressed(self._services, turn.session, turn.stored.agent, None)
            return turn.dirty

    async def export(
        self, caller: Caller | None, name: str, *, agent: str | None = None, form: Form = "markdown"
    ) -> str:
        """All that was said, as a text for people or programs."""
        return exported(await self._found(caller, name, agent, "read:sessions"), form)

    async def set_owner(
        self, caller: Caller | None, name: str, owner: str | None, *, agent: str | None = None
    ) -> SessionMeta:
        """Set the owner."""
        async with self.change(caller, name, agent) as turn:
            turn.session.meta.owner = owner
        return await self._meta(turn.stored)

    async def set_model(
        self, caller: Caller | None, name: str, model: str | None, *, agent: str | None = None
    ) -> SessionMeta:
        """The model of its next turns; None for what its agent says."""
        if model:
            self._services.gateway.check(model)
        async with self.change(caller, name, agent) as turn:
            turn.session.model = model or None
        return await self._meta(turn.stored)

    # --- inside ---------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def change(self, caller: Caller | None, name: str, agent: str | None) -> AsyncIterator[Turn]:
        """A turn in which a session is changed, and no agent runs. Raises `Conflict` if one does."""
        stored = await self._found(caller, name, agent, "write:sessions")
        self._refuse_busy(stored)
        async with self.turn(caller, stored.id, agent=stored.agent) as turn:
            turn.touch()
            yield turn

    @asynccontextmanager
    async def _alone(self, stored: Stored) -> AsyncIterator[None]:
        self._refuse_busy(stored)
        lock = await self._lock(stored, 0.0, None)
        try:
            yield
        finally:
            lock.release()

    def _refuse_busy(self, stored: Stored) -> None:
        live = self._live.get(stored.id)
        if live is not None and live[0].busy:
            raise Conflict(f"session '{stored.label}' is at work; try again when its turn is over, or cancel its run")

    async def _found(self, caller: Caller | None, name: str, agent: str | None, scope: str) -> Stored:
        _need(caller, scope)
        return await _threaded(self._find, caller, name, agent)

    def _find(self, caller: Caller | None, name: str, agent: str | None) -> Stored:
        return self.store.open(*self.store.find(name, agent, caller=caller), caller=caller)

    async def _meta(self, stored: Stored) -> SessionMeta:
        return await _threaded(self.store.meta, stored)


def forget_all(session: Session) -> None:
    """Forget all that was said in it."""
    session.messages, session.compressed_messages, session.data_urls, session.todo = [], [], {}, None


class TakeTurn(msgspec.Struct, frozen=True, tag="take-turn"):
    """Asked for a turn; the answer, which comes when it is one's turn, is a `Loan`."""


@final
class Loan:
    """The right to work with a session.

    Attributes:
        known: the session as the last holder left it; None before the first.
    """

    def __init__(self, known: Stored | None) -> None:
        self.known = known
        self._back = trio.Event()

    def give_back(self) -> None:
        """Let the next one have it."""
        self._back.set()

    async def returned(self) -> None:
        """Wait until it is given back."""
        await self._back.wait()


@final
class LiveSession:
    """Body of a session's actor: it gives out turns, one at a time, in the order of the requests.

    So two writers of one process never meet; the lock keeps out other processes (see `disk.files`).

    Attributes:
        busy: whether the turn is taken.
    """

    def __init__(self) -> None:
        self.busy = False
        self._known: Stored | None = None

    async def __call__(self, me: Actor) -> None:
        while True:
            with trio.move_on_after(IDLE) as patience:
                await me.receive()
            if patience.cancelled_caught:
                return
            request = me.take_request()
            if not request.waits:
                continue  # who asked has gone meanwhile
            loan = Loan(self._known)
            self.busy = True
            try:
                request.reply(loan)
                await loan.returned()
                self._known = loan.known
            finally:
                self.busy = False


async def _keep_house(me: Actor) -> None:
    async for _ in me:
        pass


async def _threaded(function: Callable[..., T], *args: Any, **options: Any) -> T:
    """Files take their time, and what was begun with them is brought to its end."""
    return await trio.to_thread.run_sync(partial(function, *args, **options))


def _need(caller: Caller | None, scope: str) -> None:
    if caller is not None:
        caller.need(scope)
