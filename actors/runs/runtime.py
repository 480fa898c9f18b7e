"""`callboard.Root`: the root of a program, with the methods that start and answer its runs.

    async with callboard.Root() as root:  # under trio or asyncio
        outcome = await root.run("researcher", "What is a callboard?")

The methods are those of the module `callboard`, bound to this root. Trio tasks and asyncio tasks may await them, in
the event loop of the block or in that of another thread.

    async with root.tenant(acme) as tenant:  # a `callboard.Config`
        outcome = await tenant.run("researcher", "What is a callboard?")

A tenant is a root in the same event loop, with its own settings, keys and files (see `tenants`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Unpack, final, overload

import trio

from ...protocol.deferred_types import defer
from ...protocol.deprecation import warn_of
from ...protocol.errors import UsageError
from ...protocol.events import Event
from ...protocol.outcome import Outcome
from ...protocol.repeats import OnUnknown
from ...protocol.requests import AnswerText
from ..work.tools.functions import Function
from ..work.tools.tool import Tool
from .config import Config
from .root import Root as SharedServices
from .root import current
from .run import R, RunOptions, Target, resume, run, spelled_out, with_result
from .tenant_pool import STOP_MARGIN, TenantPool
from .tenant_scope import leave

if TYPE_CHECKING:
    from ...supervisors import OpenQuestions
    from ..work.middleware import Middleware
    from ..work.models.python_model import Model
    from .inbox import Inbox
    from .python_agent import Agent
    from .python_graph import Graph
    from .rerun.fork import At
    from .run_stream import RunStream
else:
    defer(
        globals(),
        {
            "...supervisors": "OpenQuestions",
            "..work.middleware": "Middleware",
            "..work.models.python_model": "Model",
            ".inbox": "Inbox",
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
        from .inbox import Inbox

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
    def _tenants(self) -> TenantPool[Root]:
        return TenantPool(self, self._tenant_root)

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
