"""Runs of workflows: a kernel, a run's actor with its events, people who answer from a list."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import trio

from callboard.actors.engine.workflow.job import Job
from callboard.actors.engine.workflow.machine.perform import Said
from callboard.actors.engine.workflow.messages import Message
from callboard.actors.engine.workflow.plan import WorkflowPlan, compile_workflow
from callboard.actors.engine.workflow.run import WorkflowResult, run_workflow
from callboard.actors.runs.execution import Answers
from callboard.actors.work.context import RunContext
from callboard.protocol.errors import NodeFailed
from callboard.protocol.events import Event
from callboard.protocol.kernel.questions import Question
from callboard.protocol.requests import Limits
from callboard.protocol.workflow import Known, read_workflow
from callboard.supervisors import Actor, Ref, Root
from callboard.supervisors.ref import End


def written(
    directory: Path, yaml: str, compat: Any = None, known: Known | None = None, environ: Mapping[str, str] | None = None
) -> WorkflowPlan:
    """A plan of a workflow whose file is in that directory."""
    text = textwrap.dedent(yaml)
    found, problems = read_workflow(text, "wf.yaml", compat=compat, known=known, environ={})
    assert found is not None, "\n".join(map(str, problems))
    return compile_workflow(found, directory / "wf.yaml", environ or {})


class Clerk:
    """A front end that keeps the questions until somebody asks for them."""

    name = "clerk"

    def __init__(self) -> None:
        self.open: dict[str, Question] = {}
        self._send, self._receive = trio.open_memory_channel[Question](10_000)

    def asked(self, question: Question) -> None:
        self.open[question.id] = question
        self._send.send_nowait(question)

    def closed(self, question_id: str, by: str) -> None:
        self.open.pop(question_id, None)

    async def next(self) -> Question:
        """The next question, in the order in which they came."""
        return await self._receive.receive()


class Naps:
    """A type of nodes, `nap`, whose config says how long it takes and what comes of it.

    Attributes:
        begun: who began to nap, and when.
    """

    known = Known(node_types=frozenset({"nap"}))

    def __init__(self) -> None:
        self.begun: list[tuple[str, float]] = []
        self._first: float | None = None

    def load(self) -> Any:
        return self.run

    async def run(self, me: Actor, job: Job) -> Any:
        now = trio.current_time()
        self._first = now if self._first is None else self._first
        self.begun.append((job.node.id, now - self._first))
        if "fails" in job.values:
            raise NodeFailed(job.values["fails"])
        if "seconds" in job.values:
            await trio.sleep(job.values["seconds"])
        if "gives" in job.values:
            return job.values["gives"]
        return Said(outputs=(Message(role="assistant", content=f"{job.node.id} napped"),))


def chained(directory: Path, count: int, kind: str) -> WorkflowPlan:
    """Nodes in a row."""
    nodes = "".join(f"    - {{id: N{i}, type: {kind}, config: {{}}}}\n" for i in range(count))
    edges = "".join(f"    - {{from: N{i}, to: N{i + 1}}}\n" for i in range(count - 1))
    yaml = f"graph:\n  start: [N0]\n  nodes:\n{nodes}  edges:\n{edges}"
    return written(directory, yaml, known=Naps.known)


def fanned_out(directory: Path, count: int, kind: str) -> WorkflowPlan:
    """One node, many at once, one node."""
    nodes = "".join(f"    - {{id: N{i}, type: {kind}, config: {{}}}}\n" for i in range(count))
    edges = "".join(f"    - {{from: Start, to: N{i}}}\n    - {{from: N{i}, to: End}}\n" for i in range(count))
    both = "".join(f"    - {{id: {id}, type: passthrough, config: {{}}}}\n" for id in ("Start", "End"))
    yaml = f"graph:\n  start: [Start]\n  nodes:\n{both}{nodes}  edges:\n{edges}"
    return written(directory, yaml, known=Naps.known)


def mapped(directory: Path, *, units: int, at_once: int, seconds: float) -> WorkflowPlan:
    """A map over the lines of a text, each taking so long."""
    yaml = f"""
        graph:
          start: [S]
          nodes:
            - {{id: S, type: literal, config: {{content: {json.dumps(chr(10).join(map(str, range(units))))}}}}}
            - {{id: M, type: nap, config: {{seconds: {seconds}}}}}
          edges:
            - from: S
              to: M
              dynamic: {{type: map, config: {{split_type: lines, max_parallel: {at_once}}}}}
        """
    return written(directory, yaml, known=Naps.known)


class WorkflowRunner:
    """See the module.

    Attributes:
        events: of every run, in order.
        result: of the last run, also of one that was cancelled.
    """

    def __init__(self, root: Root, directory: Path) -> None:
        self.root = root
        self.directory = directory
        self.events: list[Event] = []
        self.result = WorkflowResult()
        self._ears = ExitStack()

    def open(self) -> ExitStack:
        """Whoever listens does so until the end of this block."""
        return self._ears

    def start(
        self,
        plan: WorkflowPlan,
        task: str = "TASK",
        *,
        answers: Sequence[str] | Mapping[str, Any] | None = None,
        name: str = "run-1",
        workspace: Path | None = None,
    ) -> Ref[Any]:
        """Start a run; its actor."""
        stream = self.root.bus.open(name)
        self._ears.enter_context(stream.listen(self.events.append))
        context = RunContext(
            gateway=cast("Any", None),
            limits=Limits(),
            config_dir=self.directory,
            environ=dict(os.environ),
            run_agent=cast("Any", None),
        )
        result = self.result = WorkflowResult()
        given = [Message(role="user", content=task)]

        async def body(me: Actor) -> WorkflowResult:
            return await run_workflow(me, plan, given, context, result=result, workspace=workspace)

        actor = self.root.actor.adopt(body, (), name=name, bond="watched", stream=stream)
        actor.policy = Answers(list(answers) if isinstance(answers, Sequence) else answers).policy
        actor.launch()
        return actor.ref

    def clerk(self) -> Clerk:
        """Somebody at a front end, from now on."""
        return self._ears.enter_context(_attached(self.root, Clerk()))

    async def run(self, plan: WorkflowPlan, task: str = "TASK", **options: Any) -> WorkflowResult:
        """A run to its end."""
        end: End = await self.start(plan, task, **options).wait()
        assert end.error is None, end.error
        return cast("WorkflowResult", end.value)

    def of(self, kind: str) -> list[Any]:
        """The data of the events of this kind so far, without warnings of labels: tests run without a sandbox."""
        found = [event.data for event in self.events if event.kind == kind]
        return [data for data in found if getattr(data, "code", "") != "labels"]


@contextmanager
def _attached(root: Root, clerk: Clerk) -> Iterator[Clerk]:
    with root.questions.attach(clerk):
        yield clerk


@asynccontextmanager
async def open_workflow_runner(directory: Path) -> AsyncIterator[WorkflowRunner]:
    """Return a workflow runner; no actor of it is left at the end."""
    async with Root() as root:
        workflow_runner = WorkflowRunner(root, directory)
        with workflow_runner.open():
            yield workflow_runner
