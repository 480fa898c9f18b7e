"""Start of a run from a `RunRequest`, and of the agents that it calls as children of the caller.

`begin` raises the errors that precede the run's actor: a missing target, an invalid file, a missing variable, or an
unknown model. Later errors are the `error` of the outcome (see `execution`). It collects what a run needs: the loaded
target, a `RunContext` (models, limits, tools, permissions), and the run's environment (sandbox, workspace files, hooks,
and labels).

`ChildAgentRunner` finds the agents that agents call by name, and reads each once per run. `ChildRuns` runs the agents
that Python functions pass to `Context.run`.
"""

from __future__ import annotations

import copy
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextvars import copy_context
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ...protocol.agent import Agent, read_agent
from ...protocol.control.caller import LOCAL
from ...protocol.errors import CallboardError, ConfigError, FailedEnd, NodeFailed, ShuttingDown, UsageError
from ...protocol.events import RunStarted, Warned
from ...protocol.graph import read_graph
from ...protocol.outcome import ChildRecord, ChildStatus, ErrorReport, Outcome
from ...protocol.placement import PartOf, needs_of
from ...protocol.problems import Problem, did_you_mean
from ...protocol.requests import RunRequest
from ..engine.graph.findings import agents_in
from ..engine.graph.result import reworded, run_error
from ..io.directories import state_dir
from ..io.imports import imported
from ..io.temporary import LazyDirectory, run_bases
from ..work.agent.history import History
from ..work.context import AgentCall, CallingAgent, RunContext, SeparatePart
from ..work.journal.actor_journal import scope_of
from ..work.labels.flow import Flow
from ..work.labels.labels import Labels
from ..work.library import AGENTS
from ..work.playback import Playback, playback
from ..work.sandbox.grants import Grants
from ..work.sandbox.run_sandbox import Sandbox, is_off, rules_of
from ..work.spending.meter import Meter
from ..work.tools.permissions import Permissions, StoredAnswers
from ..work.tools.registry import ToolOptions
from ..work.tools.stored_results import StoredResults
from ..work.transcript import Record, error_in, take_over
from .execution import Answers, Execution
from .file_checks import check_user
from .files import Saved, attached, images_in, parts_of
from .finding import find, named_file
from .loading import NO_HOOKS, Loader, RunCallbacks, is_made, stand_ins
from .pinned_files import called, called_in, load_again, note_called
from .prepared import AgentInput, Prepared, wishes_of
from .root import Root
from .target import GraphAgent, Loaded, LoopAgent, WorkflowAgent

if TYPE_CHECKING:
    from ...protocol.journal import Definition
    from ...protocol.mcp.config import Server
    from ...protocol.settings import Settings
    from ...supervisors import Actor
    from ..engine.graph.result import GraphResult
    from ..work.hooks import Hooks as RunHooks
    from ..work.journal.run_journal import JournaledRun
    from ..work.knowledge.recipe import Recipe
    from ..work.knowledge.run_knowledge import RunKnowledge
    from ..work.results import ResultType
    from ..work.sandbox.grants import HostRules, PermanentGrants
    from ..work.workspace import Workspace

_KEEPING = (".actors.runs.first_row", ".supervisors.journal.journal", ".supervisors.journal.store")
DIALECTS = {GraphAgent: "graph", LoopAgent: "agent", WorkflowAgent: "workflow"}


async def perform(request: RunRequest, hooks: RunCallbacks, root: Root) -> Outcome:
    """Execute a request to its end. Returns and raises as `callboard.run` does.

    Raises:
        Conflict: a durable run with the id that a program has chosen exists.
        DayReached: its owner has reached the spending limit of the day.
        LedgerBroken: the owner's spending is unknown.
    """
    if root.days is not None:
        await root.days.check(hooks.owner)
    durable = hooks.durable is not False and not (hooks.settings or root.settings).dry_run
    if durable:
        await imported(*_KEEPING)
        if request.id is not None and not hooks.by:  # front ends choose ids that are free, and a batch its own
            from .first_row import check_id

            await check_id(root, request.id)
    if _in_memory(request, hooks):  # Starting a thread would cost more than it saves.
        await root.gateway.import_codecs()
        execution = begin(request, hooks, root)
    else:
        execution = await root.loader.threaded(partial(begin, request, hooks, root))
    if durable:
        from .first_row import keep

        await keep(execution, request, hooks)
    outcome = await execution.run(hooks.on_event)
    if hooks.playback is not None:
        await hooks.playback.over(outcome.status, hooks.settings or root.settings)
    return outcome


def _in_memory(request: RunRequest, hooks: RunCallbacks) -> bool:
    """Return whether a run can begin without reading a file: its agent was made by a program and names no files."""
    if request.in_role:
        return False
    agent = hooks.loaded.agent if isinstance(hooks.loaded, LoopAgent) else request.target
    if isinstance(agent, Agent) and agent.variables:  # The vault may have to wait for a passphrase.
        return False
    made = isinstance(agent, Agent) and (hooks.loaded is None or hooks.loaded.directory is None)
    if not made or request.workspace or request.save or request.attach or request.files or request.knowledge:
        return False
    assert isinstance(agent, Agent)
    return not (agent.global_tools or agent.documents or agent.mcp_servers or agent.permissions or request.servers)


def begin(request: RunRequest, hooks: RunCallbacks, root: Root) -> Execution:
    """Return a run that is ready to start. Reads files, and starts no actor.

    Raises:
        UsageError, InvalidFile, Unsupported, ConfigError: it cannot be started.
    """
    if hooks.playback is None:
        return _begin(request, hooks, root)
    # A copied context, so that the playback does not leak into other runs begun by this task.
    context = copy_context()
    context.run(playback.set, hooks.playback)
    return context.run(_begin, request, hooks, root)


def _begin(request: RunRequest, hooks: RunCallbacks, root: Root) -> Execution:
    asked, in_role = request.prompt, request.in_role
    if in_role:
        from .role_run import in_role as as_role

        request, hooks = as_role(request, hooks, root)
    agent = _as_settings_allow(root.loader.loaded(request, hooks), request, hooks.settings, root.settings)
    allow = root.registry.spelled_out(request.allow) if request.allow else []
    context = _context(request, hooks, root, allow, {} if isinstance(agent, WorkflowAgent) else agent.below)
    if hooks.models or (not isinstance(agent, WorkflowAgent) and agent.models):
        of_agent = {} if isinstance(agent, WorkflowAgent) else agent.models
        context.gateway = context.gateway.with_models({**of_agent, **hooks.models})
    request = _with_parts(request, agent)
    _check_input(request, agent, hooks.settings or root.settings)
    prepared = Prepared(agent, request.variables, request.compat, context)
    id = _id_of(request, root)
    context.make_results = partial(_results, hooks.results, id, root.environ)
    context.recorder = None if hooks.recorder is None else hooks.recorder(id)
    workspace = context.workspace = _workspace_of(request, context, agent)
    if workspace is not None and workspace.servers and isinstance(agent, LoopAgent) and not in_role:
        context.servers = (*context.servers, *_new_servers(workspace.servers, context, root))
    context.hooks = _hooks_of(id, request, hooks, context)
    context.flow = _flow_of(request, hooks, context)
    if request.part is not None:
        _restrict_part(request.part, context)
    # A replay sends no requests, so a missing key or an unknown model must not refuse it.
    model, why = _default_model(root, prepared, context, hooks.playback)
    if context.stand_in is None and (hooks.playback is None or hooks.playback.asks_the_world):
        for name in prepared.models | ({model} if model is not None else set()):
            context.gateway.check(name)
            if context.account is not None and context.account.asks_for_prices:
                context.gateway.check_price(name, context.account)
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
        history=History(
            request.history, hooks.on_history, request.overrides, hooks.todos, _result_type(request, hooks)
        ),
        problems=_problems(agent, prepared, hooks, root, allow, workspace),
        playback=hooks.playback,
        directory=None if is_made(agent) else agent.directory,
        started=RunStarted(
            target=request.target if isinstance(request.target, str) else agent.file,
            name=agent.name,
            dialect=DIALECTS[type(agent)],
            model=model,
            why=why,
            prompt=asked,
            sandbox="off" if context.sandbox is None else context.sandbox.profile,
        ),
    )


def _result_type(request: RunRequest, hooks: RunCallbacks) -> ResultType | None:
    schema = request.overrides.result_schema
    if schema is None or hooks.result is not None:
        return hooks.result
    from ..work.results import ResultType

    return ResultType.of_answer(schema)


def new_id() -> str:
    """Return a random id for a run."""
    return f"run-{secrets.token_hex(4)}"


def _context(
    request: RunRequest, hooks: RunCallbacks, root: Root, allow: Sequence[str], made: Mapping[str, LoopAgent]
) -> RunContext:
    children = ChildAgentRunner(root.config_dir, request.compat, root.loader, made)
    here = root.cwd if request.cwd is None and root.cwd is not None else _directory(request.cwd)
    settings = hooks.settings or root.settings
    rules = root.registry.permissions(settings.permissions) if settings.permissions else {}
    pays = hooks.playback is None or hooks.playback.asks_the_world
    kept = _stored_answers(hooks, here, root.environ)
    permissions = Permissions(rules, allowed=allow, yes=request.yes, here=here, kept=kept)
    return RunContext(
        gateway=root.gateway if settings is root.settings else root.gateway.under(settings),
        limits=root.limits(request.limits),
        allow_unpriced=request.allow_unpriced,
        owner=hooks.owner,
        book=root.book if pays else None,
        day=None if root.days is None or not pays else root.days.account(hooks.owner),
        config_dir=root.config_dir,
        environ=root.environ,
        vault=root.vault,
        run_agent=children,
        unknown_agent=children.unknown,
        agents_near=children.near,
        model=request.model or "",
        compat=request.compat,
        streams=settings.stream,
        may_wait=not request.no_wait,
        registry=root.registry,
        tool_options=ToolOptions(yes=request.yes, roots=_absolute((*root.roots, *request.roots)), cwd=here),
        permissions=permissions,
        functions=hooks.tools,
        deps=hooks.deps,
        stand_in=hooks.stand_in or (stand_ins[-1] if stand_ins else None),
        middleware=(*root.middleware, *hooks.middleware) if hooks.middleware else root.middleware,
        run_child=ChildRuns(root.loader, request.compat, children),
        has_answers=bool(request.answers),
        settings=settings,
        mcp=root.mcp_servers,
        make_knowledge=partial(_knowledge_of_run, root, request),
        servers=request.servers,
        on_unknown=request.on_unknown,
        elsewhere=None if root.elsewhere is None else partial(root.elsewhere, request),
        sandbox=_sandbox_of(request, settings, root, here, permissions, kept),
    )


def _results(of_session: Path | None, id: str, environ: Mapping[str, str]) -> StoredResults:
    if of_session is not None:
        return StoredResults(of_session, temporary=False)
    return StoredResults(state_dir(environ) / "results" / id, temporary=True)


def _directory(cwd: str | None) -> Path | None:
    """Return the directory of the run, fixed even if the process changes its own; None if the process has none."""
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
    """Raise if the request does not fit this kind of agent, or uses a feature that the settings turn off."""
    check_fits(request, agent)
    if request.servers and not settings.mcp_server_support:
        raise ConfigError(
            "MCP support is turned off, so the run can't use the MCP servers of its request; set "
            f"`mcp_server_support: true` in {settings.file}"
        )
    if isinstance(agent, LoopAgent) and not settings.calls_functions and _needs_tools(agent):
        raise ConfigError("Please enable function calling support before using the agent.")


def check_fits(request: RunRequest, agent: Loaded) -> None:
    """Raise `UsageError` if the request does not fit this kind of agent."""
    if (request.servers or request.parts) and not isinstance(agent, LoopAgent):
        what = "MCP servers (`servers`)" if request.servers else "images and files (`parts`)"
        raise UsageError(f"'{agent.name}' is not an LLM agent, so a run of it can't have {what}")
    if request.state and not isinstance(agent, GraphAgent):
        raise UsageError(f"'{agent.name}' is not a graph, so it has no state to set")
    if request.attach and not isinstance(agent, WorkflowAgent):
        raise UsageError(
            f"'{agent.name}' is a graph, and graphs accept no attachments (`attach`); with `-f`, the "
            "text of files is put before its prompt"
        )
    if isinstance(agent, LoopAgent) and request.says_nothing:
        raise UsageError(f"'{agent.name}' is an LLM agent and needs a prompt")


def _with_parts(request: RunRequest, agent: Loaded) -> RunRequest:
    """Return the request with attachments of an LLM agent as parts of its prompt: images of `files`, all of `attach`.

    Raises:
        UsageError: a file cannot be read, or is too large.
    """
    if not isinstance(agent, LoopAgent) or not (request.files or request.attach):
        return request
    files, images = images_in(request.files)
    parts = (*request.parts, *images, *parts_of(attached(request.attach)))
    return msgspec.structs.replace(request, files=files, attach=(), parts=parts)


def _as_settings_allow(agent: Loaded, request: RunRequest, own: Settings | None, usual: Settings) -> Loaded:
    """Return the agent without tools if the settings turn off function calling and the tools are only defaults.

    That is the case in a chat (`own`), and for tools that the settings or a role name instead of the request.
    """
    settings = own or (usual if request.default_tools else None)
    if settings is None or settings.calls_functions or not isinstance(agent, LoopAgent) or agent.directory is not None:
        return agent
    bare = msgspec.structs.replace(
        agent.agent, global_tools=(), mcp_servers=(), can_ask_user=False, auto_continue=False, can_spawn_agents=False
    )
    return msgspec.structs.replace(agent, agent=bare)


def _needs_tools(agent: LoopAgent) -> bool:
    """Return whether the agent is read from a file, or was made with tools."""
    return agent.directory is not None or bool(agent.agent.global_tools or agent.agent.mcp_servers)


def _recipe_for_run(recipe: Recipe, settings: Settings | None, root: Root) -> Recipe:
    """Return the recipe with the run's own settings, if they differ from the root's."""
    if settings is None:
        return recipe
    keys = {"rag_top_k": "top_k", "rag_reranker_model": "reranker_model"}
    values = {key: (getattr(settings, key), getattr(root.settings, key)) for key in keys}
    own = {keys[key]: now for key, (now, usual) in values.items() if now != usual}
    return msgspec.structs.replace(recipe, **own) if own else recipe


def _id_of(request: RunRequest, root: Root) -> str:
    if request.id is not None and root.bus.is_open(request.id):
        raise UsageError(f"a run with the id '{request.id}' already exists; choose another id")
    return request.id or new_id()


def _input(request: RunRequest, root: Root, settings: Settings | None) -> AgentInput:
    """Return the input of the run.

    Raises:
        UsageError: a knowledge base or a file does not exist.
    """
    if request.files:
        from ..work.knowledge.attachments import check

        check(request.files, root.settings.document_loaders)
    recipes: tuple[Recipe, ...] = ()
    if request.knowledge:
        from ..work.knowledge.registry import named

        recipes = tuple(_recipe_for_run(named(name, root.config_dir), settings, root) for name in request.knowledge)
    return AgentInput(
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
    hooks: RunCallbacks,
    root: Root,
    allow: Sequence[str],
    workspace: Workspace | None,
) -> tuple[Problem, ...]:
    # The tools of a workflow are only known when it runs, so none can be reported as missing now.
    checked = () if isinstance(agent, WorkflowAgent) else allow
    strange: Sequence[Problem] = ()
    if checked or root.settings.permissions:
        functions = (tool.name for tool in hooks.tools)
        strange = check_user(checked, (*prepared.tool_names, *functions), root.registry, root.settings)
    of_servers = root.mcp.config.problems_of(prepared.servers) if prepared.servers else ()
    # The environment may name other servers than the file, so a missing one is not always known from the file's check.
    known = {problem.message for problem in agent.problems}
    absent = [problem for problem in prepared.absent if problem.message not in known]
    of_workspace = () if workspace is None else workspace.all_problems()
    found = (*root.problems, *of_servers, *agent.problems, *absent, *strange, *of_workspace)
    return found if hooks.told is None else _new(found, hooks.told)


def _new(problems: Sequence[Problem], told: set[str]) -> tuple[Problem, ...]:
    """Return the problems that are not in `told`, and add them."""
    new = {text: problem for problem in problems if (text := str(problem)) not in told}
    told.update(new)
    return tuple(new.values())


def _knowledge_of_run(root: Root, request: RunRequest, meter: Meter) -> RunKnowledge:
    from ..work.knowledge.run_knowledge import RunKnowledge

    rebuild, agreed, may_wait = request.rebuild_knowledge, request.yes, not request.no_wait
    return RunKnowledge(lambda: root.knowledge, meter, rebuild=rebuild, agreed=agreed, may_wait=may_wait)


def _default_model(
    root: Root, prepared: Prepared, context: RunContext, playing: Playback | None
) -> tuple[str | None, str]:
    """Return the model of requests that name none, and the reason if neither the request nor a file nor the settings
    name it; None if all nodes name their own.

    It is for checks and for `RunStarted`. `RunContext.model_for` chooses the model of each request.

    Raises:
        ConfigError: no model is configured, and the small local model is not available.
    """
    if not prepared.needs_default:
        return None, ""
    named = context.model_for(prepared.model) or root.settings.model
    if context.stand_in is not None:
        return named, ""
    if playing is not None and not playing.asks_the_world:
        return named or playing.model, ""
    if named:
        return named, ""
    choice = root.gateway.choice()
    if (missing := root.gateway.lacks_model()) is not None:
        raise ConfigError(missing)
    return choice.model, choice.why


def _absolute(roots: Iterable[str]) -> tuple[Path, ...]:
    """Return directories as absolute paths, relative to the process's working directory, which may differ from the
    run's.
    """
    return tuple(Path(path).expanduser().absolute() for path in roots)


def _stored_answers(hooks: RunCallbacks, here: Path | None, environ: Mapping[str, str]) -> StoredAnswers | None:
    """Return the user's permanent permissions for the run's directory; None for server callers and for playback."""
    if here is None or hooks.owner != LOCAL.subject or hooks.playback is not None:
        return None
    return StoredAnswers(here, environ)


def _sandbox_of(
    request: RunRequest,
    settings: Settings,
    root: Root,
    here: Path | None,
    rules: HostRules,
    kept: PermanentGrants | None,
) -> Sandbox | None:
    """Return the sandbox of the run's processes; None if the user turned it off."""
    if (settings.sandbox == "off" and request.sandbox is None) or request.sandbox == "off":
        return None
    said = rules_of(settings.sandbox, request.sandbox)
    if is_off(said):
        return None
    return Sandbox(
        said,
        here=here or Path.cwd(),
        config_dir=root.config_dir.absolute(),
        environ=root.environ,
        temporary=LazyDirectory(request.id or f"run-{secrets.token_hex(4)}", run_bases),
        grants=Grants(rules, kept),
        roots=_absolute((*settings.tool_roots, *root.roots, *request.roots)),
    )


def _workspace_of(request: RunRequest, context: RunContext, agent: Loaded) -> Workspace | None:
    """Return the workspace files that the run uses; None if it uses none. Reads files."""
    wanted = request.workspace
    if wanted is None:
        wanted = not is_made(agent) or request.default_tools
    here = context.cwd
    if not wanted or here is None or isinstance(agent, WorkflowAgent):
        return None
    if isinstance(agent, GraphAgent) and not wishes_of(agent.graph):
        return None
    from ..work.workspace import Workspace

    settings = context.settings
    return Workspace(
        here,
        context.config_dir,
        context.environ,
        instructions=settings.workspace_instructions,
        skills=settings.skills_enabled and settings.calls_functions,
    )


def _hooks_of(id: str, request: RunRequest, hooks: RunCallbacks, context: RunContext) -> RunHooks | None:
    """Return the run's hooks, from the settings, the workspace and the program; None if there are none."""
    settings, workspace = context.settings, context.workspace
    of_workspace = () if workspace is None else workspace.hooks
    if not settings.hooks and not of_workspace and not hooks.hooks:
        return None
    from ...protocol.hooks import table_of
    from ..work.hooks import Hooks as RunHooks

    here = context.cwd or Path.cwd()
    return RunHooks(
        [table_of(settings.hooks, settings.file), *of_workspace],
        hooks.hooks,
        root=here if workspace is None else workspace.root,
        here=here,
        environ=context.environ,
        run=id,
        yes=request.yes,
        goes_on=hooks.on_history is not None or hooks.session is not None,
    )


def _flow_of(request: RunRequest, hooks: RunCallbacks, context: RunContext) -> Flow | None:
    """Return the run's label flow with its initial labels; None if labels are off."""
    mode = context.settings.labels
    if mode == "off":
        return None
    typed = request.prompt if request.typed is None else request.typed
    # The prompt of a remote child comes from its parent run and not from the user.
    made = Flow(mode, context.cwd or Path("/"), context.environ, "" if request.part is not None else typed)
    if context.sandbox is not None:
        context.sandbox.hears_of_hosts(made.reached)
    # The difference between the prompt and its typed part was read from standard input.
    if request.typed is not None and request.typed != request.prompt:
        made.add(Labels(untrusted=("standard input",), private=("standard input",)))
    if request.parts:
        made.add(Labels(untrusted=("an attached file",), private=("an attached file",)))
    if request.attach:
        made.add(made.paths.of_any(request.attach, "the attached file"))
    if hooks.labels is not None:
        hooks.labels.begins(made)
    return made


def _restrict_part(part: PartOf, context: RunContext) -> None:
    """Apply the restrictions of the parent run to a remote child that this process executes."""
    for rules in part.denied:
        context.permissions = context.permissions.below(rules)
    context.max_depth = part.max_depth
    if context.flow is not None:
        context.flow.add(Labels(untrusted=part.untrusted, private=part.private))


def _new_servers(servers: Sequence[Server], context: RunContext, root: Root) -> list[Server]:
    """Return a workspace's servers, except for names that the user has configured; none if servers are off."""
    if not context.settings.mcp_server_support or not context.settings.calls_functions:
        return []
    known = {*root.mcp.config.servers, *(server.name for server in context.servers)}
    return [server for server in servers if server.name not in known]


# --- agents that the run calls


class ChildAgentRunner:
    """Implementation of `run_agent` for one run.

    Args:
        config_dir: its `agents/` are searched first, then the siblings of the calling agent.
        compat: the dialect forced by the caller, or None.
        loader: loader of the run's root.
        made: agents made by the run's program, by name; they are searched before all others.
    """

    def __init__(
        self, config_dir: Path, compat: str | None, loader: Loader, made: Mapping[str, LoopAgent] | None = None
    ) -> None:
        self._made = made or {}
        self._loader = loader
        self._config_dir = config_dir
        self._compat = compat
        self._read: dict[tuple[str, Path], Loaded] = {}
        self._told: dict[str, None] = {}
        self._called: dict[str, Definition] | None = None

    def with_made(self, made: Mapping[str, LoopAgent]) -> ChildAgentRunner:
        """Return a runner that searches these agents before all others."""
        return ChildAgentRunner(self._config_dir, self._compat, self._loader, {**self._made, **made})

    async def __call__(self, me: Actor, call: AgentCall) -> str:
        """Run the agent and return the text of its answer. Failures that it survived are in the call's record.

        Raises:
            CallboardError: the agent failed; the class is that of the child's error.
        """
        scope = scope_of(me)
        kept = None if scope is None else scope.run
        # In a thread: reading and checking a file takes milliseconds, in which no other agent would run.
        prepared, definition = await self._loader.threaded(lambda: self._prepared(call, kept))
        if kept is not None and definition is not None:
            note_called(kept, _named(call), definition)
        for problem in prepared.absent:
            # Once per run: an agent that is called a hundred times has one missing server.
            if (told := str(problem)) not in self._told:
                self._told[told] = None
                me.emit(Warned(code=problem.code, message=told))
        needs = needs_of(call.place if call.place is not None else prepared.place)
        if needs is not None and call.context.elsewhere is not None:
            output, failed = await self._on_other_worker(me, call, needs)
        else:
            kind = self._made[call.name].result if call.name in self._made else None
            record = Record() if call.record is None else call.record
            result = await prepared.play(
                me,
                AgentInput(prompt=call.prompt),
                call.context,
                depth=call.depth,
                record=record,
                seat=call.seat,
                escalation_timeout=call.escalation_timeout,
                history=None if kind is None else History(result=kind),
            )
            output, failed = result.output if kind is None or result.error is not None else record.last, result.error
        if failed is not None:
            if isinstance(failed, FailedEnd) and call.record is not None:
                # The calling agent reads this output instead of all texts of the child's models.
                call.record.texts = [output]
            error = run_error(call.record.failures if call.record is not None else (), failed)
            assert error is not None
            raise reworded(error, f"Agent '{call.name}' failed: {error}")
        return output

    async def _on_other_worker(
        self, me: Actor, call: AgentCall, needs: tuple[str, ...]
    ) -> tuple[str, CallboardError | None]:
        """Run the agent on another worker; return its output and its error."""
        assert call.context.elsewhere is not None
        if call.seat is not None:
            # Team messages do not reach an agent on another worker.
            call.seat.address.elsewhere = True
        part = SeparatePart(
            name=call.name,
            target=await self._loader.threaded(lambda: self._found(call)),
            needs=needs,
            context=call.context,
            depth=call.depth,
            prompt=call.prompt,
            variables=call.variables,
            attempt=call.attempt,
        )
        outcome = await call.context.elsewhere(me, part)
        if call.record is not None:
            take_over(call.record, outcome)
            if outcome.failures and outcome.output:  # The agent reached its end in spite of these failures.
                return outcome.output, None
        return outcome.output, error_in(outcome)

    def unknown(self, name: str, near: Path) -> str | None:
        """Return why an agent in the directory `near` cannot call an agent of this name; None if it can."""
        if name in self._made or self._home(name, near) is not None:
            return None
        places = [place for place in self._places(near) if place.is_dir()]
        names = {path.name for place in places for path in place.iterdir() if path.is_dir()} | self._made.keys()
        where = f"{self._config_dir / 'agents'} or {near.parent}, and not built in"
        hint = did_you_mean(name[:100], names)
        return f"Agent '{name[:100]}' not found in {where}" + (f"; {hint}" if hint else "")

    def near(self, near: Path) -> list[tuple[str, str]]:
        """Return names and descriptions of the agents that the agent in the directory `near` can call."""
        homes: dict[str, Path] = {}
        for place in self._places(near):
            for home in sorted(place.iterdir()) if place.is_dir() else ():
                if agents_in(place)(home.name) == "found":
                    homes.setdefault(home.name, home)
        made = [(name, agent.agent.description) for name, agent in self._made.items() if name != near.name]
        found = sorted(homes.items())
        return [*made, *((name, _description(home)) for name, home in found if home != near and name not in self._made)]

    def _prepared(self, call: AgentCall, kept: JournaledRun | None) -> tuple[Prepared, Definition | None]:
        """Return the agent, and its definition if a durable run calls it for the first time."""
        if call.name in self._made:
            return Prepared(self._made[call.name], call.variables, self._compat, call.context), None
        key = (call.name, call.near)
        agent, known = self._read.get(key), self._definition(call, kept)
        is_new = agent is None
        if agent is None:
            request = RunRequest(target="", compat=self._compat, variables=dict(call.variables))
            if known is not None:
                agent = load_again(known, request, self._config_dir, call.context.registry)
            else:
                request = msgspec.structs.replace(request, target=str(self._found(call)))
                agent = self._loader.loaded(request, NO_HOOKS)
            # A workflow is read with its variables replaced, so it cannot be cached across calls with other variables.
            if not isinstance(agent, WorkflowAgent):
                self._read[key] = agent
        prepared = Prepared(agent, call.variables, self._compat, call.context)
        return prepared, called(agent, prepared) if is_new and known is None and kept is not None else known

    def _definition(self, call: AgentCall, kept: JournaledRun | None) -> Definition | None:
        """Return the definition of the agent if an earlier incarnation of the run called it."""
        if kept is None:
            return None
        if self._called is None:
            # Read once: the rows of a run that was resumed may be many, and each call would scan them.
            self._called = called_in(kept)
        return self._called.get(_named(call))

    def _found(self, call: AgentCall) -> Path:
        home = named_file(call.name, call.near) if call.by_file else None
        home = home or self._home(call.name, call.near)
        if home is None:
            raise NodeFailed(self.unknown(call.name, call.near) or "")
        return home

    def _home(self, name: str, near: Path) -> Path | None:
        # Models invent names; the name becomes a part of a path.
        if name in ("", ".", "..") or os.sep in name or "\0" in name:
            return None
        return next((place / name for place in self._places(near) if (place / name).is_dir()), None)

    def _places(self, near: Path) -> tuple[Path, ...]:
        return self._config_dir / "agents", near.parent, AGENTS


def _named(call: AgentCall) -> str:
    """Return a key of the agent and the directory that it is searched from."""
    return f"{call.name} of {call.near}"


def _description(home: Path) -> str:
    """Return the description in the agent's file; "" if it cannot be read."""
    try:
        found = find(home)
    except CallboardError:
        return ""
    read_file = read_agent if found.dialect == "agent" else read_graph
    thing, _ = read_file(found.text, found.file)
    return " ".join((thing.description or "").split()) if thing is not None else ""


_STATUS: dict[str, ChildStatus] = {"done": "completed", "failed": "failed", "cancelled": "cancelled"}


class ChildRuns:
    """Implementation of `run_child` for one run: agents that Python functions run while they execute as tools.

    Such an agent (`await ctx.run(agent, prompt)`) is an actor below that of the call, and a full child of the calling
    agent: limits and usage of the run, permissions, depth, events, and `children` of the outcome.

    A cassette has the call with its result, and no request that the function made. When the run is replayed, the
    function is not called. Therefore the child's requests bypass the cassette.

    Args:
        loader: loader of the run's root.
        compat: the dialect forced by the caller, or None.
        children: runs the agents that agents spawn.
    """

    def __init__(self, loader: Loader, compat: str | None, children: ChildAgentRunner) -> None:
        self._loader = loader
        self._children = children
        self._compat = compat

    async def __call__(
        self,
        me: Actor,
        calling: CallingAgent,
        target: Any,
        prompt: str,
        *,
        result: Any = None,
        variables: Mapping[str, str],
    ) -> Outcome[Any]:
        """Run an agent to its end; see `Context.run`."""
        # Imported here: most runs have no such child, and the command line starts faster without these modules.
        from ..work.results import ResultType
        from .python_agent import Agent

        context, depth = calling.context.below(calling.permissions, calling.max_depth), calling.depth + 1
        # A function that runs its own agent would recurse without an end.
        too_deep = context.too_deep(depth)
        if too_deep is not None:
            raise UsageError(too_deep)
        kind = result if result is not None or not isinstance(target, Agent) else target.result
        loaded = await self._loaded(target, variables)
        if not isinstance(loaded, WorkflowAgent) and loaded.below:
            context = _with_children(context, self._children.with_made(loaded.below))
        if not isinstance(loaded, WorkflowAgent) and loaded.models:
            context = copy.copy(context)
            context.gateway = context.gateway.with_models(loaded.models)
        if isinstance(loaded, LoopAgent) and not prompt.strip():
            raise UsageError(f"'{loaded.name}' is an LLM agent and needs a prompt")
        prepared = await self._loader.threaded(lambda: Prepared(loaded, variables, self._compat, context))
        history = History(result=None if kind is None else ResultType.of(kind))
        record = Record()
        child = ChildRecord(id=f"agent_{loaded.name}_{secrets.token_hex(4)}", agent=loaded.name)
        # Before it runs, so that a cancelled run lists it as well.
        calling.record.children.append(child)
        # The cassette has this call's result only; see `ChildRuns`.
        token = playback.set(None)
        try:
            ended = await prepared.play(
                me, AgentInput(prompt=prompt), context, depth=depth, record=record, history=history
            )
        except trio.Cancelled:
            child.status = "cancelled"
            raise
        finally:
            playback.reset(token)
            child.output, child.turns, child.tool_calls = record.output, record.turns, record.tool_calls
            child.children = record.children
        outcome = _outcome(me.stream.run, ended, record, history, is_agent=isinstance(loaded, LoopAgent))
        child.status = _STATUS[outcome.status]
        child.output = outcome.output or child.output
        child.error = None if outcome.error is None else outcome.error.message
        return outcome

    async def _loaded(self, target: Any, variables: Mapping[str, str]) -> Loaded:
        from .python_agent import Agent, loop_agent
        from .python_graph import Graph

        if isinstance(target, Agent):
            return loop_agent(target)
        if isinstance(target, Graph):
            return target.build()
        if isinstance(target, GraphAgent | LoopAgent | WorkflowAgent):
            return target
        if not isinstance(target, str | os.PathLike):
            raise UsageError(f"{target!r} is not an agent: pass a callboard.Agent, a name, or a path")
        request = RunRequest(target=os.fspath(target), compat=self._compat, variables=dict(variables))
        return await self._loader.load(request, NO_HOOKS)


def _with_children(context: RunContext, children: ChildAgentRunner) -> RunContext:
    lower = copy.copy(context)
    lower.run_agent, lower.unknown_agent, lower.agents_near = children, children.unknown, children.near
    return lower


def _outcome(run: str, ended: GraphResult, record: Record, history: History, *, is_agent: bool) -> Outcome[Any]:
    failures = record.failures
    error: CallboardError | None = ended.error
    if error is not None or failures:
        error = run_error(failures, error)
    return Outcome(
        run_id=run,
        status="done" if error is None else "cancelled" if isinstance(error, ShuttingDown) else "failed",
        output=ended.output if error is None or failures else "",
        final=(record.last if is_agent else ended.output) if error is None else "",
        result=history.value if error is None else None,
        has_result=history.has_value and error is None,
        state=ended.state,
        order=ended.order,
        nodes=ended.nodes,
        turns=record.turns,
        tool_calls=record.tool_calls,
        children=record.children,
        failures=[ErrorReport.of(each) for each in failures],
        error=None if error is None else ErrorReport.of(error),
        exit_code=0 if error is None else error.exit_code,
    )
