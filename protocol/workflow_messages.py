"""What nodes of a workflow say to each other; what its deciders (`engine/workflow`) receive, and have done.

What is received is kept of durable runs, as `messages` describes it: arrays with numbers for tags, and what stands in
them are arrays too, with new fields last.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .chat import Content, Role, text_of
from .effects import Work
from .failure import Failure
from .kernel.messages import Message as Told
from .messages import Follows, WorkDone


class Message(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One message between nodes.

    Attributes:
        source: the node it comes from; None for what a file puts into a queue.
        keep: it survives trimming and `clear_context`.
        preserve_role: edges leave its role as it is.
        dynamic: it came over a dynamic edge, so the next node with such an edge takes it apart.
        metadata: what functions say about it.
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
        """Its text, without images and files."""
        return self.content if isinstance(self.content, str) else text_of(self.content)


class Gate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the gate of a loop remembers from one visit to the next.

    Attributes:
        visits: since it last began to count.
        since: when its time began, in seconds; None before the first visit.
        spoken: whether it has ever said its message.
    """

    visits: int = 0
    since: float | None = None
    spoken: bool = False


# --- what is to be done -----------------------------------------------------------------------------------


class FireNode(Work, frozen=True, kw_only=True):
    """Run a node's own code, and carry what it says over its edges.

    Attributes:
        node: its id.
        visit: how often it has been fired, this time included.
        inputs: everything that was queued for it.
        gate: what it remembers, if it is one.
        said: what nodes have said last, as far as templates of its edges ask for it.
        failure: its own code was cancelled with this; only its edges are to be done.
    """

    node: str
    visit: int
    inputs: tuple[Message, ...]
    gate: Gate = Gate()
    said: dict[str, str] = msgspec.field(default_factory=dict)
    failure: Failure | None = None


class Unit(msgspec.Struct, frozen=True):
    """One run of a node's own code: all of its inputs, or the share of one unit of a map or tree.

    Attributes:
        index: its number in the batch; None for a node that does not run per unit.
        item, item_name: the unit's text, and how the node's role calls it.
    """

    inputs: tuple[Message, ...]
    index: int | None = None
    item: str | None = None
    item_name: str = "item"


class RunUnit(Work, frozen=True, kw_only=True):
    """Run a node's own code for one unit; `key` is the unit's number."""

    unit: Unit


# --- what deciders receive --------------------------------------------------------------------------------


class WorkflowBegun(Follows, frozen=True, kw_only=True, tag=50, array_like=True):
    """A graph is to run: its start nodes are given `task`."""

    task: tuple[Message, ...]

    def emptied(self) -> Told:
        """See `Follows`."""
        return WorkflowBegun(task=())


class UnitsBegun(Follows, frozen=True, kw_only=True, tag=51, array_like=True):
    """A batch of units is to run."""

    units: tuple[RunUnit, ...]

    def emptied(self) -> Told:
        """See `Follows`."""
        return UnitsBegun(units=())


class Crossing(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one edge does with one message.

    Attributes:
        way: the edge's number in the graph.
        arrives: what does; the number of an output that arrives as it was said, which is not told twice; None if
            nothing does.
        fires: whether it triggers its target.
    """

    way: int
    arrives: Message | int | None
    fires: bool


class Fired(WorkDone, frozen=True, kw_only=True, tag=52, array_like=True, gc=False):
    """What a firing came to.

    Attributes:
        node: its id.
        outputs: what it said.
        trace: the turns of its tool loop; a node with a context window remembers them instead of its output.
        failure: why it failed.
        unaccepted: failures that it went on over although the author has not said `on_error: continue`.
        crossings: what its edges do, in the order of messages and edges.
        tolerated: why it, or one of its units, would have failed if its node did not go on with that as its output.
        warnings: for the author of the file.
        gate: what it remembers now; None if that has not changed.
        seconds: how long it took.
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


class NodeSaid(WorkDone, frozen=True, kw_only=True, tag=53, array_like=True, gc=False):
    """What a node's own code came to for one unit; the attributes are those of `Fired`."""

    outputs: tuple[Message, ...] = ()
    trace: tuple[Message, ...] = ()
    failure: Failure | None = None
    unaccepted: tuple[Failure, ...] = ()


# --- what is noted ----------------------------------------------------------------------------------------

CALL = "call of a function"
"""What calls of functions of edges are noted as."""

CODE, NODE = "the code of '{}'", "the node '{}'"
"""What the code of a node is noted as; one whose type others bring has that behind."""


class Called(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a durable run keeps of the call of a function.

    Attributes:
        met: what a condition says.
        messages: what a processor makes of a message; none if it drops it.
        failure: why it failed.
        whose: the path of the workflow.
        number: of what the processors share; the highest is the last.
        shared: that; None for as before.
    """

    met: bool = True
    messages: tuple[Message, ...] = ()
    failure: Failure | None = None
    whose: str = ""
    number: int = 0
    shared: dict[str, Any] | None = None
