"""Asks at the terminal for a run's missing inputs: variables of an agent, the task of a workflow.

Without a terminal, or without an answer (Ctrl-D), they stay missing, and the run says so.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from .. import GraphAgent, LoopAgent, WorkflowAgent, load
from ..actors.io.vault.lookups import ForChecks
from ..actors.work.variables import missing_variables
from ..protocol.kernel.questions import Question
from ..protocol.requests import RunRequest
from .vault_opening import vault_of

if TYPE_CHECKING:
    from ..protocol.agent import Agent
    from ..protocol.graph.model import Graph, Variable


def asked_for(request: RunRequest, config_dir: str | None, session: str | None = None) -> RunRequest:
    """The request with what a person at the terminal gives for its missing variables, and for its missing task.

    Args:
        session: whose values of variables are there already.

    Raises:
        CallboardError: the target can't be read, as the run would say it.
        KeyboardInterrupt: on Ctrl-C.
    """
    assert isinstance(request.target, str)
    target = load(
        request.target,
        strict=request.strict,
        compat=request.compat,
        variables=request.variables,
        config_dir=config_dir,
    )
    if not isinstance(target, WorkflowAgent):  # one of those was read with them, and nothing was missing
        from .session_files import variables_kept

        kept = variables_kept(session, target, config_dir) if session else {}
        values = with_missing(target, {**kept, **request.variables}, config_dir)
        return msgspec.structs.replace(request, variables=values)
    if request.prompt.strip() or request.attach:
        return request
    return msgspec.structs.replace(request, prompt=_task_of(target))


def with_missing(agent: GraphAgent | LoopAgent, given: dict[str, str], config_dir: str | None) -> dict[str, str]:
    """The values given, and those that a person at the terminal gives for the rest.

    Raises:
        KeyboardInterrupt: on Ctrl-C.
    """
    values = dict(given)
    secrets = ForChecks(vault_of(config_dir))
    for variable in missing_variables(agent.name, definition(agent).variables, given, os.environ, secrets=secrets):
        try:
            values[variable.name] = _ask(agent.name, variable)
        except EOFError:
            break
    return values


def _task_of(flow: WorkflowAgent) -> str:
    """The task that a person gives a workflow that says what it wants (`initial_instruction`); "" for no task."""
    from .render.dialog import Dialog

    wanted = flow.workflow.graph.initial_instruction
    if not wanted or not wanted.strip():
        return ""
    try:
        task = Dialog(Question(id="", actor="", node=flow.name, text=wanted.strip())).run()
    except EOFError:
        return ""
    assert isinstance(task, str)
    return task


def definition(agent: GraphAgent | LoopAgent) -> Graph | Agent:
    """What the file of either kind of agent says."""
    return agent.graph if isinstance(agent, GraphAgent) else agent.agent


def _ask(agent: str, variable: Variable) -> str:
    from .render.dialog import Dialog

    about = f"{variable.name}: {variable.description.strip()}" if variable.description.strip() else variable.name
    text = f"{about}\n(a variable of this agent; --var {variable.name}=... sets it beforehand)"
    value = Dialog(Question(id="", actor="", node=agent, text=text)).run()
    assert isinstance(value, str)
    return value
