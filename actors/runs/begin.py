"""Starts the run of a `RunRequest`, and raises the errors that precede the run's actor.

Such are: no such target, an invalid file, a missing variable, an unknown model. Later errors are the outcome's `error`
(see `execution`).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from contextvars import copy_context
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...protocol.agent import Agent
from ...protocol.errors import ConfigError, UsageError
from ...protocol.events import RunStarted
from ...protocol.outcome import Outcome
from ...protocol.problems import Problem
from ...protocol.requests import RunRequest
from ..io.directories import state_dir
from ..io.imports import imported
from ..work.agent.history import History
from ..work.context import RunContext
from ..work.playback.playback import Playback, playback
from ..work.spending.meter import Meter
from ..work.tools.kept_results import KeptResults
from ..work.tools.permissions import Permissions
from ..work.tools.registry import ToolOptions
from . import surroundings
from .children import Children
from .execution import Answers, Execution
from .file_checks import check_user
from .files import Saved, attached
from .loading import Hooks
from .prepared import Input, Prepared
from .root import Root
from .target import GraphAgent, Loaded, LoopAgent, WorkflowAgent

if TYPE_CHECKING:
    from ...protocol.settings import Settings
    from ..work.knowledge.of_run import RunKnowledge
    from ..work.knowledge.recipe import Recipe
    from ..work.workspace import Workspace

_KEEPING = (".actors.runs.kept", ".supervisors.journal.journal", ".supervisors.journal.store")
DIALECTS = {GraphAgent: "graph", LoopAgent: "agent", WorkflowAgent: "workflow"}


async def perform(request: RunRequest, hooks: Hooks, root: Root) -> Outcome:
    """Play a request to its end. Raises and returns as `callboard.run` does.

    Raises:
        DayReached: its owner may spend nothing more today.
        LedgerBroken: it is not known how much that would be.
    """
    if root.days is not None:
        await root.days.check(hooks.owner)
    if _in_memory(request, hooks):  # a thread would cost more than it saves
        await root.gateway.import_codecs()
        execution = begin(request, hooks, root)
    else:
        execution = await root.loader.threaded(partial(begin, request, hooks, root))
    if hooks.durable is not False and not (hooks.settings or root.settings).dry_run:
        await imported(*_KEEPING)
        from .kept import keep

        await keep(execution, request, hooks)
    outcome = await execution.run(hooks.on_event)
    if hooks.playback is not None:
        await hooks.playback.over(outcome.status, hooks.settings or root.settings)
    return outcome


def _in_memory(request: RunRequest, hooks: Hooks) -> bool:
    """Whether a run can begin without reading a file: it is of an agent that a program has made, and names none."""
    if request.in_role:
        return False
    agent = hooks.loaded.agent if isinstance(hooks.loaded, LoopAgent) else request.target
    if isinstance(agent, Agent) and agent.variables:  # their secrets may have to be waited for
        return False
    made = isinstance(agent, Agent) and (hooks.loaded is None or hooks.loaded.directory is None)
    if not made or request.workspace or request.save or request.attach or request.files or request.knowledge:
        return False
    assert isinstance(agent, Agent)
    return not (agent.global_tools or agent.documents or agent.mcp_servers or agent.permissions or request.servers)


def begin(request: RunRequest, hooks: Hooks, root: Root) -> Execution:
    """A run that is ready to start; reads files, and starts nothing.

    Raises:
        UsageError, InvalidFile, Unsupported, ConfigError: it can't be started.
    """
    if hooks.playback is None:
        return _begin(request, hooks, root)
    context = copy_context()
    context.run(playback.set, hooks.playback)
    return context.run(_begin, request, hooks, root)


def _begin(request: RunRequest, hooks: Hooks, root: Root) -> Execution:
    asked, in_role = request.prompt, request.in_role
    if in_role:
        from .in_role import in_role as as_role

        request, hooks = as_role(request, hooks, root)
    agent = _as_settings_allow(root.loader.loaded(request, hooks), hooks.settings)
    allow = root.registry.spelled_out(request.allow) if request.allow else []
    context = _context(request, hooks, root, allow)
    _check_input(request, agent, hooks.settings or root.settings)
    prepared = Prepared(agent, request.variables, request.compat, context)
    id = _id_of(request, root)
    context.make_results = partial(_results, hooks.results, id)
    context.recorder = None if hooks.recorder is None else hooks.recorder(id)
    workspace = context.workspace = surroundings.workspace(request, context, agent)
    if workspace is not None and workspace.servers and isinstance(agent, LoopAgent) and not in_role:
        context.servers = (*context.servers, *surroundings.new_servers(workspace.servers, context, root))
    context.hooks = surroundings.hooks(id, request, hooks, context)
    context.flow = surroundings.flow(context)
    if request.part is not None:
        surroundings.below(request.part, context)
    model, why = _default_model(root, prepared, context, hooks.playback)
    if hooks.playback is None or hooks.playback.asks_the_world:
        for name in prepared.models | ({model} if model is not None else set()):
            root.gateway.check(name)
            if context.account is not None and context.account.asks_for_prices:
                root.gateway.check_price(name, context.account)
    input = _input(request, root, hooks.settings)
    saved = None if request.save is None else Saved(Path(request.save) / id, again=hooks.resumed)
    return Execution(
        id,
        root,
        prepared,
        context,
        input=input if saved is None else msgspec.structs.replace(input, workspace=saved.workspace),
        part=request.part,
        answers=None if request.answers is None else Answers(request.answers),
        saved=saved,
        history=History(request.history, hooks.on_history, request.overrides, hooks.todos),
        problems=_problems(agent, prepared, hooks, root, allow, workspace),
        playback=hooks.playback,
        directory=agent.directory,
        started=RunStarted(
            target=request.target if isinstance(request.target, str) else agent.file,
            name=agent.name,
            dialect=DIALECTS[type(agent)],
            model=model,
            why=why,
            prompt=asked,
            sandbox=surroundings.told_of_sandbox(context),
        ),
    )


def new_id() -> str:
    """An id for a run."""
    return f"run-{secrets.token_hex(4)}"


def _context(request: RunRequest, hooks: Hooks, root: Root, allow: Sequence[str]) -> RunContext:
    children = Children(root.config_dir, request.compat, root.loader)
    here = _directory(request.cwd)
    settings = hooks.settings or root.settings
    rules = root.registry.permissions(settings.permissions) if settings.permissions else {}
    pays = hooks.playback is None or hooks.playback.asks_the_world
    kept = surroundings.kept(hooks, here)
    permissions = Permissions(rules, allowed=allow, yes=request.yes, here=here, kept=kept)
    return RunContext(
        gateway=root.gateway if settings is root.settings else root.gateway.under(settings),
        limits=request.limits,
        allow_unpriced=request.allow_unpriced,
        owner=hooks.owner,
        book=root.book if pays else None,
        day=None if root.days is None or not pays else root.days.account(hooks.owner),
        config_dir=root.config_dir,
        environ=os.environ,
        vault=root.vault,
        run_agent=children,
        unknown_agent=children.unknown,
        agents_near=children.near,
        model=request.model or "",
        compat=request.compat,
        streams=settings.stream,
        may_wait=not request.no_wait,
        registry=root.registry,
        tool_options=ToolOptions(yes=request.yes, roots=surroundings.absolute(request.roots), cwd=here),
        permissions=permissions,
        functions=hooks.tools,
        settings=settings,
        mcp=root.mcp_servers,
        make_knowledge=partial(_knowledge_of_run, root, request),
        servers=request.servers,
        on_unknown=request.on_unknown,
        elsewhere=None if root.elsewhere is None else partial(root.elsewhere, request),
        sandbox=surroundings.sandbox(request, settings, root, here, permissions, kept),
    )


def _results(of_session: Path | None, id: str) -> KeptResults:
    if of_session is not None:
        return KeptResults(of_session, temporary=False)
    return KeptResults(state_dir(os.environ) / "results" / id, temporary=True)


def _directory(cwd: str | None) -> Path | None:
    """The directory of the run, which stays the same if the process goes elsewhere; None if the process has none."""
    if cwd is None:
        try:
            return _path(os.getcwd())  # noqa: PTH109 - a `Path` of the same text is there already
        except FileNotFoundError:
            return None
    path = Path(cwd).absolute()
    if not path.is_dir():
        raise UsageError(f"there is no directory {path} for the run to work in (`cwd`)")
    return path


@lru_cache(maxsize=16)
def _path(text: str) -> Path:
    return Path(text)


def _check_input(request: RunRequest, agent: Loaded, settings: Settings) -> None:
    """Raise for what this kind of agent can't make use of, and for what the settings turn off."""
    check_fits(request, agent)
    if request.servers and not settings.mcp_server_support:
        raise ConfigError(
            f"MCP support is disabled, so a run can't be given servers; set `mcp_server_support: true` in "
            f"{settings.file}"
        )
    if isinstance(agent, LoopAgent) and not settings.calls_functions and _needs_tools(agent):
        raise ConfigError("Please enable function calling support before using the agent.")


def check_fits(request: RunRequest, agent: Loaded) -> None:
    """Raise `UsageError` for what this kind of agent can't make use of."""
    if (request.servers or request.parts) and not isinstance(agent, LoopAgent):
        what = "MCP servers (`servers`)" if request.servers else "images and files (`parts`)"
        raise UsageError(f"'{agent.name}' is no LLM agent: a run of it can't be given {what}")
    if request.state and not isinstance(agent, GraphAgent):
        raise UsageError(f"'{agent.name}' is not a graph, so it has no state to set")
    if request.attach and not isinstance(agent, WorkflowAgent):
        raise UsageError(f"'{agent.name}' is no workflow: `attach` is for those; `-f` puts files before a prompt")
    if isinstance(agent, LoopAgent) and request.says_nothing:
        raise UsageError(f"'{agent.name}' is an LLM agent: it needs a prompt to answer")


def _as_settings_allow(agent: Loaded, settings: Settings | None) -> Loaded:
    """Without tools, where a chat's own settings turn them off for a model that is no agent."""
    if settings is None or settings.calls_functions or not isinstance(agent, LoopAgent) or agent.directory is not None:
        return agent
    bare = msgspec.structs.replace(
        agent.agent, global_tools=(), mcp_servers=(), can_ask_user=False, auto_continue=False, can_spawn_agents=False
    )
    return msgspec.structs.replace(agent, agent=bare)


def _needs_tools(agent: LoopAgent) -> bool:
    """Whether it is an agent in Loki's sense, or one that a program or a chat has made with tools."""
    return agent.directory is not None or bool(agent.agent.global_tools or agent.agent.mcp_servers)


def _looked_up(recipe: Recipe, settings: Settings | None, root: Root) -> Recipe:
    """The recipe as this run's own settings have it looked up in, where they differ from the root's."""
    if settings is None:
        return recipe
    keys = {"rag_top_k": "top_k", "rag_reranker_model": "reranker_model"}
    values = {key: (getattr(settings, key), getattr(root.settings, key)) for key in keys}
    own = {keys[key]: now for key, (now, usual) in values.items() if now != usual}
    return msgspec.structs.replace(recipe, **own) if own else recipe


def _id_of(request: RunRequest, root: Root) -> str:
    if request.id is not None and root.bus.is_open(request.id):
        raise UsageError(f"there is a run '{request.id}' already")
    return request.id or new_id()


def _input(request: RunRequest, root: Root, settings: Settings | None) -> Input:
    """What the run begins with.

    Raises:
        UsageError: there is no such knowledge base, or no such file.
    """
    if request.files:
        from ..work.knowledge.attachments import check

        check(request.files, root.settings.document_loaders)
    recipes: tuple[Recipe, ...] = ()
    if request.knowledge:
        from ..work.knowledge.registry import named

        recipes = tuple(_looked_up(named(name, root.config_dir), settings, root) for name in request.knowledge)
    return Input(
        prompt=request.prompt,
        state=request.state,
        recipes=recipes,
        files=request.files,
        attachments=attached(request.attach) if request.attach else (),
        parts=request.parts,
        branch=None if request.part is None else request.part.branch,
    )


def _problems(
    agent: Loaded,
    prepared: Prepared,
    hooks: Hooks,
    root: Root,
    allow: Sequence[str],
    workspace: Workspace | None,
) -> tuple[Problem, ...]:
    # The tools of a workflow are known when it runs, so none of them can be missed now.
    checked = () if isinstance(agent, WorkflowAgent) else allow
    strange: Sequence[Problem] = ()
    if checked or root.settings.permissions:
        functions = (tool.name for tool in hooks.tools)
        strange = check_user(checked, (*prepared.tool_names, *functions), root.registry, root.settings)
    of_servers = root.mcp.config.problems_of(prepared.servers) if prepared.servers else ()
    # The environment may name other servers than the file.
    known = {problem.message for problem in agent.problems}
    absent = [problem for problem in prepared.absent if problem.message not in known]
    of_workspace = () if workspace is None else workspace.all_problems()
    found = (*root.problems, *of_servers, *agent.problems, *absent, *strange, *of_workspace)
    return found if hooks.told is None else _new(found, hooks.told)


def _new(problems: Sequence[Problem], told: set[str]) -> tuple[Problem, ...]:
    """Those that were not told before; they are from now on."""
    new = {text: problem for problem in problems if (text := str(problem)) not in told}
    told.update(new)
    return tuple(new.values())


def _knowledge_of_run(root: Root, request: RunRequest, meter: Meter) -> RunKnowledge:
    from ..work.knowledge.of_run import RunKnowledge

    rebuild, agreed, may_wait = request.rebuild_knowledge, request.yes, not request.no_wait
    return RunKnowledge(lambda: root.knowledge, meter, rebuild=rebuild, agreed=agreed, may_wait=may_wait)


def _default_model(
    root: Root, prepared: Prepared, context: RunContext, playing: Playback | None
) -> tuple[str | None, str]:
    """The model of whatever names none, and why it is that one if no setting chose it; None if all name their own."""
    if not prepared.needs_default:
        return None, ""
    named = context.model or prepared.model or root.settings.model
    if playing is not None and not playing.asks_the_world:
        return named or playing.model, ""
    if named:
        return named, ""
    choice = root.gateway.choice()
    if (missing := root.gateway.lacks_model()) is not None:
        raise ConfigError(missing)
    return choice.model, choice.why
