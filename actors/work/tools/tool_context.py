"""`callboard.Context`: access of a Python function tool to its call and to agents that it runs.

    async def look_up(ctx: callboard.Context[Deps], order: int) -> str:
        row = await ctx.deps.database.fetch(order)
        outcome = await ctx.run(summarizer, str(row))
        return outcome.unwrap()

A parameter with this type receives the context. The model does not see that parameter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, final, overload

import trio

from ....protocol.deferred_types import defer
from ....protocol.errors import UsageError

if TYPE_CHECKING:
    from ....protocol.outcome import Outcome
    from ....supervisors import Actor
else:
    defer(globals(), {"....protocol.outcome": "Outcome", "....supervisors": "Actor"})

D = TypeVar("D")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class TypedAgent(Protocol[R_co]):
    """An agent that declares the type of its result: `callboard.Agent`."""

    @property
    def result(self) -> type[R_co] | Mapping[str, Any] | None:
        """The declared type of the result."""


class RunsAgents(Protocol):
    """The calling agent, as its tools use it; implemented by `work.context.CallingAgent`."""

    @property
    def name(self) -> str:
        """The agent's name."""

    @property
    def deps(self) -> Any:
        """The `deps` that the caller passed to the run."""

    def run(self, me: Actor, target: Any, prompt: str, options: dict[str, Any]) -> Awaitable[Outcome[Any]]:
        """Run an agent below `me`, as a child of the calling agent."""


@final
class Context(Generic[D]):
    """A call of a Python function by an agent, valid until the function returns.

    Attributes:
        deps: the `deps` that the caller passed to the run; None if it passed none.
        run_id: the run's id.
        call_id: the id that the model gave the call, also the `id` of its events.
        agent: the name of the calling agent.
    """

    def __init__(self, me: Actor, agent: RunsAgents | None, call_id: str) -> None:
        self._me = me
        self._agent = agent
        deps: Any = None if agent is None else agent.deps
        self.deps: D = deps
        self.run_id: str = me.stream.run
        self.call_id = call_id
        self.agent: str = "" if agent is None else agent.name

    @overload
    async def run(self, agent: object, prompt: str = "", *, result: type[R], **variables: str) -> Outcome[R]: ...
    @overload
    async def run(self, agent: TypedAgent[R], prompt: str = "", **variables: str) -> Outcome[R]: ...
    @overload
    async def run(self, agent: object, prompt: str = "", *, result: Any = None, **variables: str) -> Outcome[Any]: ...
    async def run(self, agent: object, prompt: str = "", *, result: Any = None, **variables: str) -> Outcome[Any]:
        """Run an agent as a child of the calling agent, and wait for its end.

        Its usage counts for the limits and the `usage` of this run, its events are among this run's, and it is listed
        in `children` of the outcome. It has no tools of the run, only its own. Cancelling the call cancels it.

        Args:
            agent: as the target of `callboard.run`.
            prompt: the prompt.
            result: the type of its result; by default that of the agent.
            variables: values of the agent's variables.

        Returns:
            The outcome; an agent that failed does not raise. `usage` is empty, because it is part of the run's.

        Raises:
            UsageError, InvalidFile, ConfigError: the agent could not start.
        """
        calling = self._agent
        if calling is None:
            raise UsageError("this tool was not called by an agent, so it can't run one")
        start = partial(calling.run, self._me, agent, prompt, {"result": result, "variables": variables})
        loop = self._me.root.loop
        # The function may run in the caller's own event loop (asyncio, or another trio loop): hop to the run's loop.
        if loop is None or (trio.lowlevel.in_trio_task() and trio.lowlevel.current_trio_token() is loop.token):
            return await start()
        return await loop.call(start)

    @overload
    def run_sync(self, agent: object, prompt: str = "", *, result: type[R], **variables: str) -> Outcome[R]: ...
    @overload
    def run_sync(self, agent: TypedAgent[R], prompt: str = "", **variables: str) -> Outcome[R]: ...
    @overload
    def run_sync(self, agent: object, prompt: str = "", *, result: Any = None, **variables: str) -> Outcome[Any]: ...
    def run_sync(self, agent: object, prompt: str = "", *, result: Any = None, **variables: str) -> Outcome[Any]:
        """Run an agent like `run`, from a plain function. Blocks the function's thread."""
        return trio.from_thread.run(partial(self.run, agent, prompt, result=result, **variables))
