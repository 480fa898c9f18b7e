"""How a workflow ended, filled in while it runs, so that what ends it early leaves how far it has come."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ....protocol.outcome import Message as Told
from ....protocol.outcome import NodeTime
from ..graph.decider import GraphResult
from .machine.result import Result
from .messages import Message


class WorkflowResult(GraphResult, kw_only=True):
    """How a workflow ended; `output` is the result text, `order` holds the nodes of subgraphs as well.

    Attributes:
        final_messages, leftover: see `Result`.
        outputs: what each node has said; the nodes of a subgraph are called `Team/Writer`.
    """

    final_messages: tuple[Message, ...] = ()
    leftover: dict[str, tuple[Message, ...]] = msgspec.field(default_factory=dict)
    outputs: dict[str, tuple[Message, ...]] = msgspec.field(default_factory=dict)

    def told(self) -> tuple[list[Told], dict[str, list[Told]], dict[str, list[Told]]]:
        """The messages as an outcome has them: what the final node said, what was left over, what each node said."""
        left, said = (
            {node: [_told(message) for message in messages] for node, messages in each.items()}
            for each in (self.leftover, self.outputs)
        )
        return [_told(message) for message in self.final_messages], left, said

    def keep(self, prefix: str, outputs: Mapping[str, tuple[Message, ...]]) -> None:
        """Keep what the nodes of a graph have said."""
        for id, said in outputs.items():
            self.outputs[prefix + id] = (*self.outputs.get(prefix + id, ()), *said)

    def take(self, result: Result, timing: Mapping[str, tuple[int, float, float]]) -> None:
        """Take over how far the workflow's own machine has come; what a subgraph takes is its node's time."""
        self.output = result.final
        self.nodes = {id: NodeTime(visits=visits, seconds=seconds) for id, (visits, seconds, _) in timing.items()}
        self.final_messages = result.final_messages
        self.leftover = result.leftover
        self.keep("", result.outputs)


def _told(message: Message) -> Told:
    return Told(role=message.role, content=message.text, source=message.source)
