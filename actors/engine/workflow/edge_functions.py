"""Conditions and processors that a workflow names and that are defined in Python files next to it.

The functions of a file are found by parsing, without executing it (`plan.functions_in`). They run in one process per
run, started at the first call. Starting Python takes longer than thousands of calls, and functions share data within a
run (`global_state`), so a process per call would not do. The process is a child of the run's actor and ends with it. A
function that does not answer in time costs the process and its state; the next call starts another process.

Calls are lines of JSON on its stdin, answers are lines on its stdout. A function can ask the user before it
answers. Output of the functions is redirected to stderr, and from there to the run's events.

In a durable run the journal row of a call (`Called`) contains the shared data of the processors if the data
changed. A later process receives the latest copy. Global variables of modules are lost.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.errors import ToolFailed
from ....protocol.journal import decode_value
from ....protocol.workflow_messages import CALL, Called
from ...io.imports import PROCESSES, imported
from ...io.secret_redaction import hidden_tail
from ...work.call_clock import Clock
from ...work.journal.actor_journal import scope_of
from ...work.sandbox.run_sandbox import sandboxed
from ...work.tools.files.call_process import USUAL, Printed, impose
from ...work.tools.files.environment import inherited
from ...work.tools.files.runner_protocol import NotUnderstood, answer_to
from .edges import Change, Functions
from .plan import HOST, roots_of

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ....supervisors.process import Process
    from .plan import WorkflowRun


WORKER = Path(__file__).parent / "workers" / "edges.py"

ANSWERS_WITHIN = 60.0
"""Seconds for one call; longer work belongs into a node."""

LONGEST_ANSWER = 16 * 1024 * 1024
"""Largest answer in bytes."""


class EdgeFunctions:
    """Process with the edge functions of one run, and its client.

    Args:
        me: the run's actor, the parent of the process.
    """

    def __init__(self, me: Actor, run: WorkflowRun) -> None:
        self._me = me
        self._run = run
        self._turn = trio.Lock()
        self._process: Process | None = None
        self._scope = scope_of(me)
        self._number = 0
        self._shared: dict[str, Any] | None = None
        self._told = 0
        if self._scope is not None and run.plan.named.processors:
            for value in self._scope.noted_below(CALL):
                called = decode_value(value, Called)
                if called.shared is not None and called.number > self._number and called.whose == self._scope.path:
                    self._number, self._shared = called.number, called.shared
            self._told = self._number

    def keeping(self, called: Called) -> Called:
        """Return a call's journal row, with the processors' shared data if that changed since the last row."""
        if self._scope is None or self._number == self._told:
            return called
        self._told = self._number
        return msgspec.structs.replace(called, whose=self._scope.path, number=self._number, shared=self._shared or {})

    def functions(self, changes: Mapping[str, Change] | None = None) -> Functions:
        """Return the functions for the edges of a structure; `changes` are further processors."""
        named = self._run.plan.named
        return Functions(
            conditions={name: partial(self._call, "condition", file, name) for name, file in named.conditions.items()},
            processors={
                **(changes or {}),
                **{name: partial(self._call, "processor", file, name) for name, file in named.processors.items()},
            },
        )

    async def _call(self, kind: str, file: Path, name: str, text: str) -> Any:
        """Call a function and return its answer.

        Raises:
            ToolFailed: the function failed or did not answer in time, or its process died.
        """
        what = f"{kind} '{name}' of {file}"
        flow = self._run.context.flow
        if flow is not None:
            await flow.start(self._me, "edge-functions", what)
        # Sent with each call, because a call can be the first of a new process.
        given: dict[str, Any] = {"roots": [str(root) for root in roots_of(file)]}
        if kind == "processor":
            workspace, variables = await self._run.workspace.path(), self._run.plan.workflow.vars
            given |= {"workspace": str(workspace), "vars": variables, "session_id": self._me.stream.run}
            if self._shared and (self._process is None or self._process.ended is not None):
                given |= {"shared": self._shared}
        # Only durable runs need a copy of the shared data, and only processors can change it.
        keeps = self._scope is not None and kind == "processor"
        call = {
            "keeps": keeps,
            "kind": kind,
            "file": str(file),
            "function": name,
            "text": text,
            "host": str(HOST),
            "given": given,
        }
        line = msgspec.json.encode(call) + b"\n"
        answer: dict[str, Any] | None = None
        # Answers carry no id, so only one call is under way.
        async with self._turn:
            clock = Clock(ANSWERS_WITHIN)
            try:
                with clock.scope:
                    clock.start()
                    said = await self._answer(line, what)
                    while "ask" in said:
                        # The user may take any time to answer.
                        with clock.stopped():
                            told = await self._asked(said["ask"], name)
                        said = await self._answer(msgspec.json.encode(told) + b"\n", what)
                    answer = said
            finally:
                if answer is None:  # The call was cut off in the middle, so the next line of stdout would belong to it.
                    self._drop()
                elif keeps:
                    self._take(answer, what)
        if answer is None:
            raise ToolFailed(f"{what} did not answer within {ANSWERS_WITHIN:g} s, so its process was ended")
        if "error" in answer:
            raise ToolFailed(f"{what} failed: {answer['error']}")
        return answer["value"]

    def _take(self, answer: Mapping[str, Any], what: str) -> None:
        """Store the shared data after a call; data that JSON cannot represent makes the run impossible to resume."""
        assert self._scope is not None
        if "no_data" in answer:
            self._scope.run.spoil(
                f"{what} stored {answer['no_data']} in the data that processors share, which is not JSON data"
            )
        elif "shared" in answer and answer["shared"] != (self._shared or {}):
            self._number, self._shared = self._number + 1, answer["shared"]

    async def _asked(self, fields: Mapping[str, object], name: str) -> dict[str, str]:
        words = [f"{key}={value}" for key, value in fields.items()]
        try:
            status, values = await answer_to(self._me, words, name)
        except NotUnderstood as error:
            return {"unanswered": str(error)}
        return {"answer" if status == "ok" else "unanswered": values[0] if values else ""}

    async def _answer(self, line: bytes, what: str) -> dict[str, Any]:
        process = await self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(trio.BrokenResourceError):  # the read below fails too, and reports why the process has ended
            await process.stdin.send_all(line)
        read = bytearray()
        while not read.endswith(b"\n"):
            data = await process.stdout.receive_soon()
            read += data
            if not data:
                tail = hidden_tail(process.stderr_tail.strip(), 500)
                raise ToolFailed(
                    f"the process of {what} ended before it answered" + (f"; it wrote: {tail}" if tail else "")
                )
            if len(read) > LONGEST_ANSWER:
                raise ToolFailed(f"{what} answered with more than {LONGEST_ANSWER // 1024 // 1024} MiB")
        decoded: dict[str, Any] = msgspec.json.decode(read)
        return decoded

    async def _running(self) -> Process:
        if self._process is None or self._process.ended is not None:
            await imported(PROCESSES)
            from ....supervisors.process import start_process

            me = self._me
            # Processors may write to the workspace, which is outside the writable part of the sandbox.
            writes = [await self._run.workspace.path()] if self._run.plan.named.processors else []
            self._process = await start_process(
                me,
                [sys.executable, str(WORKER)],
                name="edge-functions",
                env=inherited(self._run.context.environ),
                stdin="pipe",
                confinement=await sandboxed(me, "edge-functions", writes=writes),
                on_stderr=Printed(me, "edge-functions", USUAL, lambda _reason: self._drop()).stderr,
            )
            impose(self._process.pid, USUAL)
        return self._process

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.ref.cancel()
            if self._shared:
                # The shared data is lost with the process. The next row has to say so, or a later incarnation would
                # restore old data.
                self._number, self._shared = self._number + 1, None
