"""Messages between the nodes of a workflow, and the effects and events of its deciders (`engine/workflow`).

Durable runs store the events as `messages` describes it: arrays with a number as tag. The values in them are arrays
too, and new fields come last.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .chat import Content, Role, text_of
from .effects import Work
from .kernel.messages import Message as Told
from .messages import Failure, Follows, WorkDone


class Message(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """A message between two nodes.

    Attributes:
        source: id of the sending node; None for a message that the file puts into a queue.
        keep: the message survives trimming and `clear_context`.
        preserve_role: edges do not change its role.
        dynamic: it came over a dynamic edge, so the next node with such an edge splits it.
        metadata: data that functions attach to it.
    """

    role: Role
    content: Content
    source: str | None = None
    keep: bool = False
    preserve_role: bool = False
    dynamic: bool = False
    metadata: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """Return its text, without images and files."""
        return self.content if isinstance(self.content, str) else text_of(self.content)


class Gate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """State of the gate of a loop between two visits.

    Attributes:
        visits: number of visits since it last began to count.
        since: start of its time, in seconds; None before the first visit.
        spoken: True if it has sent its message at least once.
    """

    visits: int = 0
    since: float | None = None
    spoken: bool = False


# --- effects ----------------------------------------------------------------------------------------------


class FireNode(Work, frozen=True, kw_only=True, tag="FireNode"):
    """Run a node's own code, and carry its outputs over its edges.

    Attributes:
        node: id of the node.
        visit: number of times the node has fired, including this one.
        inputs: all messages in its queue.
        gate: its state, if it is a gate.
        said: last outputs of nodes, limited to nodes used in templates of its edges.
        failure: failure with which its own code was cancelled; only its edges remain to be followed.
    """

    node: str
    visit: int
    inputs: tuple[Message, ...]
    gate: Gate = Gate()
    said: dict[str, str] = msgspec.field(default_factory=dict)
    failure: Failure | None = None


class Unit(msgspec.Struct, frozen=True):
    """A run of a node's own code, either for all its inputs or for the share of one unit of a map or tree.

    Attributes:
        index: number of the unit in the batch; None for a node that does not run per unit.
        item, item_name: text of the unit, and its name in the node's role.
    """

    inputs: tuple[Message, ...]
    index: int | None = None
    item: str | None = None
    item_name: str = "item"


class RunUnit(Work, frozen=True, kw_only=True, tag="RunUnit"):
    """Run a node's own code for one unit; `key` is the number of the unit."""

    unit: Unit


# --- what deciders receive --------------------------------------------------------------------------------


# Numbers from 50 on: `messages` has the lower ones, and all of these structs are members of the union `journal.Kept`.
class WorkflowBegun(Follows, frozen=True, kw_only=True, tag=50, array_like=True):
    """Start of a graph: its start nodes receive `task`."""

    task: tuple[Message, ...]

    def emptied(self) -> Told:
        """Return the message without its contents."""
        return WorkflowBegun(task=())


class UnitsBegun(Follows, frozen=True, kw_only=True, tag=51, array_like=True):
    """Start of a batch of units."""

    units: tuple[RunUnit, ...]

    def emptied(self) -> Told:
        """Return the message without its contents."""
        return UnitsBegun(units=())


class Crossing(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Effect of one edge on one message.

    Attributes:
        way: number of the edge in the graph.
        arrives: message at the target, or the number of an output that arrives unchanged and is not stored twice; None
            if no message arrives.
        fires: whether the edge triggers its target.
    """

    way: int
    arrives: Message | int | None
    fires: bool


class Fired(WorkDone, frozen=True, kw_only=True, tag=52, array_like=True, gc=False):
    """Result of a firing.

    Attributes:
        node: id of the node.
        outputs: messages that it produced.
        trace: turns of its tool loop; a node with a context window remembers them instead of its output.
        failure: reason for its failure.
        unaccepted: failures after which it continued, although the author did not set `on_error: continue`.
        crossings: effects of its edges, in the order of messages and edges.
        tolerated: reason for a failure of the node, or of one of its units, that the node returns as output.
        warnings: warnings for the author of the file.
        gate: new state of its gate; None if it has not changed.
        seconds: duration of the firing.
    """

    node: str
    outputs: tuple[Message, ...] = ()
    trace: tuple[Message, ...] = ()
    failure: Failure | None = None
    unaccepted: tuple[Failure, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    tolerated: Failure | None = None
    warnings: tuple[str, ...] = ()
    gate: Gate | None = None
    seconds: float = 0.0


class NodeCodeDone(WorkDone, frozen=True, kw_only=True, tag=53, array_like=True, gc=False):
    """Result of a node's own code for one unit; the attributes have the same meaning as in `Fired`."""

    outputs: tuple[Message, ...] = ()
    trace: tuple[Message, ...] = ()
    failure: Failure | None = None
    unaccepted: tuple[Failure, ...] = ()


# --- events -----------------------------------------------------------------------------------------------

CALL = "call of a function"
"""Name under which calls of edge functions are recorded."""

CODE, NODE = "the code of '{}'", "the node '{}'"
"""Names under which the code of a node is recorded; for a node type of a plugin, the type follows."""


class Called(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Result of a function call, as a durable run stores it.

    Attributes:
        met: result of a condition.
        messages: messages that a processor returns; empty if it drops the message.
        failure: reason for a failure.
        whose: path of the workflow that the call belongs to.
        number: number of the version of the processors' shared state; the highest is the latest.
        shared: the shared state; None if it has not changed.
    """

    met: bool = True
    messages: tuple[Message, ...] = ()
    failure: Failure | None = None
    whose: str = ""
    number: int = 0
    shared: dict[str, Any] | None = None
