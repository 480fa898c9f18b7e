"""One run: from `run.started` to exactly one of `run.finished`, `run.failed`, `run.cancelled`.

The run is an actor at the top of the tree, `/run-7f3a01bc`, whose child is the graph or agent that was named. What
is wrong before that actor starts (no such target, an invalid file, a missing variable, an unknown model) is
raised; what goes wrong afterwards is the outcome's `error`.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...protocol.agent import Agent
from ...protocol.chat import Part, Turn
from ...protocol.errors import ConfigError, UsageError
from ...protocol.events import Event, RunStarted
from ...protocol.outcome import Outcome
from ..engine.graph.compat import MODES
from ..work.agent.history import History
from ..work.agent.wishes import Wishes
from ..work.context import RunContext
from ..work.meter import Limits, Meter
from ..work.tools.collect import ToolOptions
from ..work.tools.functions import Function, function_tool
from ..work.tools.permissions import Permissions
from ..work.tools.tool import Tool
from .answers import Answers, Given
from .attachments import attached
from .children import Children
from .execution import Execution
from .given import check_unicode, plain_state
from .prepared import Consulted, Prepared
from .root import Root, current
from .saved import Saved
from .target import GraphAgent, Loaded, LoopAgent, WorkflowAgent, find, read
from .tool_checks import check_listed, check_user

if TYPE_CHECKING:
    from ...protocol.mcp.config import Server
    from ..work.agent.todo import TodoList
    from ..work.knowledge.of_run import RunKnowledge

COMPAT = (*MODES, "devall")
"""Dialects that may be forced from outside; a file of another kind goes by its own."""

ID = re.compile("run-[0-9a-z]{1,40}")
"""What an id of a run looks like."""

_DIALECTS = {GraphAgent: "graph", LoopAgent: "agent", WorkflowAgent: "workflow"}


async def run(
    target: str | os.PathLike[str] | Loaded | Agent,
    prompt: str = "",
    *,
    model: str | None = None,
    variables: Mapping[str, str] | None = None,
    state: Mapping[str, Any] | None = None,
    answers: Given | None = None,
    on_event: Callable[[Event], None] | None = None,
    compat: str | None = None,
    limits: Limits | None = None,
    strict: bool = False,
    config_dir: str | os.PathLike[str] | None = None,
    root: Root | None = None,
    tools: Sequence[Function | Tool] = (),
    allow: Iterable[str] = (),
    yes: bool = False,
    roots: Iterable[str | os.PathLike[str]] = (),
    knowledge: Sequence[str] = (),
    files: Sequence[str] = (),
    rebuild_knowledge: bool = False,
    attach: Sequence[str | os.PathLike[str]] = (),
    save: str | os.PathLike[str] | None = None,
    id: str | None = None,
    history: Sequence[Turn] = (),
    on_history: Callable[[Sequence[Turn]], None] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    servers: Sequence[Server] = (),
    parts: Sequence[Part] = (),
    wishes: Wishes | None = None,
    todos: TodoList | None = None,
) -> Outcome:
    """Run an agent or a workflow to its end.

    Args:
        target: an agent's name, an agent's directory, a YAML file, what `load` returned, or an `Agent` made in Python.
        prompt: the user's words; a graph finds them as `{{initial_prompt}}`.
        model: `client:model` for everything that does not name its own.
        variables: values of the agent's variables; of a workflow, what `${NAME}` stands for.
        state: replaces keys of a graph's `initial_state`; JSON values.
        answers: to questions: a list used in order, or node id to an answer or a list of answers.
        on_event: called with every event of the run, in order, in the run's tasks; must be quick.
        compat: `standard`, `loki` (agents) or `devall` (workflows), whatever the file says.
        limits: what the run may use at most.
        strict: warnings about the file are errors.
        config_dir: where agents and settings live, for a run with a root of its own.
        root: the root to run under; by default that of the block we are in, else a new one for this run.
        tools: Python functions, sync or async, that the agent may call (see `actors.tools.functions`).
        allow: names of tools that need not ask a person for permission.
        yes: no tool asks for permission.
        roots: directories beside the working directory in which the `fs_*` tools may work.
        knowledge: names of knowledge bases to look the prompt up in.
        files: what is read and put before the prompt: paths, globs, URLs (see `actors.knowledge.attached`).
        rebuild_knowledge: every knowledge base that the run needs is built anew first.
        attach: files that a workflow's task comes with, for its models and for its python nodes.
        save: a directory in which the run is kept as files (see `actors.runs.saved`).
        id: the run's, `run-` and lower-case letters or digits, for who has to know it beforehand (see `new_id`).
        history: what was said before; an LLM agent goes on from there. Graphs and workflows know nothing of it.
        on_history: told, once, what was said now, `history` included: at the end of an LLM agent's run, whatever ended
            it, if the model has said something; of other runs the prompt and the output, if they are done.
        cwd: the directory that the run's tools and scripts work in; by default ours.
        servers: MCP servers that an LLM agent has beside those it names, all their tools included.
        parts: images and files that an LLM agent is told beside the prompt.
        wishes: what is wanted of an LLM agent beside what its file says (see `actors.agent.wishes`).
        todos: the todo list that an agent with `auto_continue` goes on with; it is changed.

    Returns:
        How it ended. A run that failed, or was cancelled by its root's end, does not raise.

    Raises:
        UsageError, InvalidFile, Unsupported, ConfigError: the run could not start.
        trio.Cancelled: the caller was cancelled; nothing of the run is left.
    """
    root = root or current.get()
    if root is None:
        async with Root(config_dir=config_dir) as own:
            return await run(
                target,
                prompt,
                model=model,
                variables=variables,
                state=state,
                answers=answers,
                on_event=on_event,
                compat=compat,
                limits=limits,
                strict=strict,
                root=own,
                tools=tools,
                allow=allow,
                yes=yes,
                roots=roots,
                knowledge=knowledge,
                files=files,
                rebuild_knowledge=rebuild_knowledge,
                attach=attach,
                save=save,
                id=id,
                history=history,
                on_history=on_history,
                cwd=cwd,
                servers=servers,
                parts=parts,
                wishes=wishes,
                todos=todos,
            )
    if compat is not None and compat not in COMPAT:
        raise UsageError(f"compat must be one of {', '.join(COMPAT)}, not '{compat}'")
    functions = tuple(function if isinstance(function, Tool) else function_tool(function) for function in tools)
    agent = _agent(target, root, [tool.name for tool in functions], variables or {}, strict=strict, compat=compat)
    allow = root.shelf.spelled_out(allow)
    children = Children(root.config_dir, compat)
    place = _directory(cwd)
    context = RunContext(
        gateway=root.gateway,
        limits=limits or Limits(),
        config_dir=root.config_dir,
        environ=os.environ,
        run_agent=children,
        unknown_agent=children.unknown,
        agents_near=children.near,
        model=model or "",
        compat=compat,
        streams=root.settings.stream,
        shelf=root.shelf,
        tool_options=ToolOptions(yes=yes, roots=_absolute(roots), cwd=place),
        permissions=Permissions(root.shelf.permissions(root.settings.permissions), allowed=allow, yes=yes, here=place),
        functions=functions,
        settings=root.settings,
        mcp=lambda: root.mcp,
        knowledge=partial(_knowledge_of_run, root, rebuild=rebuild_knowledge, agreed=yes),
        servers=tuple(servers),
    )
    _check_brought(agent, root, servers, parts)
    if isinstance(agent, LoopAgent) and not root.settings.calls_functions:
        raise ConfigError("Please enable function calling support before using the agent.")
    prepared = Prepared(agent, variables or {}, compat, context)
    if state and not prepared.has_state:
        raise UsageError(f"'{agent.name}' is not a graph, so it has no state to set")
    if attach and not isinstance(agent, WorkflowAgent):
        raise UsageError(f"'{agent.name}' is no workflow: `attach` is for those; `-f` puts files before a prompt")
    id = _checked_id(id, root) if id is not None else new_id()
    given = msgspec.structs.replace(
        _consulted(root, knowledge, files), attachments=attached(attach), parts=tuple(parts)
    )
    past = History(history, on_history, wishes, todos)
    if isinstance(agent, LoopAgent) and not (prompt.strip() or files or parts or past.waits_for_the_model):
        raise UsageError(f"'{agent.name}' is an LLM agent: it needs a prompt to answer")
    given_state = plain_state(state or {})
    check_unicode("the prompt", prompt)
    for name, value in (variables or {}).items():
        check_unicode(f"the value of variable '{name}'", value)
    model, why = _default_model(root, prepared, context)
    for name in prepared.models | ({model} if model is not None else set()):
        root.gateway.check(name)
    started = RunStarted(
        target=agent.file if isinstance(target, msgspec.Struct) else os.fspath(target),
        name=agent.name,
        dialect=_DIALECTS[type(agent)],
        model=model,
        why=why,
        prompt=prompt,
    )
    saved = None if save is None else Saved(Path(save) / id)
    if saved is not None:
        given = msgspec.structs.replace(given, workspace=saved.workspace)
    execution = Execution(id, root, prepared, context, prompt, given, given_state, Answers(answers), saved, past)
    # What tools a workflow has is known when it runs, so nobody can say that one of them is not there.
    checked = () if isinstance(agent, WorkflowAgent) else allow
    strange = check_user(checked, (*prepared.tool_names, *(tool.name for tool in functions)), root.shelf, root.settings)
    of_servers = root.mcp.config.problems_of(prepared.servers) if prepared.servers else ()
    # The environment may name other servers than the file.
    known = {problem.message for problem in agent.problems}
    absent = [problem for problem in prepared.absent if problem.message not in known]
    problems = (*root.problems, *of_servers, *agent.problems, *absent, *strange)
    return await execution.run(started, problems, on_event)


def _directory(cwd: str | os.PathLike[str] | None) -> Path | None:
    """The directory of the run, which stays the same if the process goes elsewhere; None if the process has none."""
    if cwd is None:
        with contextlib.suppress(FileNotFoundError):
            return Path.cwd()
        return None
    path = Path(cwd).absolute()
    if not path.is_dir():
        raise UsageError(f"there is no directory {path} for the run to work in (`cwd`)")
    return path


def _absolute(roots: Iterable[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """Directories as they are seen from the process's own, which need not be the run's."""
    return tuple(Path(path).expanduser().absolute() for path in roots)


def _check_brought(agent: Loaded, root: Root, servers: Sequence[Server], parts: Sequence[Part]) -> None:
    """Raise for what only LLM agents can make use of, and for servers where MCP is turned off."""
    if (servers or parts) and not isinstance(agent, LoopAgent):
        what = "MCP servers (`servers`)" if servers else "images and files (`parts`)"
        raise UsageError(f"'{agent.name}' is no LLM agent: a run of it can't be given {what}")
    if servers and not root.settings.mcp_server_support:
        raise ConfigError(
            f"MCP support is disabled, so a run can't be given servers; set `mcp_server_support: true` in "
            f"{root.settings.file}"
        )


def new_id() -> str:
    """An id for a run."""
    return f"run-{secrets.token_hex(4)}"


def _checked_id(id: str, root: Root) -> str:
    if not ID.fullmatch(id):
        raise UsageError(f"the id of a run is 'run-' and up to 40 lower-case letters or digits, not {id[:60]!r}")
    if root.bus.is_open(id):
        raise UsageError(f"there is a run '{id}' already")
    return id


def _agent(
    target: str | os.PathLike[str] | Loaded | Agent,
    root: Root,
    functions: Sequence[str],
    variables: Mapping[str, str],
    *,
    strict: bool,
    compat: str | None,
) -> Loaded:
    if isinstance(target, Agent):
        silent = compat in MODES and MODES[compat].missing_servers_are_silent
        return LoopAgent.of(target, check_listed(target, functions, root.shelf, silent=silent))
    if isinstance(target, GraphAgent | LoopAgent | WorkflowAgent):
        return target
    found = find(target, config_dir=root.config_dir)
    return read(
        found,
        root.config_dir,
        strict=strict,
        compat=compat,
        functions=functions,
        shelf=root.shelf,
        variables=variables,
    )


def _consulted(root: Root, knowledge: Sequence[str], files: Sequence[str]) -> Consulted:
    """What is to be looked up for the prompt.

    Raises:
        UsageError: there is no such base, or no such file.
    """
    if files:
        from ..work.knowledge.attached import check

        check(files, root.settings.document_loaders)
    if not knowledge:
        return Consulted(files=tuple(files))
    from ..work.knowledge.shelf import named

    return Consulted(recipes=tuple(named(name, root.config_dir) for name in knowledge), files=tuple(files))


def _knowledge_of_run(root: Root, meter: Meter, *, rebuild: bool, agreed: bool) -> RunKnowledge:
    from ..work.knowledge.of_run import RunKnowledge

    return RunKnowledge(lambda: root.knowledge, meter, rebuild=rebuild, agreed=agreed)


def _default_model(root: Root, prepared: Prepared, context: RunContext) -> tuple[str | None, str]:
    """The model of whatever names none, and why it is that one if nobody chose it; None if all name their own."""
    if not prepared.needs_default:
        return None, ""
    named = context.model or prepared.model or root.settings.model
    if named:
        return named, ""
    choice = root.gateway.choice()
    return choice.model, choice.why
