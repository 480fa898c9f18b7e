"""Sessions in use in this process: access to each one is granted in turns.

    async with root.sessions.turn(None, "bridges", agent="researcher") as turn:
        outcome = await callboard.run("researcher", "And arches?", history=turn.history, on_history=turn.keep)

Turns of one session run one after another, in the order of their requests. The file is read when a turn begins (if it
has changed) and written when the turn ends, for whatever reason. All other operations on sessions are also here,
including operations of outside callers, whose permissions `store` checks.

Two mechanisms exclude each other's writers. Within a process, the session's actor grants one `Loan` at a time.
Between processes, the lock file does. A change without the lock, for example by an editor, shows in the file's stamp,
and `StoredTurn.write` then appends instead of overwriting.
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
from .export import Form, exported
from .roles import change_role
from .store import SessionMeta, SessionStore, Stored, claim
from .turn import StoredTurn

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ....supervisors import Actor
    from .files import Lock
    from .summary import Services

T = TypeVar("T")
SAVE_WITHIN = 5.0
"""Seconds to write a session whose turn was interrupted."""
_LOOK_AGAIN = 0.05
IDLE = 300.0
"""Seconds after which an unused session's actor ends; the file stays."""


class Sessions:
    """Sessions of a root. `store` has their files; `created` counts the sessions that `create` has made here."""

    def __init__(self, services: Services) -> None:
        self.store: SessionStore = SessionStore(services.config_dir)
        self.created: int = 0
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
    ) -> AsyncIterator[StoredTurn]:
        """Context manager for a turn of the session.

        Args:
            name: its id, or its alias among the sessions of `agent`.
            wait: seconds to wait for another process that uses it. Turns of this process are awaited without limit.
            on_wait: called once if the turn has to wait for another process.

        Raises:
            NotFound, Denied: the session does not exist, or has another owner.
            Conflict: another process uses it.
            CallboardError: at the end of the turn: its changes could not be written (`StoredTurn.unkept`).
        """
        stored = await self._found(caller, name, agent, "write:sessions")
        loan: Loan = await self._ask_turn(stored.id)
        try:
            lock = await self._lock(stored, wait, on_wait)
            try:
                # Read again under the lock: the first read only resolved the name and checked access.
                fresh = await _threaded(self.store.fresh, loan.known or stored)
                if claim(caller, fresh.session.meta, fresh.id):
                    await _threaded(self.store.save, fresh)
                turn = StoredTurn(fresh)
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

    async def _finish(self, turn: StoredTurn, loan: Loan) -> None:
        """Write the turn's changes to the file; a reason why that fails is in `turn.unkept`."""
        if turn.keeps and not turn.dirty:
            turn.mark_over()
            return
        loan.known = None  # Unknown until the write has succeeded; the next turn reads the file again.
        if not turn.keeps or turn.is_lost():
            turn.mark_over()
            return
        # Shielded: a cancelled turn still writes the messages that it has.
        with self._services.kernel.shield(SAVE_WITHIN):
            try:
                loan.known = await _threaded(turn.write, self.store)
                turn.mark_over()
            except CallboardError as error:
                if isinstance(error, NotFound):
                    turn.mark_over()
                turn.unkept = error
                self.store.warn(f"the last messages of session '{turn.stored.label}' could not be saved: {error}")

    async def _ask_turn(self, id: str) -> Loan:
        while True:
            actor = self._actor(id)
            try:
                loan: Loan = await actor.ref.ask(TakeTurn())
            except ActorDead:  # The actor reached `IDLE` between lookup and request; a new one is started.
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
        # A new actor may already have taken the place of the ended one.
        if id in self._live and self._live[id][0] is live:
            del self._live[id]

    async def _lock(self, stored: Stored, wait: float, on_wait: Callable[[CallboardError], None] | None) -> Lock:
        until = trio.current_time() + wait
        told = False
        # Poll: a blocking lock would keep a thread that a cancellation can't reach.
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
        """Number of sessions with an actor: in use, or used within the last `IDLE` seconds."""
        return len(self._live)

    # --- other operations -----------------------------------------------------------------------------------

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
        """Create a session.

        Args:
            role: role in which the model answers, for a session without an agent.
            rag: knowledge base in which its turns look up the prompt.
            cwd: working directory of the client, shown in lists.

        Raises:
            Conflict: the alias is in use.
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
        """Assign an empty session to another agent, or to none.

        Raises:
            Conflict: it has messages already.
        """
        stored = await self._found(caller, name, agent, "write:sessions")
        if stored.session.messages or stored.session.compressed_messages:
            raise Conflict(f"session '{stored.label}' has messages, so its agent can't be changed; empty it first")
        async with self._alone(stored):
            moved = await _threaded(self.store.move, stored.id, stored.agent, to, caller=caller)
        if stored.id in self._live:
            self._live.pop(stored.id)[1].interrupt()  # The actor has the session in memory with its former agent.
        return await self._meta(moved)

    async def set_rag(
        self, caller: Caller | None, name: str, rag: str | None, *, agent: str | None = None
    ) -> SessionMeta:
        """Set the knowledge base in which its turns look up the prompt (`rag` in the file); None for none."""
        async with self.change(caller, name, agent) as turn:
            turn.session.other = {key: value for key, value in turn.session.other.items() if key != "rag"}
            if rag:
                turn.session.other["rag"] = rag
        return await self._meta(turn.stored)

    async def set_role(
        self, caller: Caller | None, name: str, role: str | None, *, agent: str | None = None
    ) -> SessionMeta:
        """Set the role in which the model answers from now on; None for none.

        Raises:
            Conflict: an agent answers in this session.
        """
        async with self.change(caller, name, agent) as turn:
            if role is not None and turn.stored.agent is not None:
                raise Conflict(f"session '{turn.stored.label}' belongs to an agent, so its role can't be changed")
            change_role(turn.session, role)
        return await self._meta(turn.stored)

    async def list(
        self, caller: Caller | None, *, agent: str | None = None, everywhere: bool = True
    ) -> list[SessionMeta]:
        """Return the sessions that the caller may read, newest first.

        With `agent`, only sessions of that agent; otherwise all, or with `everywhere=False` the ones without an
        agent.
        """
        _need(caller, "read:sessions")
        return await _threaded(self.store.list, agent, everywhere=everywhere and agent is None, caller=caller)

    async def get(self, caller: Caller | None, name: str, *, agent: str | None = None) -> Stored:
        """Return the session with this id, or with this alias among the sessions of `agent`.

        Raises:
            NotFound, Denied: the session does not exist, or has another owner.
        """
        return await self._found(caller, name, agent, "read:sessions")

    async def delete(self, caller: Caller | None, name: str, *, agent: str | None = None) -> None:
        """Delete the session permanently.

        Raises:
            NotFound, Denied: the session does not exist, or has another owner.
            Conflict: a turn is under way, here or in another process.
        """
        stored = await self._found(caller, name, agent, "write:sessions")
        async with self._alone(stored):
            await _threaded(self.store.delete, stored.id, stored.agent, caller=caller)

    async def rename(self, caller: Caller | None, name: str, alias: str, *, agent: str | None = None) -> SessionMeta:
        """Replace the session's alias.

        Raises:
            Conflict: another session has the alias, or a turn is under way.
        """
        stored = await self._found(caller, name, agent, "write:sessions")
        async with self._alone(stored):
            return await self._meta(await _threaded(self.store.rename, stored.id, alias, stored.agent, caller=caller))

    async def empty(self, caller: Caller | None, name: str, *, agent: str | None = None) -> None:
        """Delete all messages of the session, and its todo list."""
        async with self.change(caller, name, agent) as turn:
            forget_all(turn.session)
            turn.todos.clear()

    async def compress(self, caller: Caller | None, name: str, *, agent: str | None = None) -> bool:
        """Replace the messages by a summary; return False if there is too little to summarise."""
        from .summary import compressed

        async with self.change(caller, name, agent) as turn:
            turn.dirty = await compressed(self._services, turn.session, turn.stored.agent, None)
            return turn.dirty

    async def export(
        self, caller: Caller | None, name: str, *, agent: str | None = None, form: Form = "markdown"
    ) -> str:
        """Return the whole conversation as Markdown or JSON."""
        return exported(await self._found(caller, name, agent, "read:sessions"), form)

    async def set_owner(
        self, caller: Caller | None, name: str, owner: str | None, *, agent: str | None = None
    ) -> SessionMeta:
        async with self.change(caller, name, agent) as turn:
            turn.session.meta.owner = owner
        return await self._meta(turn.stored)

    async def set_model(
        self, caller: Caller | None, name: str, model: str | None, *, agent: str | None = None
    ) -> SessionMeta:
        """Set the model of the next turns; None for that of the agent."""
        if model:
            self._services.gateway.check(model)
        async with self.change(caller, name, agent) as turn:
            turn.session.model = model or None
        return await self._meta(turn.stored)

    # --- internal -------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def change(self, caller: Caller | None, name: str, agent: str | None) -> AsyncIterator[StoredTurn]:
        """Context manager for a turn that changes the session without running an agent.

        Raises:
            Conflict: a turn is under way.
        """
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
            raise Conflict(f"session '{stored.label}' is busy; try again when its turn is over, or cancel its run")

    async def _found(self, caller: Caller | None, name: str, agent: str | None, scope: str) -> Stored:
        _need(caller, scope)
        return await _threaded(self._find, caller, name, agent)

    def _find(self, caller: Caller | None, name: str, agent: str | None) -> Stored:
        return self.store.open(*self.store.find(name, agent, caller=caller), caller=caller)

    async def _meta(self, stored: Stored) -> SessionMeta:
        return await _threaded(self.store.meta, stored)


def forget_all(session: Session) -> None:
    """Delete all messages of the session, and its todo list."""
    session.messages, session.compressed_messages, session.data_urls, session.todo = [], [], {}, None


class TakeTurn(msgspec.Struct, frozen=True, tag="take-turn"):
    """Request for a turn. The reply is a `Loan`, sent when the turn begins."""


@final
class Loan:
    """Exclusive right to use a session within this process.

    Attributes:
        known: the session as the last holder left it; None before the first turn, or if it must be read again.
    """

    def __init__(self, known: Stored | None) -> None:
        self.known = known
        self._back = trio.Event()

    def give_back(self) -> None:
        """Return the loan, so that the next request is served."""
        self._back.set()

    async def returned(self) -> None:
        """Wait for `give_back`."""
        await self._back.wait()


@final
class LiveSession:
    """Body of a session's actor: it grants turns, one at a time, in the order of the requests.

    Two writers of one process never run concurrently; the lock file excludes other processes (see `files`).

    Attributes:
        busy: True while a turn is under way.
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
                continue  # The requester was cancelled while waiting. A loan for it would never be returned.
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
    """Run a function in a thread. It is not abandoned on cancellation, so a write that has begun is completed."""
    return await trio.to_thread.run_sync(partial(function, *args, **options))


def _need(caller: Caller | None, scope: str) -> None:
    if caller is not None:
        caller.need(scope)
