"""Conditions and processors that a workflow names and that stand in Python files beside it.

Which functions a file has is read from its text. They run in one process per run, started when the first of them is
needed: starting Python takes longer than thousands of calls, and what such functions leave for each other in a run
(`global_state`) needs a home. The process belongs to the run's actor and ends with it. A function that does not
answer in time costs the process, and what was left in it; the next call starts another.

Calls are lines of JSON on its stdin, answers on its stdout, and a function may ask the run's person in between. What
the functions print goes to its stderr, and from there into the run's events.

In a durable run the row of a call has what the processors shared after it (`Called`), as far as that is another than
before, and a later process is given the last of it. What modules keep by themselves begins anew.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from .....protocol.errors import ToolFailed
from .....protocol.journal import decode_value
from .....protocol.workflow_messages import CALL, Called
from ....work.call_clock import Clock
from ....work.journal.scope import here
from ....work.sandbox.current import sandboxed
from ....work.tools.files.environment import inherited
from ....work.tools.files.limits import USUAL, impose
from ....work.tools.files.output import Printed
from ....work.tools.files.questions import NotUnderstood, answer_to
from ..places import HOST, function_files, roots_of
from .conditions import Change, Functions

if TYPE_CHECKING:
    from .....supervisors import Actor
    from .....supervisors.process import Process
    from ..plan import WorkflowRun

WORKER = Path(__file__).parents[1] / "workers" / "edges.py"

ANSWERS_WITHIN = 60.0
"""Seconds for one call. An edge decides; who works for longer is a node."""

LONGEST_ANSWER = 16 * 1024 * 1024
"""Bytes of one answer."""


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """The functions that the edges of a workflow name, with the files they stand in.

    Attributes:
        runs_code: `code_save_and_run` is among the processors, and it is ours.
    """

    conditions: Mapping[str, Path] = {}
    processors: Mapping[str, Path] = {}
    runs_code: bool = False

    def __bool__(self) -> bool:
        return bool(self.conditions or self.processors or self.runs_code)


def functions_in(directory: Path | None) -> dict[str, Path]:
    """The functions in the Python files of a directory, by name; of the same name, that of the first file.

    Files that are no Python have none.
    """
    found: dict[str, Path] = {}
    for file in function_files(directory):
        for name in _functions_of(file):
            found.setdefault(name, file.absolute())
    return found


def _functions_of(file: Path) -> list[str]:
    with warnings.catch_warnings(), suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        warnings.simplefilter("ignore")  # of the user's text
        body = ast.parse(file.read_bytes()).body
        functions = (node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        return [node.name for node in functions if not node.name.startswith("_")]
    return []


class EdgeFunctions:
    """The functions of one run.

    Args:
        me: the run's actor, whose child the process is.
    """

    def __init__(self, me: Actor, run: WorkflowRun) -> None:
        self._me = me
        self._run = run
        self._turn = trio.Lock()
        self._process: Process | None = None
        self._scope = here(me)
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
        """It with what the processors share, if that has changed since this was last asked."""
        if self._scope is None or self._number == self._told:
            return called
        self._told = self._number
        return msgspec.structs.replace(called, whose=self._scope.path, number=self._number, shared=self._shared or {})

    def functions(self, changes: Mapping[str, Change] | None = None) -> Functions:
        """For the edges of a structure; `changes` are further processors."""
        named = self._run.plan.named
        return Functions(
            conditions={name: partial(self._call, "condition", file, name) for name, file in named.conditions.items()},
            processors={
                **(changes or {}),
                **{name: partial(self._call, "processor", file, name) for name, file in named.processors.items()},
            },
        )

    async def _call(self, kind: str, file: Path, name: str, text: str) -> Any:
        """What the function answers. Raises ToolFailed: it failed, did not answer in time, or its process died."""
        what = f"{kind} '{name}' of {file}"
        given: dict[str, Any] = {"roots": [str(root) for root in roots_of(file)]}
        if kind == "processor":
            workspace, variables = await self._run.workspace.path(), self._run.plan.workflow.vars
            given |= {"workspace": str(workspace), "vars": variables, "session_id": self._me.stream.run}
            if self._shared and (self._process is None or self._process.ended is not None):
                given |= {"shared": self._shared}
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
        async with self._turn:
            clock = Clock(ANSWERS_WITHIN)
            try:
                with clock.scope:
                    clock.start()
                    said = await self._answer(line, what)
                    while "ask" in said:
                        with clock.stopped():
                            told = await self._asked(said["ask"], name)
                        said = await self._answer(msgspec.json.encode(told) + b"\n", what)
                    answer = said
            finally:
                if answer is None:  # in the middle of a line or of a call
                    self._drop()
                elif keeps:
                    self._take(answer, what)
        if answer is None:
            raise ToolFailed(f"{what} did not answer within {ANSWERS_WITHIN:g} s, and was ended")
        if "error" in answer:
            raise ToolFailed(f"{what} failed: {answer['error']}")
        return answer["value"]

    def _take(self, answer: Mapping[str, Any], what: str) -> None:
        """What the processors share after a call."""
        assert self._scope is not None
        if "no_data" in answer:
            self._scope.run.spoil(f"{what} has put {answer['no_data']} into what processors share, which is no data")
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
        with suppress(trio.BrokenResourceError):  # the code below says that it has ended, and why
            await process.stdin.send_all(line)
        read = bytearray()
        while not read.endswith(b"\n"):
            data = await process.stdout.receive_soon()
            read += data
            if not data:
                tail = process.stderr_tail.strip()[-500:]
                raise ToolFailed(f"the process of {what} has ended" + (f"; it wrote: {tail}" if tail else ""))
            if len(read) > LONGEST_ANSWER:
                raise ToolFailed(f"{what} answered with more than {LONGEST_ANSWER // 1024 // 1024} MiB")
        decoded: dict[str, Any] = msgspec.json.decode(read)
        return decoded

    async def _running(self) -> Process:
        if self._process is None or self._process.ended is not None:
            from .....supervisors.process import start_process

            me = self._me
            self._process = await start_process(
                me,
                [sys.executable, str(WORKER)],
                name="edge-functions",
                env=inherited(self._run.context.environ),
                stdin="pipe",
                confinement=await sandboxed(me, "edge-functions"),
                on_stderr=Printed(me, "edge-functions", USUAL, lambda _reason: self._drop()).stderr,
            )
            impose(self._process.pid, USUAL)
        return self._process

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.ref.cancel()
            if self._shared:
                self._number, self._shared = self._number + 1, None
