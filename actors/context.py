"""What everybody who works in one run shares: models, limits, the meter, the way to other agents.

One `RunContext` is made per run and passed down to every graph, node and child agent of it. It is the run's only
common state: what it counts (`meter`) belongs to the run's own task tree, so no lock is needed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..protocol.chat import ChatReply, ChatRequest, Delta, TokenUsage
from ..protocol.errors import BudgetReached, TurnsReached, UsageError
from ..protocol.events import UsageUpdate
from ..protocol.outcome import Usage
from .agent.record import Record
from .tools.permissions import Permissions
from .tools.tool import Tool

if TYPE_CHECKING:
    from ..supervisors import Actor
    from .agent.mail import Seat
    from .models.gateway import Gateway
    from .tools.collect import Shelf, ToolOptions

MAX_DEPTH = 3
"""How deep agents may call agents, by default (Loki's `max_agent_depth`)."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may use at most; None for no limit. All of a run's graphs and agents share them.

    Attributes:
        timeout: seconds.
        max_turns: model requests that were answered.
        max_tokens: input and output tokens together.
        max_cost: USD, as far as prices are known.
    """

    timeout: float | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None

    def __post_init__(self) -> None:
        """Raise `UsageError` for a limit that nothing could keep."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise UsageError(f"Limits({name}={value!r}): a limit is a number of at least 0, or None for no limit")


class Meter:
    """Counts what a run uses, per model, and ends it when a limit is passed.

    A limit is checked before a request goes out: the reply that passes it is still used. Requests under way count as
    turns, so that a hundred nodes at once do not take a hundred where one is left.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.turns = 0
        self.tool_calls = 0
        self.under_way = 0
        self.models: dict[str, Usage] = {}
        self.nodes: dict[str, Usage] = {}

    def admit(self) -> None:
        """Raise `TurnsReached` or `BudgetReached` if nothing more may be asked."""
        limits = self.limits
        if limits.max_turns is not None and self.turns + self.under_way >= limits.max_turns:
            turns = "1 model turn" if limits.max_turns == 1 else f"{limits.max_turns} model turns"
            raise TurnsReached(f"the run has used its {turns} (--max-turns)")
        tokens = sum(usage.input_tokens + usage.output_tokens for usage in self.models.values())
        if limits.max_tokens is not None and tokens >= limits.max_tokens:
            raise BudgetReached(f"the run has used {tokens} of its {limits.max_tokens} tokens (--max-tokens)")
        cost = sum(usage.cost for usage in self.models.values())
        if limits.max_cost is not None and cost >= limits.max_cost:
            raise BudgetReached(f"the run has cost {cost:.4f} of its {limits.max_cost:g} USD (--max-cost)")

    def add(self, model: str, tokens: TokenUsage, cost: float, node: str | None) -> UsageUpdate:
        """Count one reply; returns the totals of its model."""
        self.turns += 1
        usage = self.models.setdefault(model, Usage())
        of_node = Usage() if node is None else self.nodes.setdefault(node, Usage())
        for total in (usage, of_node):
            total.input_tokens += tokens.input_tokens
            total.output_tokens += tokens.output_tokens
            total.cost += cost
        return UsageUpdate(
            model=model,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost=usage.cost,
            node=node,
            node_input_tokens=of_node.input_tokens,
            node_output_tokens=of_node.output_tokens,
            node_cost=of_node.cost,
        )


class AgentCall(msgspec.Struct, frozen=True, kw_only=True):
    """One agent wants another to work.

    Attributes:
        name: of the agent that is called.
        prompt: what it is told.
        variables: values for its variables.
        depth: how many agents stand above it.
        near: directory of the agent that calls.
        context: the run.
        record: where the called agent writes down what it does; it outlives it.
        seat: the called agent's place among its siblings (`agent.mail`), if it was spawned by an agent.
        escalation_timeout: seconds its questions may wait; None for what its own file says.
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


AgentRunner = Callable[["Actor", AgentCall], Awaitable[str]]
"""Runs the called agent as a child of the given actor, and returns the text of its answer."""


class RunContext:
    """See the module.

    Attributes:
        gateway: the way to models.
        meter: what the run has used.
        config_dir: where agents, tools and settings live.
        environ: the environment that scripts inherit.
        model: the model the user asked for with `-m`, or "".
        compat: the dialect forced from outside (`--compat`), or None for what each file says.
        run_agent: runs a child agent.
        unknown_agent: what is wrong with an agent's name, seen from the directory of who calls; None if nothing.
        shelf: the tools there are; None in a run that has none.
        tool_options: what the user of the run says about tools.
        permissions: which calls may go ahead.
        functions: Python functions that the caller gave to the run as tools.
        max_depth: how deep agents may call agents.
    """

    def __init__(
        self,
        *,
        gateway: Gateway,
        limits: Limits,
        config_dir: Path,
        environ: Mapping[str, str],
        run_agent: AgentRunner,
        unknown_agent: Callable[[str, Path], str | None] = lambda name, near: None,  # noqa: ARG005 - knows none
        model: str = "",
        compat: str | None = None,
        streams: bool = True,
        max_depth: int = MAX_DEPTH,
        shelf: Shelf | None = None,
        tool_options: ToolOptions | None = None,
        permissions: Permissions | None = None,
        functions: tuple[Tool, ...] = (),
    ) -> None:
        self.gateway = gateway
        self.meter = Meter(limits)
        self.config_dir = config_dir
        self.environ = environ
        self.run_agent = run_agent
        self.unknown_agent = unknown_agent
        self.model = model
        self.compat = compat
        self.max_depth = max_depth
        self.shelf = shelf
        self.tool_options = tool_options
        self.permissions = permissions or Permissions()
        self.functions = functions
        self._streams = streams

    async def chat(
        self,
        me: Actor,
        request: ChatRequest,
        *,
        node: str | None = None,
        attempts: int = 3,
        need_text: bool = False,
        hears: Callable[[Delta], None] | None = None,
    ) -> ChatReply:
        """Ask a model on behalf of `me`, within the run's limits, and count it.

        Pieces of the reply become events while it arrives, if somebody listens to the run.

        Args:
            node: id of the node on whose account it goes.
            attempts: exact number of requests at most.
            need_text: an empty reply is a failure that may pass, like a broken connection.
            hears: told the pieces of the reply while it arrives, if it is streamed.

        Raises: what `Gateway.chat` raises, and `TurnsReached`, `BudgetReached`.
        """

        def count(model: str, tokens: TokenUsage, cost: float) -> UsageUpdate:
            return self.meter.add(model, tokens, cost, node)

        self.meter.admit()
        self.meter.under_way += 1
        try:
            return await self.gateway.chat(
                me,
                request,
                on_delta=(hears or _ignore) if self._streams and me.stream.heard else None,
                on_usage=count,
                attempts=attempts,
                need_text=need_text,
            )
        finally:
            self.meter.under_way -= 1


def _ignore(_: Any) -> None:
    """The gateway emits the pieces as events by itself; asking for them is what makes it stream."""
