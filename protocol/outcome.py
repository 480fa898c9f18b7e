"""How a run ended: what `callboard.run` returns and `-o json` prints."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from .errors import CallboardError
from .events import SCHEMA_VERSION
from .place import Carried

Status = Literal["done", "failed", "cancelled"]


class Usage(msgspec.Struct, kw_only=True):
    """What one model was used for. Tokens as the provider counted them; `cost` in USD.

    `priced` is false if the price of any reply was not known; such replies are not in the cost.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    priced: bool = True


class NodeTime(msgspec.Struct, kw_only=True):
    """How often a node ran and how long in all. Map items and child graphs count towards their node."""

    visits: int = 0
    seconds: float = 0.0


class ErrorReport(msgspec.Struct, frozen=True, kw_only=True):
    """An error for machines: the `code` of its class, its text, and the node it happened at."""

    code: str
    message: str
    node: str | None = None

    @classmethod
    def of(cls, error: CallboardError) -> ErrorReport:
        """The report of an error."""
        return cls(code=error.code, message=str(error), node=error.node)


ChildStatus = Literal["running", "completed", "failed", "cancelled"]


class ChildRecord(msgspec.Struct, kw_only=True):
    """A child agent, as `-o json` lists it under `children`.

    Attributes:
        id: `agent_<name>_<8 hex digits>`.
        agent: name of the agent.
        status: how it stands.
        output: what it said, complete or not.
        error: what it failed with.
        turns, tool_calls: how many.
        children: its own.
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
    """What a node of a workflow has said, or what waits for one; `source` is where it comes from, if that is known."""

    role: str
    content: str
    source: str | None = None


class Outcome(msgspec.Struct, kw_only=True):
    """The whole result of one run.

    Attributes:
        run_id: also the first part of every actor path of the run.
        status: `done`, `failed` (see `error`) or `cancelled`.
        output: the text of the end node (graph) or of the agent's last answer; "" if that was not reached. A run that
            reached its end over `failures` has failed and has an output.
        state: the final state of the graph; for a failed run, the state before the failing step.
        order: node ids as the scheduler started them, map items and child graphs excluded; of a workflow, those of its
            subgraphs too.
        nodes: per node id, visits and seconds.
        usage: per model id, tokens and cost, and whether that is all of the cost.
        priced: whether the costs of all models are known.
        turns: model replies, those of nodes and child agents included.
        tool_calls: calls that were played, likewise.
        children: the agents that the run's agent spawned, each with what it said.
        final_messages: of a workflow, all that its final node has said; the last of it is the output.
        leftover: of a workflow, what was still queued at the end, by node.
        failures: failures that the run went on over although the file does not accept them by a `fallback` or by
            `on_error`, in order. A run that has any is not `done`.
        error: why the run failed: the first of `failures`, else what ended it; or None.
        unsaved: why not all of it could be kept as files (`save`), or None.
        resumable: of a run that is `cancelled`: it ended with its process, and `callboard resume` goes on with it.
        carries: of a part of another run, what its conversations carry at its end; see `labels`.
        exit_code: what the command line exits with; not part of the JSON.
    """

    run_id: str
    status: Status
    output: str = ""
    state: dict[str, Any] = {}
    order: list[str] = []
    nodes: dict[str, NodeTime] = {}
    usage: dict[str, Usage] = {}
    priced: bool = True
    turns: int = 0
    tool_calls: int = 0
    children: list[ChildRecord] = []
    final_messages: list[Message] | None = None
    leftover: dict[str, list[Message]] | None = None
    failures: list[ErrorReport] = []
    error: ErrorReport | None = None
    unsaved: str | None = None
    resumable: bool = False
    carries: Carried | None = None
    exit_code: int = 0

    def to_wire(self) -> dict[str, Any]:
        """The object that `-o json` prints; seconds to the microsecond, costs to a hundred-millionth of a cent."""
        wire: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
        wire.update(msgspec.to_builtins(self))
        del wire["exit_code"]
        for key in ("final_messages", "leftover"):
            if wire[key] is None:  # it was no workflow
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
