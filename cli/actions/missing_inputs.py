"""Questions at the terminal for missing inputs of a run: variables of an agent, the prompt, the task of a workflow.

Without an answer (Ctrl-D) the inputs stay missing, and the run reports it. Without a terminal, a graph that sends its
prompt to a model is not run without one.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import msgspec

from ... import GraphAgent, LoopAgent, WorkflowAgent, load
from ...actors.io.vault.lookups import ForChecks
from ...actors.work.variables import missing_variables
from ...protocol.errors import UsageError
from ...protocol.kernel.questions import Question
from ...protocol.requests import RunRequest
from ..vault_passphrase import vault_of

if TYPE_CHECKING:
    from ...protocol.agent import Agent
    from ...protocol.graph import Graph, Variable


# `{{-` is Jinja's form that removes the blanks before it.
_PROMPT = re.compile(r"\{\{-?\s*initial_prompt\b")


def check_prompt(request: RunRequest, config_dir: str | None) -> None:
    """Refuse a run of a graph that would send an empty prompt to a model. Reads the target if no prompt is given.

    Raises:
        UsageError: a node uses the prompt, and there is none.
        CallboardError: the target can't be read; the same error as in the run.
    """
    # Not stripped: a prompt of blanks is how a script gives an empty one, as the error below says.
    if request.prompt or request.files or request.attach:
        return
    target = _loaded(request, config_dir)
    node = _prompt_user(target)
    if node is not None:
        raise UsageError(
            f"node '{node}' of {target.name} needs a prompt:"
            f' callboard run {request.target} "..." (for an empty prompt: " ")'
        )


def _prompt_user(target: GraphAgent | LoopAgent | WorkflowAgent) -> str | None:
    """Return the first node of a graph that sends the prompt to a model, an agent or a knowledge base, or None."""
    if not isinstance(target, GraphAgent):
        return None
    for name, node in target.graph.nodes.items():
        texts = [getattr(node, key, None) for key in ("prompt", "instructions", "query")]
        if any(isinstance(text, str) and _PROMPT.search(text) for text in texts):
            return name
    return None


def _loaded(request: RunRequest, config_dir: str | None) -> GraphAgent | LoopAgent | WorkflowAgent:
    assert isinstance(request.target, str)
    return load(
        request.target,
        strict=request.strict,
        compat=request.compat,
        variables=request.variables,
        config_dir=config_dir,
    )


def asked_for(request: RunRequest, config_dir: str | None, session: str | None = None) -> RunRequest:
    """Return the request, completed with the user's answers for missing variables, prompt or task.

    Args:
        session: session that may have values of variables already.
    Raises:
        CallboardError: the target can't be read; the same error as in the run.
        KeyboardInterrupt: the user pressed Ctrl-C.
    """
    target = _loaded(request, config_dir)
    if not isinstance(target, WorkflowAgent):  # the branch below handles workflows, which have no variables
        from .sessions import stored_variables

        kept = stored_variables(session, target, config_dir) if session else {}
        values = with_missing(target, {**kept, **request.variables}, config_dir)
        prompt = request.prompt
        if not (prompt or request.files or request.attach) and (
            isinstance(target, LoopAgent) or _prompt_user(target) is not None
        ):
            prompt = _asked(target.name, f"What should {target.name} do?")
        return msgspec.structs.replace(request, variables=values, prompt=prompt)
    if request.prompt.strip() or request.attach:
        return request
    return msgspec.structs.replace(request, prompt=_task_of(target))


def with_missing(agent: GraphAgent | LoopAgent, given: dict[str, str], config_dir: str | None) -> dict[str, str]:
    """Return the given values, completed with the user's answers for missing ones.

    Raises:
        KeyboardInterrupt: the user pressed Ctrl-C.
    """
    values = dict(given)
    # Not the vault itself: that would run its command or ask for a passphrase, only to see what is missing.
    secrets = ForChecks(vault_of(config_dir))
    for variable in missing_variables(agent.name, definition(agent).variables, given, os.environ, secrets=secrets):
        try:
            values[variable.name] = _ask(agent.name, variable)
        except EOFError:
            # Ctrl-D ends all questions, not only this one; the run reports what is still missing.
            break
    return values


def _task_of(flow: WorkflowAgent) -> str:
    """Return the task for a workflow with an `initial_instruction`, as the user types it; "" for no task."""
    wanted = flow.workflow.graph.initial_instruction
    return _asked(flow.name, wanted.strip()) if wanted and wanted.strip() else ""


def _asked(name: str, text: str) -> str:
    """Return the user's answer; "" after Ctrl-D."""
    from ..render.dialog import Dialog

    try:
        given = Dialog(Question(id="", actor="", node=name, text=text)).run()
    except EOFError:
        return ""
    assert isinstance(given, str)
    return given


def definition(agent: GraphAgent | LoopAgent) -> Graph | Agent:
    """Return the parsed file of either kind of agent."""
    return agent.graph if isinstance(agent, GraphAgent) else agent.agent


def _ask(agent: str, variable: Variable) -> str:
    from ..render.dialog import Dialog

    about = f"{variable.name}: {variable.description.strip()}" if variable.description.strip() else variable.name
    text = f"{about}\n(a variable of this agent; --var {variable.name}=... sets it without a question)"
    value = Dialog(Question(id="", actor="", node=agent, text=text)).run()
    assert isinstance(value, str)
    return value
