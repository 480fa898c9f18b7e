"""Workflows with agents: the scripted model server, a root with all that a run has, whole runs."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import callboard
from callboard.actors.engine.workflow.messages import Message
from callboard.actors.engine.workflow.plan import compile_workflow
from callboard.actors.engine.workflow.run import WorkflowResult, run_workflow
from callboard.actors.runs.begin import ChildAgentRunner
from callboard.actors.runs.execution import Answers
from callboard.actors.work.context import RunContext
from callboard.actors.work.knowledge.run_knowledge import RunKnowledge
from callboard.actors.work.tools.permissions import Permissions
from callboard.protocol.events import Event
from callboard.protocol.requests import Limits
from callboard.protocol.workflow import read_workflow
from callboard.supervisors import Actor, Ref
from callboard.supervisors.ref import End
from support.fake_models import FakeModels

RETRIES = "retry: {enabled: false}"
"""Of an agent whose failure shall show at once."""


class Agents:
    """See the module. `{fake}` in a workflow stands for a provider and the base URL of the server.

    Attributes:
        home: the directory of the workflow.
        events: of every run, in order.
        context: of the last run.
        permissions: of every run.
        ref: the last run's actor.
    """

    def __init__(self, home: Path, models: FakeModels, root: callboard.Root) -> None:
        self.home = home
        self.models = models
        self.root = root
        self.events: list[Event] = []
        self.permissions = Permissions(yes=True)
        self.context: RunContext
        self.ref: Ref[Any]
        self._runs = 0

    async def run(
        self,
        yaml: str,
        task: str = "TASK",
        *,
        compat: Any = None,
        answers: Sequence[str] | Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        name: str = "wf.yaml",
        environ: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        workspace: Path | None = None,
    ) -> WorkflowResult:
        """A run to its end; how far it came, if it was cancelled."""
        fake = f"provider: openai, base_url: '{self.models.openai_base}', api_key: sk-test"
        text = textwrap.dedent(yaml).replace("{fake}", fake)
        found, problems = read_workflow(text, name, compat=compat, environ={}, variables=variables)
        assert found is not None, "\n".join(map(str, problems))
        plan = compile_workflow(found, self.home / name, os.environ)
        root = self.root
        self._runs += 1
        run = f"run-{self._runs}"
        children = ChildAgentRunner(root.config_dir, None, root.loader)
        context = self.context = RunContext(
            gateway=root.gateway,
            limits=limits or Limits(),
            config_dir=root.config_dir,
            environ={**os.environ, **(environ or {})},
            run_agent=children,
            unknown_agent=children.unknown,
            registry=root.registry,
            permissions=self.permissions,
            settings=root.settings,
            mcp=lambda: root.mcp,
            make_knowledge=partial(RunKnowledge, lambda: root.knowledge, agreed=True),
        )
        given = [Message(role="user", content=task)]

        result = WorkflowResult()

        async def body(me: Actor) -> WorkflowResult:
            return await run_workflow(me, plan, given, context, result=result, workspace=workspace)

        with ExitStack() as ears:
            stream = root.bus.open(run)
            ears.enter_context(stream.listen(self.events.append))
            actor = root.kernel.actor.adopt(body, (), name=run, bond="watched", stream=stream)
            actor.policy = Answers(answers).policy
            actor.launch()
            self.ref = actor.ref
            end: End = await actor.ref.wait()
            root.end_run(run)
        assert end.error is None, end.error
        return result

    def of(self, kind: str) -> list[Any]:
        """The data of the events of this kind so far, without warnings of labels: tests run without a sandbox."""
        found = [event.data for event in self.events if event.kind == kind]
        return [data for data in found if getattr(data, "code", "") != "labels"]

    @property
    def warnings(self) -> list[str]:
        """The codes of the warnings so far."""
        return [data.code for data in self.of("run.warning")]


def said(request: Any) -> list[tuple[str, Any]]:
    """Roles and contents of what a model was sent."""
    return [(message["role"], message["content"]) for message in request.json["messages"]]
