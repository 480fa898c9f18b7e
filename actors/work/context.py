"""What everybody who works in one run shares: models, limits, the meter, the way to other agents.

One `RunContext` is made per run and passed down to every graph, node and child agent of it. It is the run's only
common state: what it counts (`meter`) belongs to the run's own task tree, so no lock is needed. What an agent's file
says of all that works below it (what it denies, how deep agents may stand) goes along: `below` is the same run as they
see it.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import InitVar, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ...protocol.chat import ChatReply, ChatRequest, Delta
from ...protocol.errors import KnowledgeError
from ...protocol.graph.model import OwnLimits
from ...protocol.mcp.config import Server
from ...protocol.outcome import Outcome
from ...protocol.permissions import Permissions as Rules
from ...protocol.place import Branch, Place
from ...protocol.repeats import OnUnknown
from ...protocol.requests import Limits
from ...protocol.sandbox import Own, OwnSandbox, UserSandbox
from ...protocol.settings import Settings
from ...supervisors import Actor, Retry
from ..io.temporary import LazyDirectory, run_bases
from .playback.playback import Asking, playback
from .record import Record
from .spending.accounts import Account
from .spending.meter import Meter
from .tools.permissions import Permissions
from .tools.tool import Tool

if TYPE_CHECKING:
    from ..io.vault.vault import Vault
    from .hooks.hooks import Hooks
    from .knowledge.of_run import RunKnowledge
    from .labels.flow import Flow
    from .letters import Seat
    from .mcp.pool.servers import McpServers
    from .models.gateway import Gateway
    from .models.recorder import Recorder
    from .sandbox.of_run import Sandbox
    from .spending.book import Book
    from .tools.kept_results import KeptResults
    from .tools.registry import ToolOptions, ToolRegistry
    from .workspace import Workspace

MAX_DEPTH = 3
"""How deep agents may call agents, by default (Loki's `max_agent_depth`)."""


class AgentCall(msgspec.Struct, frozen=True, kw_only=True):
    """One agent wants another to work.

    Attributes:
        name: of the agent that is called; with `by_file` also a YAML file, relative to `near`.
        prompt: what it is told.
        variables: values for its variables.
        depth: how many agents stand above it.
        near: directory of the agent that calls.
        context: the run.
        record: where the called agent writes down what it does; it outlives it.
        seat: the called agent's place among its siblings (`letters`), if it was spawned by an agent.
        escalation_timeout: seconds its questions may wait; None for what its own file says.
        by_file: the author of a file has named the agent, not a model.
        place: where its caller has it played; None for where its own file says.
        attempt: which attempt this is, from 1.
    """

    name: str
    prompt: str
    variables: Mapping[str, str]
    depth: int
    near: Path
    context: RunContext
    record: Record | None = None
    seat: Seat | None = None
    escalation_timeout: float | None = None
    by_file: bool = False
    place: Place | None = None
    attempt: int = 1


AgentRunner = Callable[["Actor", AgentCall], Awaitable[str]]
"""Runs the called agent as a child of the given actor, and returns the text of its answer."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a run that may be played elsewhere (`front/cluster/placing`): an agent that is called, or an item of a
    map with its branch. What a file says of it, and what stands above it, goes along; see `protocol/place`.

    Attributes:
        name: what people call it.
        target: directory or file of the agent.
        needs: labels that a worker must have.
        prompt, variables, branch: see `RunRequest` and `PartOf`.
        context, depth: those of who would play it here.
        attempt: which attempt at it this is, from 1.
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


class Elsewhere(Protocol):
    """Has parts of one run played elsewhere."""

    def __call__(self, me: Actor, part: Part) -> Awaitable[Outcome]:
        """Wait for a part, whose questions are asked by `me`; what it has used is counted.

        Raises:
            CallboardError: it can't be sent, or a limit of ours was reached.
        """


@dataclass(kw_only=True, eq=False, repr=False)  # it holds secrets
class RunContext:
    """See the module.

    Args:
        limits: what the run may use.
        allow_unpriced: a limit in money does not keep it from models whose price is not known.
        owner, book, day: see `Meter`.
        agent: the name of the agent that works here, for the book.
        streams: pieces of replies become events, if the run has a listener.
        may_wait: requests wait where their provider wants them to; see `Gateway.chat`.
        make_knowledge: makes what the run looks things up in; None in a run that has nothing.
        make_results: makes where results of tools are kept whole that conversations cut; None for nowhere.

    Attributes:
        gateway: the way to models.
        meter: what the run has used.
        account: what those who work here are charged to; None where nothing is limited.
        kept: what `results` has made, if anything.
        sandboxes: those that files of agents have asked for, where the user wants none.
        config_dir: where agents, tools and settings live.
        environ: the environment that scripts inherit.
        vault: has the secrets that variables of agents name; None for the environment.
        model: the model the user asked for with `-m`, or "".
        compat: the dialect forced from outside (`--compat`), or None for what each file says.
        run_agent: runs a child agent.
        agents_near: the agents that the one in a directory can call, by name, with their descriptions. Reads files.
        unknown_agent: what is wrong with an agent's name, seen from the directory of who calls; None if nothing.
        registry: the tools there are; None in a run that has none.
        tool_options: what the user of the run says about tools.
        permissions: which calls may go ahead.
        functions: Python functions that the caller gave to the run as tools.
        max_depth: how deep agents may call agents, as the files above say; None at the root, whose own file says it.
        settings: what `config.yaml` says.
        mcp: the MCP servers; they are made when this is first called. None in a run that has none.
        servers: those that the run's own agent has beside the ones it names.
        recorder: keeps what the run's models see and say; None where nothing is kept.
        on_unknown: what is to be done about calls that were under way at a kill, before what files say.
        hooks: who has a say in what the run does; None for nobody.
        flow: what all who work in the run carry; None where nothing is made of that.
        workspace: what the run takes from its directory; None for nothing.
        sandbox: what the run's processes are held to; None for nothing.
        elsewhere: has parts of the run played elsewhere; None where there is one place only.
    """

    gateway: Gateway
    limits: InitVar[Limits]
    allow_unpriced: bool = False
    owner: InitVar[str] = ""
    book: InitVar[Book | None] = None
    day: InitVar[Account | None] = None
    agent: str = ""
    config_dir: Path
    environ: Mapping[str, str]
    vault: Vault | None = None
    run_agent: AgentRunner
    unknown_agent: Callable[[str, Path], str | None] = lambda name, near: None  # noqa: ARG005 - knows none
    agents_near: Callable[[Path], list[tuple[str, str]]] = lambda near: []  # noqa: ARG005 - knows none
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
    make_results: Callable[[], KeptResults] | None = None
    recorder: Recorder | None = None
    on_unknown: OnUnknown | None = None
    sandbox: Sandbox | None = None
    workspace: Workspace | None = None
    hooks: Hooks | None = None
    flow: Flow | None = None
    elsewhere: Elsewhere | None = None

    def __post_init__(self, limits: Limits, owner: str, book: Book | None, day: Account | None) -> None:
        self.meter = Meter(limits, allow_unpriced=self.allow_unpriced, owner=owner, book=book, day=day)
        self.account = self.meter.account
        self._known: list[RunKnowledge] = []
        self.kept: list[KeptResults] = []
        self.sandboxes: list[Sandbox] = []

    def below(self, rules: Rules, max_depth: int | None) -> RunContext:
        """The run as those see it who work below an agent.

        Args:
            rules: `permissions` of its file; what they deny is denied below as well.
            max_depth: its `max_agent_depth`, which lowers what the files above it say, and never raises it.
        """
        lower = copy.copy(self)
        lower.permissions = self.permissions.below(rules)
        if self.max_depth is None:
            lower.max_depth = MAX_DEPTH if max_depth is None else max_depth
        elif max_depth is not None:
            lower.max_depth = min(self.max_depth, max_depth)
        return lower

    def settles(self, own: OnUnknown | None) -> OnUnknown | None:
        """What is to be done about a call that was under way at a kill; `own` is what the file of its maker says."""
        return self.on_unknown or own or self.settings.durable.on_unknown

    def settling(self, own: OnUnknown | None) -> RunContext:
        """The run as those see it who work on something that says this itself."""
        if own is None or self.on_unknown is not None:
            return self
        lower = copy.copy(self)
        lower.on_unknown = own
        return lower

    def played_by(self, agent: str) -> RunContext:
        """The run as those see it who work for this agent."""
        lower = copy.copy(self)
        lower.agent = agent
        return lower

    def hold(self, me: Actor, own: Own) -> None:
        """Hold the processes of this task, and of all that works below it and `me`, to what a file says of them too."""
        from .sandbox.current import current
        from .sandbox.grants import Grants
        from .sandbox.of_run import Sandbox

        narrowing = OwnSandbox(profile=own) if isinstance(own, str) else own
        sandbox = current.get()
        if sandbox is None:
            place = LazyDirectory(f"own-{secrets.token_hex(4)}", partial(run_bases, self.environ))
            here, base = self.cwd or Path.cwd(), self.config_dir.absolute()
            off = UserSandbox(profile="off")
            grants = Grants(self.permissions, None)
            sandbox = Sandbox(off, here=here, config_dir=base, environ=self.environ, temporary=place, grants=grants)
            sandbox.works_under(me)
            self.sandboxes.append(sandbox)
        current.set(sandbox.narrower(narrowing))

    def carrying(self, flow: Flow) -> RunContext:
        """The run as those see it who work for a conversation that carries this."""
        lower = copy.copy(self)
        lower.flow = flow
        return lower

    def limited(self, name: str, limits: OwnLimits | None) -> RunContext:
        """The run as those see it who work on something with limits of its own; `name` is how people call it."""
        if limits is None or not limits.of_models:
            return self
        lower = copy.copy(self)
        lower.account = Account(name, limits, self.account, allow_unpriced=self.allow_unpriced)
        return lower

    def too_deep(self, depth: int) -> str | None:
        """Why no agent may stand so deep; None if one may."""
        most = MAX_DEPTH if self.max_depth is None else self.max_depth
        return f"Max agent depth exceeded ({depth}/{most})" if depth > most else None

    @property
    def cwd(self) -> Path | None:
        """The directory that the run's tools and scripts work in; None for ours."""
        return None if self.tool_options is None else self.tool_options.cwd

    @property
    def knowledge(self) -> RunKnowledge:
        """What the run looks things up in; made when this is first asked for."""
        if not self._known:
            if self.make_knowledge is None:
                raise KnowledgeError("there is no knowledge to be had here")
            self._known.append(self.make_knowledge(self.meter))
        known = self._known[0]
        return known if self.account is self.meter.account else known.within(self.account)

    def results(self) -> KeptResults | None:
        """Where results are kept whole that conversations cut; made when this is first called."""
        if not self.kept and self.make_results is not None:
            self.kept.append(self.make_results())
        return self.kept[0] if self.kept else None

    async def chat(
        self,
        me: Actor,
        request: ChatRequest,
        *,
        node: str | None = None,
        attempts: int | Retry = 3,
        need_text: bool = False,
        hears: Callable[[Delta], None] | None = None,
    ) -> ChatReply:
        """Ask a model on behalf of `me`, within the run's limits, and count it.

        Pieces of the reply become events while it arrives, if the run has a listener.

        Args:
            node: id of the node on whose account it goes.
            attempts: see `Gateway.chat`.
            need_text: see `Gateway.chat`.
            hears: told the pieces of the reply while it arrives, if it is streamed.

        Raises: what `Gateway.chat` raises, and `TurnsReached`, `BudgetReached`, `Unpriced`.
        """
        if me.root.pauses is not None:
            await me.root.pauses.passed(me)
        on_delta = (_ignore if hears is None else hears) if self.streams and me.stream.heard else None
        on_usage = partial(self.meter.add, node=node, agent=self.agent)
        ask = partial(
            self.gateway.chat,
            me,
            request,
            on_delta=on_delta,
            on_usage=on_usage,
            attempts=attempts,
            need_text=need_text,
            may_wait=self.may_wait,
            account=self.account,
            recorder=self.recorder,
        )
        playing = playback.get()
        if playing is None:
            return await ask()
        asking = Asking(hears=on_delta, count=on_usage, account=self.account)
        return await playing.chat(me, request, asking, ask)

    def window(self, model: str) -> int | None:
        """Tokens that `model` (or the default) takes in, as far as that is known."""
        playing = playback.get()
        if playing is None:
            return self.gateway.window(model)
        return playing.window(model, partial(self.gateway.window, model))


def _ignore(_: Any) -> None:
    """The gateway emits the pieces as events by itself; asking for them is what makes it stream."""
