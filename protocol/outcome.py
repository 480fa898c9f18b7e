"""Outcome of a run: the return value of `callboard.run`, and the output of `-o json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, cast

import msgspec

from .errors import CallboardError, RunFailed
from .events import SCHEMA_VERSION
from .json_values import to_json
from .placement import Carried

# A default of a TypeVar (PEP 696) needs Python 3.13, or typing_extensions, which is not a dependency.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    R = TypeVar("R")

Status = Literal["done", "failed", "cancelled"]


class Usage(msgspec.Struct, kw_only=True):
    """Usage of one model. Tokens as the provider counted them; `cost` in USD.

    `priced` is False if the price of any reply was unknown; such replies are not in the cost.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    priced: bool = True


class NodeTime(msgspec.Struct, kw_only=True):
    """Visits and total seconds of a node. Map items and child graphs count towards their node."""

    visits: int = 0
    seconds: float = 0.0


class ErrorReport(msgspec.Struct, frozen=True, kw_only=True):
    """An error for machines: the `code` of its class, its text, and the node it happened at."""

    code: str
    message: str
    node: str | None = None

    @classmethod
    def of(cls, error: CallboardError) -> ErrorReport:
        """Return the report of an error."""
        return cls(code=error.code, message=str(error), node=error.node)


ChildStatus = Literal["running", "completed", "failed", "cancelled"]


class ChildRecord(msgspec.Struct, kw_only=True):
    """Child agent, as `-o json` lists it under `children`.

    Attributes:
        id: `agent_<name>_<8 hex digits>`.
        agent: name of the agent.
        status: its status.
        output: its output, complete or not.
        error: its error.
        turns, tool_calls: numbers of each.
        children: its own children.
    """

    id: str
    agent: str
    status: ChildStatus = "running"
    output: str = ""
    error: str | None = None
    turns: int = 0
    tool_calls: int = 0
    children: list[ChildRecord] = []


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Message by or for a node of a workflow; `source` is its origin, if known."""

    role: str
    content: str
    source: str | None = None


class Outcome(msgspec.Struct, Generic[R], kw_only=True):
    """Result of one run; `R` is the type of its `result`.

    Attributes:
        run_id: id of the run; also the first part of each of its actor paths.
        status: `done`, `failed` (see `error`) or `cancelled`.
        output: text of the end node (graph) or of the agent's last answer; "" if that was not reached. A run that
            reached its end in spite of `failures` has failed and has an output.
        final: text of the agent's last turn alone; for a graph or a workflow its output.
        result: answer as an object of the `result` type of the run, or of its agent; None without one.
        has_result: True if `result` is such an object; not part of the JSON.
        state: final state of the graph; for a failed run, the state before the failing super-step.
        order: node ids in the order of their starts, without map items and child graphs; for a workflow, with the nodes
            of its subgraphs.
        nodes: visits and seconds by node id.
        usage: tokens and cost by model id.
        cost_complete: True if the costs of all models are known; `priced` in the JSON.
        turns: number of model replies, including those of nodes and child agents.
        tool_calls: number of executed calls, likewise.
        children: agents that the run's agent spawned, each with its output.
        final_messages: for a workflow, all messages of its final node; the last one is the output.
        pending: for a workflow, messages that were still queued at the end, by node; `leftover` in the JSON.
        failures: failures that the run survived although the file does not accept them by a `fallback` or by
            `on_error`, in order. A run with any is not `done`.
        error: reason of the failure: the first of `failures`, else the error that ended it; or None.
        save_error: reason why files (`save`) are incomplete, or None; `unsaved` in the JSON.
        resumable: for a `cancelled` run, True if it ended with its process, and `callboard resume` continues it.
        carries: for a remote child, the labels of its conversations at its end; see `labels`.
        exit_code: exit code of the command line; not part of the JSON.
    """

    run_id: str
    status: Status
    output: str = ""
    final: str = ""
    result: R | None = None
    has_result: bool = False
    state: dict[str, Any] = {}
    order: list[str] = []
    nodes: dict[str, NodeTime] = {}
    usage: dict[str, Usage] = {}
    # The JSON keeps the earlier name, here and twice below: a renamed field would need a new `schema_version`.
    cost_complete: bool = msgspec.field(default=True, name="priced")
    turns: int = 0
    tool_calls: int = 0
    children: list[ChildRecord] = []
    final_messages: list[Message] | None = None
    pending: dict[str, list[Message]] | None = msgspec.field(default=None, name="leftover")
    failures: list[ErrorReport] = []
    error: ErrorReport | None = None
    save_error: str | None = msgspec.field(default=None, name="unsaved")
    resumable: bool = False
    carries: Carried | None = None
    exit_code: int = 0

    def __post_init__(self) -> None:
        if not self.final:  # It is only sent if it differs from the output.
            self.final = self.output

    @property
    def priced(self) -> bool:
        """Deprecated name of `cost_complete`."""
        from .deprecation import warn_of

        warn_of("Outcome.priced", "cost_complete")
        return self.cost_complete

    @property
    def leftover(self) -> dict[str, list[Message]] | None:
        """Deprecated name of `pending`."""
        from .deprecation import warn_of

        warn_of("Outcome.leftover", "pending")
        return self.pending

    @property
    def unsaved(self) -> str | None:
        """Deprecated name of `save_error`."""
        from .deprecation import warn_of

        warn_of("Outcome.unsaved", "save_error")
        return self.save_error

    def unwrap(self) -> R:
        """Return the `result`; for a run without a result type, the `final` text.

        Raises:
            OutcomeError: the run is not done; its `outcome` is this.
        """
        if self.status != "done":
            raise OutcomeError(self)
        return cast("R", self.result if self.has_result else self.final)

    def to_wire(self) -> dict[str, Any]:
        """Return the object that `-o json` prints: seconds rounded to 1 µs, costs to 10 decimal places of a dollar."""
        wire: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
        wire.update(to_json(self))
        del wire["exit_code"], wire["has_result"]
        if not self.has_result:
            del wire["result"]
        if self.final == self.output:
            del wire["final"]
        for key in ("final_messages", "leftover"):
            if wire[key] is None:  # not a workflow
                del wire[key]
        if wire["unsaved"] is None:
            del wire["unsaved"]
        if not wire["resumable"]:
            del wire["resumable"]
        if wire["carries"] is None:
            del wire["carries"]
        for time in wire["nodes"].values():
            time["seconds"] = round(time["seconds"], 6)
        for usage in wire["usage"].values():
            usage["cost"] = round(usage["cost"], 10)
        return wire


class OutcomeError(RunFailed):
    """Error of `Outcome.unwrap` for a run that is not done. Its code is the run's error code, or `cancelled`.

    Attributes:
        outcome: the outcome.
    """

    code: str = "cancelled"

    def __init__(self, outcome: Outcome[Any]) -> None:
        error = outcome.error
        super().__init__(
            f"{outcome.run_id} was cancelled" if error is None else f"{outcome.run_id} failed: {error.message}"
        )
        self.outcome = outcome
        self.exit_code: int = outcome.exit_code or 1
        if error is not None:
            self.code = error.code
            self.node: str | None = error.node
