"""`callboard.Root`: the root of a program, with the methods that its runs are started and answered by.

    async with callboard.Root() as root:  # under trio or asyncio
        outcome = await root.run("researcher", "What is a callboard?")

The methods are those of the module `callboard`, for this root. They may be awaited in trio tasks and in asyncio tasks,
in the event loop of the block or in that of another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, final

import trio

from ...protocol.events import Event
from ...protocol.outcome import Outcome
from ...protocol.repeats import OnUnknown
from ...protocol.requests import AnswerText
from ..work.tools.functions import Function
from ..work.tools.tool import Tool
from .root import Root as SharedServices
from .run import RunOptions, Target, resume, run

if TYPE_CHECKING:
    from .rerun.fork import At
    from .run_stream import RunStream


@final
class Root(SharedServices):
    """Many runs in one process, which share settings, limits, connections to models, and MCP servers.

    It is entered with `async with` under trio, or under asyncio. Under asyncio it lives in a thread of its own, and
    signals stay with the program.

    Args: see `SharedServices`.
    """

    async def run(self, target: Target, prompt: str = "", **options: Unpack[RunOptions]) -> Outcome:
        """Run an agent or a workflow to its end; see `callboard.run`.

        Under asyncio, async functions given as `tools`, and callbacks, run in the caller's loop.
        """
        return await run(target, prompt, **options, root=self)

    def stream(self, target: Target, prompt: str = "", **options: Unpack[RunOptions]) -> RunStream:
        """Run an agent or a workflow, and follow it: `async with root.stream(target, prompt) as run:`.

        Takes the arguments of `run`. Leaving the block cancels the run; see `RunStream`.
        """
        from .run_stream import RunStream

        return RunStream(self, target, prompt, options)

    async def resume(
        self,
        run: str,
        *,
        tools: Sequence[Function | Tool] = (),
        on_event: Callable[[Event], None] | None = None,
        with_changes: bool = False,
        strict: bool = False,
        on_unknown: OnUnknown | None = None,
    ) -> Outcome:
        """Go on with a durable run whose process was killed; see `callboard.resume`."""
        return await resume(
            run,
            tools=tools,
            on_event=on_event,
            with_changes=with_changes,
            strict=strict,
            on_unknown=on_unknown,
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
        """Begin a new run with the first rows of a durable one; see `callboard.fork`."""
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
        """Answer a question by its id: of a run under this root, or of an interrupted durable run of this machine.

        An interrupted run finds the answer when it is resumed. That to a durable run is on disk when this returns.

        Returns:
            False if the question is not open: answered already, withdrawn, or never asked.
        """
        from ..work.journal.left import run_of
        from .parked import leave_for

        async def within() -> bool:
            if await self.questions.answer_for_good(question, value, by=by):
                return True
            run = run_of(question)
            return bool(run) and await trio.to_thread.run_sync(leave_for, run, question, value, by)

        return await self.call(within)

    async def close(self) -> None:
        """End all runs, and return when nothing of them is left. Leaving the block does the same."""
        if self._thread is not None:
            await self._thread.close()
        else:
            await self.call(self.kernel.stop)
