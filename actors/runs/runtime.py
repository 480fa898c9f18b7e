"""`callboard.Root`: the root of a program, with the methods that start and answer its runs, its inbox, and its tenants.

    async with callboard.Root() as root:  # under trio or asyncio
        outcome = await root.run("researcher", "What is a callboard?")

The methods are those of the module `callboard`, bound to this root. Trio tasks and asyncio tasks may await them, in the
event loop of the block or in that of another thread.

`root.inbox` has the open questions of a root, and attaches front ends that show them to users:

    class Web:
        name = "web"

        def on_question(self, question): ...
        def on_question_closed(self, question_id, by): ...

    with root.inbox.attach(Web()):
        ...

A tenant is a root in the same event loop, with its own settings, keys and files (see `tenants`):

    async with root.tenant(acme) as tenant:  # a `callboard.Config`
        outcome = await tenant.run("researcher", "What is a callboard?")
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, Unpack, final, overload

import trio

from ...protocol.deferred_types import defer
from ...protocol.deprecation import warn_of
from ...protocol.errors import ShuttingDown, UsageError
from ...protocol.events import Event
from ...protocol.interrupted_calls import OnUnknown
from ...protocol.kernel.questions import Question
from ...protocol.outcome import Outcome
from ...protocol.requests import AnswerText
from ...supervisors import Actor, OpenQuestions
from ..work.tools.functions import Function
from ..work.tools.tool import Tool
from .config import Config, key_of
from .root import Root as SharedServices
from .root import current, leave
from .run import R, RunOptions, Target, resume, run, spelled_out, with_result

if TYPE_CHECKING:
    from ..work.middleware import Middleware
    from ..work.models.python_model import Model
    from .python_agent import Agent
    from .python_graph import Graph
    from .rerun.fork import At
    from .run_stream import RunStream
else:
    defer(
        globals(),
        {
            "..work.middleware": "Middleware",
            "..work.models.python_model": "Model",
            ".python_agent": "Agent",
            ".python_graph": "Graph",
            ".rerun.fork": "At",
            ".run_stream": "RunStream",
        },
    )


class RootOptions(RunOptions, total=False):
    """The keyword arguments of `Root.run`."""

    config: Config | None


@final
class Root(SharedServices):
    """Root of many runs in one process, which share settings, limits, connections to models, and MCP servers.

    Enter it with `async with` under trio or asyncio. Under asyncio the root runs in its own thread, and the program
    keeps its signal handlers.

    Args: see `SharedServices`.
    """

    @overload
    async def run(
        self, target: Target, prompt: str = "", *, result: type[R], **options: Unpack[RootOptions]
    ) -> Outcome[R]: ...
    @overload
    async def run(
        self, target: Target, prompt: str = "", *, result: Mapping[str, Any], **options: Unpack[RootOptions]
    ) -> Outcome[Any]: ...
    @overload
    async def run(self, target: Agent[R], prompt: str = "", **options: Unpack[RootOptions]) -> Outcome[R]: ...
    @overload
    async def run(self, target: Target, prompt: str = "", **options: Unpack[RootOptions]) -> Outcome[Any]: ...
    @spelled_out(RootOptions)
    async def run(
        self, target: Target, prompt: str = "", *, result: Any = None, **options: Unpack[RootOptions]
    ) -> Outcome[Any]:
        """Run an agent or a workflow to its end; see `callboard.run`.

        Under asyncio, async functions passed as `tools`, and callbacks, run in the caller's loop. With `config`, the
        run belongs to the tenant of that configuration.
        """
        config = options.pop("config", None)
        if config is None:
            return await run(target, prompt, result=result, **options, root=self)
        async with self.tenant(config) as tenant:
            return await run(target, prompt, result=result, **options, root=tenant)

    @cached_property
    def inbox(self) -> Inbox:
        """Open questions of all runs; attach a front end here."""
        return Inbox(self.kernel.questions)

    @property
    def questions(self) -> OpenQuestions:
        """Deprecated name of `inbox`, whose front ends have methods `asked` and `closed`."""
        warn_of("root.questions", "root.inbox")
        return self.kernel.questions

    @asynccontextmanager
    async def tenant(self, config: Config) -> AsyncIterator[Root]:
        """Open a root with its own settings in this root's event loop: `async with root.tenant(config) as tenant:`.

        The tenant has the methods of a root. Two tenants, or a tenant and this root, share no runs, sessions,
        questions, events, models, secrets, servers or files. Equal configurations are one tenant. A tenant stays open
        after the block while the pool has room, and ends with this root at the latest.

        Raises:
            ConfigError: the configuration has errors.
            UsageError: its directories cannot be used, or belong to another tenant.
        """
        if self.config is not None:
            raise UsageError("a root with a Config has no tenants: open them from one without, `callboard.Root()`")
        tenant = await self.call(partial(self._tenants.acquire, config))
        token, entered = current.set(tenant), tenant.enter()
        try:
            yield tenant
        finally:
            # A context variable can only be reset in the context that set it; the block may end in another task.
            with suppress(ValueError):
                leave(entered)
                current.reset(token)
            # Without a loop the root has ended, and its tenants with it.
            if (loop := self.kernel.loop) is not None:
                loop.post(self._tenants.release, config)

    @cached_property
    def _tenants(self) -> _TenantPool:
        return _TenantPool(self, self._tenant_root)

    def _tenant_root(self, config: Config) -> Root:
        stop_within = max(self.kernel.stop_within - STOP_MARGIN, self.kernel.stop_within / 2)
        return Root(config=config, host=self, stop_within=stop_within, wait_for_front_end=self.kernel.questions.patient)

    @overload
    def stream(
        self, target: Target, prompt: str = "", *, result: type[R], **options: Unpack[RootOptions]
    ) -> RunStream[R]: ...
    @overload
    def stream(
        self, target: Target, prompt: str = "", *, result: Mapping[str, Any], **options: Unpack[RootOptions]
    ) -> RunStream[Any]: ...
    @overload
    def stream(self, target: Agent[R], prompt: str = "", **options: Unpack[RootOptions]) -> RunStream[R]: ...
    @overload
    def stream(self, target: Target, prompt: str = "", **options: Unpack[RootOptions]) -> RunStream[Any]: ...
    @spelled_out(RootOptions)
    def stream(
        self, target: Target, prompt: str = "", *, result: Any = None, **options: Unpack[RootOptions]
    ) -> RunStream[Any]:
        """Run an agent or a workflow, and follow it: `async with root.stream(target, prompt) as run:`.

        Takes the arguments of `run`. Leaving the block cancels the run; see `RunStream`.
        """
        from .run_stream import RunStream

        config = options.pop("config", None)
        return RunStream(
            self, target, prompt, with_result(options, result), None if config is None else self.tenant(config)
        )

    async def resume(
        self,
        run: str,
        *,
        tools: Sequence[Function | Tool] = (),
        on_event: Callable[[Event], None] | None = None,
        with_changes: bool = False,
        strict: bool = False,
        on_unknown: OnUnknown | None = None,
        agent: Agent[Any] | Graph | None = None,
        result: Any = None,
        deps: Any = None,
        models: Sequence[Model] = (),
        middleware: Sequence[Middleware] = (),
    ) -> Outcome[Any]:
        """Resume a durable run whose process was killed; see `callboard.resume`."""
        return await resume(
            run,
            tools=tools,
            on_event=on_event,
            with_changes=with_changes,
            strict=strict,
            on_unknown=on_unknown,
            agent=agent,
            result=result,
            deps=deps,
            models=models,
            middleware=middleware,
            root=self,
        )

    async def fork(
        self,
        run: str,
        *,
        at: At,
        model: str | None = None,
        prompt: str | None = None,
        state: Mapping[str, Any] | None = None,
        answers: Mapping[str, AnswerText] | None = None,
        with_changes: bool = False,
        id: str | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> Outcome:
        """Begin a new run with the first rows of a durable run; see `callboard.fork`."""
        from .rerun.fork import fork

        return await fork(
            run,
            at=at,
            model=model,
            prompt=prompt,
            state=state,
            answers=answers,
            with_changes=with_changes,
            id=id,
            on_event=on_event,
            root=self,
        )

    async def answer(self, question: str, value: str | list[str], *, by: str = "") -> bool:
        """Answer a question by its id. Its run is under this root, or is an interrupted durable run of this machine.

        An interrupted run finds the answer when it is resumed. An answer to a durable run is on disk when this
        returns.

        Returns:
            False if the question is not open: answered already, withdrawn, or never asked.
        """
        from ..work.journal.pending_answers import run_of
        from .stored_runs import leave_for

        async def within() -> bool:
            if await self.questions.answer_for_good(question, value, by=by):
                return True
            run = run_of(question)
            return bool(run) and await trio.to_thread.run_sync(leave_for, run, question, value, by)

        return await self.call(within)

    async def close(self) -> None:
        """End all runs, and return when none of their tasks is left. Leaving the block does the same."""
        if self._thread is not None:
            await self._thread.close()
        elif self.kernel.actor.end is None:
            await self.call(self.kernel.stop)


class FrontEnd(Protocol):
    """Shows questions to a user. Its methods return at once; `Inbox.answer` may be called from anywhere, later.

    Attributes:
        name: in events of answers.
    """

    @property
    def name(self) -> str:
        """Name of the front end in events of answers."""
        ...

    def on_question(self, question: Question) -> None:
        """Show a question that was just opened."""

    def on_question_closed(self, question_id: str, by: str) -> None:
        """Remove a question that the front end `by` answered, or that needs no answer any more."""


@final
class Inbox:
    """Open questions of all runs of a root. Its methods may be called from any thread."""

    def __init__(self, questions: OpenQuestions) -> None:
        self._questions = questions

    @property
    def open(self) -> tuple[Question, ...]:
        """Every question that has no answer yet, oldest first."""
        return self._questions.open

    @contextmanager
    def attach(self, front_end: FrontEnd) -> Iterator[None]:
        """Show questions to a front end while the block runs, beginning with the questions that are already open.

        If the block runs in an asyncio loop, the methods are called in that loop, otherwise in the loop of the root.

        Raises:
            UsageError: the front end lacks a method.
        """
        for method in ("on_question", "on_question_closed"):
            if not callable(getattr(front_end, method, None)):
                raise UsageError(f"root.inbox.attach({front_end!r}): it has no method `{method}`")
        with self._questions.attach(_FrontEndAdapter(front_end)):
            yield

    def answer(self, question_id: str, value: str | list[str], *, by: str = "") -> bool:
        """Answer a question. `root.answer` also answers questions of interrupted runs, and waits until the answer is on
        disk.

        Returns:
            False if the question is not open: already answered, withdrawn, or never asked.
        """
        return self._questions.answer(question_id, value, by)


@final
class _FrontEndAdapter:
    """Adapter from `FrontEnd` to the interface of `supervisors.escalation`."""

    def __init__(self, front_end: FrontEnd) -> None:
        self.name: str = front_end.name
        self.asked = front_end.on_question
        self.closed = front_end.on_question_closed


MOST_UNUSED_TENANTS = 128
"""Maximum of open tenants without users."""

STOP_MARGIN = 0.5
"""Seconds of the root's stop time that tenants leave for the rest of the shutdown."""


class _Tenant:
    """State of a tenant from its first request on."""

    def __init__(self) -> None:
        self.opened = trio.Event()
        self.left = trio.Event()
        self.users = 0
        self.root: Root | None = None
        self.error: BaseException | None = None


@final
class _TenantPool:
    """Open tenants of a root: one for each `Config`, opened at first use. Call its methods in the root's event loop.

    An actor of the root's tree holds the tenant open, so it ends with the root. A count of its users (blocks of
    `root.tenant`, and runs) decides when it may close. Opening a tenant takes milliseconds (clients, vault, tools).
    Therefore an unused tenant stays open until `MOST_UNUSED_TENANTS` others have been used after it. That includes a
    tenant with a temporary directory, because its sessions are in that directory.

    Args:
        host: the root.
        make: creates the unopened root of a tenant.
    """

    def __init__(self, host: Root, make: Callable[[Config], Root]) -> None:
        self._host = host
        self._make = make
        self._tenants: OrderedDict[bytes, _Tenant] = OrderedDict()

    async def acquire(self, config: Config) -> Root:
        """Return the open tenant of this configuration. Call `release` for each success.

        Raises:
            ConfigError, UsageError: it cannot be opened.
            ShuttingDown: the root is ending.
        """
        key = key_of(config)
        tenant = self._tenants.get(key)
        if tenant is None:
            within = self._host.kernel.stop_within
            self._host.kernel.spawn(self._hold, config, key, name="tenant", link=False, stop_within=within)
            tenant = self._tenants[key] = _Tenant()  # Safe after `spawn`: the actor runs after the next checkpoint.
        self._tenants.move_to_end(key)
        tenant.users += 1
        try:
            await tenant.opened.wait()
            if tenant.error is not None:
                raise tenant.error
            if tenant.root is None or tenant.left.is_set():
                raise ShuttingDown("this callboard.Root has ended, or ends now")
        except BaseException:  # The caller gets no tenant, so it will not release one.
            tenant.users -= 1
            raise
        return tenant.root

    def release(self, config: Config) -> None:
        """Decrement the count of users; close the least recently used tenants beyond `MOST_UNUSED_TENANTS`."""
        tenant = self._tenants.get(key_of(config))
        if tenant is not None:
            tenant.users -= 1
        idle = [each for each in self._tenants.values() if not each.users and each.root is not None]
        for each in idle[: max(0, len(idle) - MOST_UNUSED_TENANTS)]:
            each.left.set()

    async def _hold(self, _me: Actor, config: Config, key: bytes) -> None:
        tenant = self._tenants[key]
        try:
            async with self._make(config) as root:
                tenant.root = root
                tenant.opened.set()
                await tenant.left.wait()
                self._tenants.pop(key, None)  # A new tenant of this configuration may be opened while this one closes.
        except (Exception, trio.Cancelled) as error:
            if tenant.opened.is_set() or isinstance(error, trio.Cancelled):
                raise
            tenant.error = error
        finally:
            tenant.left.set()
            tenant.opened.set()
            if self._tenants.get(key) is tenant:
                del self._tenants[key]
