"""Tasks (`io.modelcontextprotocol/tasks`): a server answers a call with a handle, and the client polls for the result.

    tools/call -> resultType: task    tasks/get, at the server's interval, until the task is completed
                                      tasks/update with the answers to its questions, each asked once
                                      tasks/cancel if the caller is cancelled

Each request has the time limit of a call, so a handle can't make a caller wait for ever on a dead server. A server that
no longer knows its task has failed the call.
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
from ..links.link import CallOrigin, Json
from .questions import ServerQuestion, ServerQuestions

EXTENSION = "io.modelcontextprotocol/tasks"
KIND = "task"
"""`resultType` of a handle."""

FIRST_LOOK = 1.0
"""Seconds between two polls if the server names no interval."""

SHORTEST, LONGEST = 0.05, 60.0
"""Limits of the seconds between two polls, whatever the server names."""

CANCELS_WITHIN = 2.0
"""Seconds for a server to accept the cancellation."""

Ask = Callable[[str, Mapping[str, Json], CallOrigin | None, Mapping[str, str]], Awaitable[dict[str, Json]]]
"""Sends a request with this method, parameters, origin and headers."""


class _Task(msgspec.Struct, frozen=True, rename="camel"):
    task_id: str
    status: Literal["working", "input_required", "completed", "cancelled", "failed"]
    status_message: str | None = None
    poll_interval_ms: float | None = None
    input_requests: dict[str, ServerQuestion] = {}
    result: dict[str, Json] | None = None
    error: dict[str, Json] | None = None

    @property
    def pause(self) -> float:
        """Seconds until the next poll."""
        if self.poll_interval_ms is None:
            return FIRST_LOOK
        return min(max(self.poll_interval_ms / 1000, SHORTEST), LONGEST)


class TaskFollower:
    """Polls one task until it ends.

    Args:
        server: name of the server.
        ask: sends requests.
        questions: answers questions of the server.
        owner: actor whose shield covers the last request, for a call without an origin.
        timeout: seconds for one request.
    """

    def __init__(self, server: str, ask: Ask, questions: ServerQuestions, owner: Actor, timeout: float) -> None:
        self._server = server
        self._ask = ask
        self._questions = questions
        self._owner = owner
        self._timeout = timeout
        self._looks = 0

    async def result(self, created: Mapping[str, Json], caller: CallOrigin | None) -> dict[str, Json]:
        """Return the result of the call.

        Raises:
            McpError: the task has failed, was cancelled by the server, or is unknown to it.
            McpLost: the connection broke.
        """
        task = self._read(created)
        # The work of the server does not count against the time limit of the call.
        stands_still = nullcontext() if caller is None or caller.works is None else caller.works()
        try:
            with stands_still:
                return await self._followed(task, caller)
        except trio.Cancelled:
            actor = self._owner if caller is None else caller.me
            # A cancelled task can't await anything without a shield, and the server would work on for nothing.
            with actor.root.shield(CANCELS_WITHIN):
                await self._cancel(task)
            raise

    async def _followed(self, task: _Task, caller: CallOrigin | None) -> dict[str, Json]:
        answered: set[str] = set()
        while True:
            match task.status:
                case "completed":
                    if task.result is None:
                        raise McpError(f"MCP server '{self._server}' has completed a task without a result")
                    return task.result
                case "failed":
                    why = (task.error or {}).get("message") or task.status_message or "no reason given"
                    raise McpError(f"MCP server '{self._server}' reported a failed task: {str(why)[:400]}")
                case "cancelled":
                    why = task.status_message or "no reason given"
                    raise McpError(f"MCP server '{self._server}' has cancelled a task: {why[:400]}")
            # The server may list a question again until it has processed the answer.
            new = {key: asked for key, asked in task.input_requests.items() if key not in answered}
            if new:
                answers = await self._questions.answers(new, caller)
                answered |= new.keys()
                await self._made("tasks/update", task, inputResponses=answers)
            else:
                self._report(task, caller)
                await trio.sleep(task.pause)
            task = self._read(await self._made("tasks/get", task))

    def _report(self, task: _Task, caller: CallOrigin | None) -> None:
        self._looks += 1
        if caller is not None and caller.on_progress is not None and task.status_message:
            caller.on_progress(Progress(progress_token=0, progress=self._looks, message=task.status_message))

    async def _made(self, method: str, task: _Task, **more: Json) -> dict[str, Json]:
        with trio.move_on_after(self._timeout):
            return await self._ask(method, {"taskId": task.task_id, **more}, None, {})
        raise McpError(f"MCP server '{self._server}' did not answer {method} within {self._timeout:g} s")

    async def _cancel(self, task: _Task) -> None:
        with suppress(McpError):  # the task or the server has already ended
            await self._ask("tasks/cancel", {"taskId": task.task_id}, None, {})

    def _read(self, status: Mapping[str, Json]) -> _Task:
        try:
            return convert(status, _Task)
        except msgspec.ValidationError as error:
            raise McpError(f"MCP server '{self._server}' sent an invalid task status: {error}") from error
