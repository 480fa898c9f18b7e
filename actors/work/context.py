"""Run context: the state shared by all parts of one run, such as models, limits, meter and tools.

One `RunContext` is created per run and passed to every graph, node and child agent. It is the only common state of the
run. Its counters (`meter`) belong to the run's own task tree, so no lock is needed. Settings of an agent's file that
apply to everything below the agent (permissions, depth) are passed along in a copy: `below` returns the context for the
children of an agent.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import InitVar, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from ...protocol.chat import ChatReply, ChatRequest, Delta
from ...protocol.errors import KnowledgeError, UsageError
from ...protocol.graph import OwnLimits
from ...protocol.interrupted_calls import OnUnknown
from ...protocol.mcp.config import Server
from ...protocol.outcome import Outcome
from ...protocol.permissions import Permissions as Rules
from ...protocol.placement import Branch, Place
from ...protocol.requests import Limits
from ...protocol.sandbox import Own, OwnSandbox, UserSandbox
from ...protocol.settings import Settings
from ...supervisors import Actor, Retry
from ..io.temporary import LazyDirectory, run_bases
from .playback import Asking, Playback, playback
from .spending.accounts import Account
from .spending.meter import Meter
from .tools.permissions import Permissions
from .tools.tool import Tool
from .transcript import Record

if TYPE_CHECKING:
    from ..io.vault.vault import Vault
    from .hooks import Hooks
    from .knowledge.run_knowledge import RunKnowledge
    from .labels.flow import Flow
    from .mcp.pool.servers import McpServers
    from .middleware import Middleware
    from .models.gateway import Gateway
    from .models.recorder import Recorder
    from .sandbox.run_sandbox import Sandbox
    from .spending.book import SpendingBook
    from .team_messages import TeamPosition
    from .tools.registry import ToolOptions, ToolRegistry
    from .tools.stored_results import StoredResults
    from .workspace import Workspace

MAX_DEPTH = 3
"""Default limit for the nesting of agent calls (Loki's `max_agent_depth`)."""


class AgentCall(msgspec.Struct, frozen=True, kw_only=True):
    """Call of one agent by another.

    Attributes:
        name: name of the called agent; with `by_file` also a YAML file, relative to `near`.
        prompt: its prompt.
        variables: values for its variables.
        depth: number of agents above it.
        near: directory of the calling agent.
        context: the run.
        record: transcript that the called agent writes; it outlives the agent.
        seat: address of the called agent among its siblings (`team_messages`), if an agent spawned it.
        escalation_timeout: seconds that its questions may wait; None for the value of its own file.
        by_file: the author of a file has named the agent, not a model.
        place: placement chosen by its caller; None for that of its own file.
        attempt: number of this attempt, from 1.
    """

    name: str
    prompt: str
    variables: Mapping[str, str]
    depth: int
    near: Path
    context: RunContext
    record: Record | None = None
    seat: TeamPosition | None = None
    escalation_timeout: float | None = None
    by_file: bool = False
    place: Place | None = None
    attempt: int = 1


class CallingAgent(msgspec.Struct, frozen=True, kw_only=True):
    """The agent that calls a Python function as a tool, as the function sees it; see `tools.functions.Context`.

    Attributes:
        context: the run, as the agent sees it.
        name: name of the agent, or of the node whose model calls.
        depth: number of agents above it.
        record: its transcript.
        permissions: permissions of its file; their denials apply to the agents that it runs as well.
        max_depth: `max_agent_depth` of its file.
    """

    context: RunContext
    name: str
    depth: int
    record: Record
    permissions: Rules
    max_depth: int | None

    @property
    def deps(self) -> Any:
        """Value that the caller of the run passed as `deps`."""
        return self.context.deps

    def run(self, me: Actor, target: Any, prompt: str, options: dict[str, Any]) -> Awaitable[Outcome[Any]]:
        """Run an agent below `me`, as a child of this one."""
        run_child = self.context.run_child
        if run_child is None:
            raise UsageError("this caller can't start agents")
        return run_child(me, self, target, prompt, **options)


StandIn: TypeAlias = Callable[["Actor", ChatRequest, Asking], Awaitable[ChatReply]]
"""Answers a model request of this actor instead of a model; see `runs.stand_in`."""


class ChildRunner(Protocol):
    """Runner for agents that Python functions start; see `runs.begin`."""

    def __call__(
        self,
        me: Actor,
        calling: CallingAgent,
        target: Any,
        prompt: str,
        *,
        result: Any,
        variables: Mapping[str, str],
    ) -> Awaitable[Outcome[Any]]:
        """Run an agent to its end, as a child of the calling one."""


AgentRunner = Callable[["Actor", AgentCall], Awaitable[str]]
"""Runs the called agent as a child of the given actor, and returns the text of its answer."""


class SeparatePart(msgspec.Struct, frozen=True, kw_only=True):
    """Part of a run that another worker may execute (`front/cluster/remote_children`).

    It is a called agent, or an item of a map with its branch. Settings of its file, and of the agents above it, are
    sent along; see `protocol/placement`.

    Attributes:
        name: name for messages.
        target: directory or file of the agent.
        needs: labels that a worker must have.
        prompt, variables, branch: see `RunRequest` and `PartOf`.
        context, depth: context and depth for execution in this process.
        attempt: number of this attempt, from 1.
    """

    name: str
    target: Path
    needs: tuple[str, ...]
    context: RunContext
    depth: int
    prompt: str = ""
    variables: Mapping[str, str] = {}
    branch: Branch | None = None
    attempt: int = 1


class RemoteParts(Protocol):
    """Runner for remote children of one run."""

    def __call__(self, me: Actor, part: SeparatePart) -> Awaitable[Outcome]:
        """Execute a part on another worker and wait for it. `me` asks its questions; its usage is counted.

        Raises:
            CallboardError: the part can't be sent, or a limit of this run was reached.
        """


# repr=False: it holds secrets. slots: a dictionary would take 1.3 KB more.
@dataclass(kw_only=True, eq=False, repr=False, slots=True)
class RunContext:
    """Shared state of one run.

    Args:
        limits: limits of the run.
        allow_unpriced: a limit in money does not forbid models without a known price.
        owner, book, day: see `Meter`.
        agent: name of the agent that works in this context, for the book.
        streams: emit pieces of replies as events, if the run has a listener.
        may_wait: requests wait for the rate limits of their provider; see `Gateway.chat`.
        make_knowledge: returns the knowledge access of the run; None if it has none.
        make_results: returns the store for complete results of tools that conversations shorten; None for none.

    Attributes:
        gateway: gateway to models.
        meter: usage of the run.
        account: account charged by this context; None if nothing is limited.
        kept: the store that `results` has created, if any.
        sandboxes: sandboxes required by files of agents although the user has none.
        config_dir: directory of agents, tools and settings.
        environ: environment that scripts inherit.
        vault: vault with the secrets that variables of agents name; None for the environment.
        model: model that the user chose with `-m`, or ""; see `model_for`.
        compat: dialect forced with `--compat`; None for that of each file.
        run_agent: runs a child agent.
        agents_near: returns names and descriptions of the agents that the agent in a directory can call. Reads files.
        unknown_agent: returns the problem with an agent's name, as seen from the caller's directory; None if it exists.
        registry: the tools; None in a run without tools.
        tool_options: the user's options for tools.
        permissions: rules for tool calls.
        functions: Python functions that the caller passed as tools.
        max_depth: limit of nesting set by the files above; None at the root, whose own file sets it.
        settings: settings of `config.yaml`.
        mcp: returns the MCP servers, created on the first call. None in a run without servers.
        servers: servers of the run's own agent in addition to the ones that it names.
        recorder: recorder of model requests and replies; None for none.
        on_unknown: policy for calls that were in flight at a kill; overrides the files.
        hooks: hooks of the run; None for none.
        flow: labels that the run carries; None if labels are off.
        workspace: instructions, skills and servers of the run's directory; None for none.
        sandbox: sandbox of the run's processes; None for none.
        elsewhere: executes remote children; None if this process is the only worker.
        deps: value that the caller passed for its functions.
        stand_in: answers instead of models (`runs.stand_in`); None for models.
        middleware: middleware around model requests, the outermost first (`middleware`).
        run_child: runs the agents that Python functions start; None if that is not possible.
        has_answers: answers to questions are prepared, and used in the order of the questions.
    """

    gateway: Gateway
    limits: InitVar[Limits]
    allow_unpriced: bool = False
    owner: InitVar[str] = ""
    book: InitVar[SpendingBook | None] = None
    day: InitVar[Account | None] = None
    agent: str = ""
    config_dir: Path
    environ: Mapping[str, str]
    vault: Vault | None = None
    run_agent: AgentRunner
    unknown_agent: Callable[[str, Path], str | None] = lambda name, near: None  # noqa: ARG005 - there are none
    agents_near: Callable[[Path], list[tuple[str, str]]] = lambda near: []  # noqa: ARG005 - there are none
    model: str = ""
    compat: str | None = None
    streams: bool = True
    may_wait: bool = True
    max_depth: int | None = None
    registry: ToolRegistry | None = None
    tool_options: ToolOptions | None = None
    permissions: Permissions = field(default_factory=Permissions)
    functions: tuple[Tool, ...] = ()
    settings: Settings = field(default_factory=Settings)
    mcp: Callable[[], McpServers] | None = None
    make_knowledge: Callable[[Meter], RunKnowledge] | None = None
    servers: tuple[Server, ...] = ()
    make_results: Callable[[], StoredResults] | None = None
    recorder: Recorder | None = None
    on_unknown: OnUnknown | None = None
    sandbox: Sandbox | None = None
    workspace: Workspace | None = None
    hooks: Hooks | None = None
    flow: Flow | None = None
    elsewhere: RemoteParts | None = None
    deps: Any = None
    run_child: ChildRunner | None = None
    has_answers: bool = False
    stand_in: StandIn | None = None
    middleware: tuple[Middleware, ...] = ()
    meter: Meter = field(init=False)
    account: Account | None = field(init=False)
    # Lists, because copies of the context (`below`, `limited`) must share objects that are created later.
    kept: list[StoredResults] = field(init=False, default_factory=list)
    sandboxes: list[Sandbox] = field(init=False, default_factory=list)
    _known: list[RunKnowledge] = field(init=False, default_factory=list)

    def __post_init__(self, limits: Limits, owner: str, book: SpendingBook | None, day: Account | None) -> None:
        self.meter = Meter(limits, allow_unpriced=self.allow_unpriced, owner=owner, book=book, day=day)
        self.account = self.meter.account

    def below(self, rules: Rules, max_depth: int | None) -> RunContext:
        """Return the context for children of an agent.

        Args:
            rules: `permissions` of its file; their denials apply below as well.
            max_depth: its `max_agent_depth`, which can lower the limit of the files above, but never raise it.
        """
        lower = copy.copy(self)
        lower.permissions = self.permissions.below(rules)
        if self.max_depth is None:
            lower.max_depth = MAX_DEPTH if max_depth is None else max_depth
        elif max_depth is not None:
            lower.max_depth = min(self.max_depth, max_depth)
        return lower

    def model_for(self, of_file: str | None, *, own: str | None = None) -> str:
        """Return the model of a request, or "" for the default model.

        All requests of agents and graphs get their model here. Agent nodes of workflows always name their own
        (`workflow.agent_request`).

        The first that is set decides:

        1. `own`: the model that a node names for itself, or the one that an agent names for summaries.
        2. `self.model`: `RunRequest.model`, which comes from `--model`, from `.model` in a chat, or from the session.
        3. `of_file`: `model` of the agent's or graph's file, after `<NAME>_MODEL` of the environment and the role.

        Without any, the gateway uses `ModelCatalog.choice`: `model` of the settings, else that of a usable client.
        """
        return own or self.model or of_file or ""

    def settles(self, own: OnUnknown | None) -> OnUnknown | None:
        """Return the policy (`on_unknown`) for a call whose outcome is unknown because the process was killed during
        it.

        `own` is the setting in the file of the call's origin.
        """
        return self.on_unknown or own or self.settings.durable.on_unknown

    def settling(self, own: OnUnknown | None) -> RunContext:
        """Return a copy of the context with the `on_unknown` of an agent's or node's file, unless a flag of the run
        overrides it.
        """
        if own is None or self.on_unknown is not None:
            return self
        lower = copy.copy(self)
        lower.on_unknown = own
        return lower

    def played_by(self, agent: str) -> RunContext:
        """Return a copy of the context whose requests and events count as work of this agent."""
        lower = copy.copy(self)
        lower.agent = agent
        return lower

    def hold(self, me: Actor, own: Own) -> None:
        """Apply the sandbox restrictions of a file to the processes started by this task, and by everything below it
        and `me`.
        """
        from .sandbox.grants import Grants
        from .sandbox.run_sandbox import Sandbox, current

        narrowing = OwnSandbox(profile=own) if isinstance(own, str) else own
        sandbox = current.get()
        if sandbox is None:
            # The user has no sandbox: create one that restricts nothing itself, to be narrowed by the file.
            place = LazyDirectory(f"own-{secrets.token_hex(4)}", partial(run_bases, self.environ))
            here, base = self.cwd or Path.cwd(), self.config_dir.absolute()
            off = UserSandbox(profile="off")
            grants = Grants(self.permissions, None)
            if self.flow is not None:
                grants.on_reach = self.flow.reached
            sandbox = Sandbox(off, here=here, config_dir=base, environ=self.environ, temporary=place, grants=grants)
            sandbox.works_under(me)
            self.sandboxes.append(sandbox)
        current.set(sandbox.narrower(narrowing))

    def limited(self, name: str, limits: OwnLimits | None) -> RunContext:
        """Return the context for a part with its own limits; `name` is its name in messages."""
        if limits is None or not limits.of_models:
            return self
        lower = copy.copy(self)
        lower.account = Account(name, limits, self.account, allow_unpriced=self.allow_unpriced)
        return lower

    def too_deep(self, depth: int) -> str | None:
        """Return an error text if agents may not be nested so deep, else None."""
        most = MAX_DEPTH if self.max_depth is None else self.max_depth
        return f"Max agent depth exceeded ({depth}/{most})" if depth > most else None

    @property
    def cwd(self) -> Path | None:
        """Working directory of the run's tools and scripts; None for that of this process."""
        return None if self.tool_options is None else self.tool_options.cwd

    @property
    def knowledge(self) -> RunKnowledge:
        """Knowledge access of the run, created on first use. Raises KnowledgeError if there is none."""
        if not self._known:
            if self.make_knowledge is None:
                raise KnowledgeError("knowledge bases are not available in this run")
            self._known.append(self.make_knowledge(self.meter))
        known = self._known[0]
        return known if self.account is self.meter.account else known.within(self.account)

    def results(self) -> StoredResults | None:
        """Return the store for complete results that conversations shorten; None if there is none.

        It is created on first use.
        """
        if not self.kept and self.make_results is not None:
            self.kept.append(self.make_results())
        return self.kept[0] if self.kept else None

    def chat(
        self,
        me: Actor,
        request: ChatRequest,
        *,
        node: str | None = None,
        attempts: int | Retry = 3,
        need_text: bool = False,
        hears: Callable[[Delta], None] | None = None,
    ) -> Coroutine[Any, Any, ChatReply]:
        """Send a request to a model on behalf of `me`, within the run's limits, and count it.

        Pieces of the reply become events while it arrives, if the run has a listener.

        Args:
            node: id of the node that is charged.
            attempts: see `Gateway.chat`.
            need_text: see `Gateway.chat`.
            hears: called with the pieces of the reply while it arrives, if it is streamed.

        Raises: the errors of `Gateway.chat`, and `TurnsReached`, `BudgetReached`, `Unpriced`.
        """
        on_delta = (_ignore if hears is None else hears) if self.streams and me.stream.heard else None
        on_usage = partial(self.meter.add, node=node, agent=self.agent)
        chat = partial(
            self.gateway.chat,
            me,
            on_usage=on_usage,
            attempts=attempts,
            need_text=need_text,
            may_wait=self.may_wait,
            account=self.account,
            recorder=self.recorder,
        )
        playing = playback.get()
        # The usual case has no wrapper: no pauses, replay, stand-in or middleware.
        if playing is None and self.stand_in is None and not self.middleware and me.root.pauses is None:
            return chat(request, on_delta=on_delta)
        asking = Asking(hears=on_delta, count=on_usage, account=self.account)
        return self._chat(me, request, playing, asking, chat)

    async def _chat(
        self,
        me: Actor,
        request: ChatRequest,
        playing: Playback | None,
        asking: Asking,
        chat: Callable[..., Awaitable[ChatReply]],
    ) -> ChatReply:
        """Send a request in a run with pauses, a replay, middleware, or a stand-in for models; see `chat`."""
        if me.root.pauses is not None:
            await me.root.pauses.passed(me)
        answers = self.stand_in

        def send(request: ChatRequest, hears: Callable[[Delta], None] | None) -> Awaitable[ChatReply]:
            if answers is None:
                return chat(request, on_delta=hears)
            return answers(me, request, msgspec.structs.replace(asking, hears=hears))

        ask: Callable[[], Awaitable[ChatReply]] = partial(send, request, asking.hears)
        if self.middleware:
            from .middleware import through

            ask = partial(through, self.middleware, me, request, asking, send)
        if playing is None:
            return await ask()
        return await playing.chat(me, request, asking, ask)

    def window(self, model: str) -> int | None:
        """Return the context window of `model` (or the default) in tokens, if it is known."""
        if self.stand_in is not None:
            return None
        playing = playback.get()
        if playing is None:
            return self.gateway.window(model)
        return playing.window(model, partial(self.gateway.window, model))


def _ignore(_: Any) -> None:
    """Ignore a piece: the gateway emits pieces as events itself, but streams only if there is a callback."""
