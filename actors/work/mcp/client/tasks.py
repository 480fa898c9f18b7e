"""Tasks: a server answers a call with a handle, works on, and is asked how far it is (`io.modelcontextprotocol/tasks`).

    tools/call -> resultType: task    tasks/get, as often as the server wants it, until it is completed
                                      tasks/update with the answers to what it asks meanwhile, each asked once
                                      tasks/cancel if the caller goes away

A handle is no promise that keeps a caller waiting for ever: each request has the time of a call, and a server that does
not know its task any more has failed the call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from typing import Literal

import msgspec
import trio

from .....protocol.decoding import convert
from .....protocol.errors import McpError
from .....protocol.mcp.model import Progress
from .....supervisors import Actor
from ..links.link import Caller, Json
from .questions import Asked, Questions

EXTENSION = "io.modelcontextprotocol/tasks"
KIND = "task"
"""The `resultType` of a handle."""

FIRST_LOOK = 1.0
"""Seconds between two looks where the server says nothing of it."""

SHORTEST, LONGEST = 0.05, 60.0
"""Seconds between two looks, whatever it says."""

CANCELS_WITHIN = 2.0
"""Seconds that a server has to take note that nobody waits any more."""

Ask = Callable[[str, Mapping[str, Json], Caller | None, Mapping[str, str]], Awaitable[dict[str, Json]]]
"""Makes a request of this method, with these parameters and headers."""


class _Task(msgspec.Struct, frozen=True, rename="camel"):
    task_id: str
    status: Literal["working", "input_required", "completed", "cancelled", "failed"]
    status_message: str | None = None
    poll_interval_ms: float | None = None
    input_requests: dict[str, Asked] = {}
    result: dict[str, Json] | None = None
    error: dict[str, Json] | None = None

    @property
    def pause(self) -> float:
        """Seconds until the next look."""
        if self.poll_interval_ms is None:
            return FIRST_LOOK
        return min(max(self.poll_interval_ms / 1000, SHORTEST), LONGEST)


class Following:
    """Follows one task to its end.

    Args:
        server: its name.
        ask: makes requests.
        questions: has answered what the server asks.
        owner: whose shield covers the last request, where nobody called.
        timeout: seconds of one request.
    """

    def __init__(self, server: str, ask: Ask, questions: Questions, owner: Actor, timeout: float) -> None:
        self._server = server
        self._ask = ask
        self._questions = questions
        self._owner = owner
        self._timeout = timeout
        self._looks = 0

    async def result(self, created: Mapping[str, Json], caller: Caller | None) -> dict[str, Json]:
        """The call's result.

        Raises:
            McpError: the task has failed, was cancelled over there, or is not known any more.
            McpLost: the connection broke.
        """
        task = self._read(created)
        stands_still = nullcontext() if caller is None or caller.works is None else caller.works()
        try:
            with stands_still:
                return await self._followed(task, caller)
        except trio.Cancelled:
            actor = self._owner if caller is None else caller.me
            with actor.root.shield(CANCELS_WITHIN):
                await self._cancel(task)
            raise

    async def _followed(self, task: _Task, caller: Caller | None) -> dict[str, Json]:
        answered: set[str] = set()
        while True:
            match task.status:
                case "completed":
                    if task.result is None:
                        raise McpError(f"MCP server '{self._server}' has completed a task without a result")
                    return task.result
                case "failed":
                    why = (task.error or {}).get("message") or task.status_message or "it does not say why"
                    raise McpError(f"MCP server '{self._server}' failed at a task: {str(why)[:400]}")
                case "cancelled":
                    why = task.status_message or "it does not say why"
                    raise McpError(f"MCP server '{self._server}' has cancelled a task: {why[:400]}")
            new = {key: asked for key, asked in task.input_requests.items() if key not in answered}
            if new:
                answers = await self._questions.answers(new, caller)
                answered |= new.keys()
                await self._made("tasks/update", task, inputResponses=answers)
            else:
                self._tell(task, caller)
                await trio.sleep(task.pause)
            task = self._read(await self._made("tasks/get", task))

    def _tell(self, task: _Task, caller: Caller | None) -> None:
        self._looks += 1
        if caller is not None and caller.on_progress is not None and task.status_message:
            caller.on_progress(Progress(progress_token=0, progress=self._looks, message=task.status_message))

    async def _made(self, method: str, task: _Task, **more: Json) -> dict[str, Json]:
        with trio.move_on_after(self._timeout):
            return await self._ask(method, {"taskId": task.task_id, **more}, None, {})
        raise McpError(f"MCP server '{self._server}' did not answer {method} within {self._timeout:g} s")

    async def _cancel(self, task: _Task) -> None:
        with suppress(McpError):  # it is over, or the server is
            await self._ask("tasks/cancel", {"taskId": task.task_id}, None, {})

    def _read(self, told: Mapping[str, Json]) -> _Task:
        try:
            return convert(told, _Task)
        except msgspec.ValidationError as error:
            raise McpError(
                f"MCP server '{self._server}' tells of a task in a way that can't be read: {error}"
            ) from error
