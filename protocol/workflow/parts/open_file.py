"""A workflow file while it is read."""

from __future__ import annotations

import msgspec

from ...source import Node, Source
from .reading import WorkflowReading


class OpenFile(msgspec.Struct):
    """See the module.

    Attributes:
        inside: how many broken values belong to subgraphs that are read already; the graph around may still be judged.
    """

    reading: WorkflowReading
    source: Source
    variables: dict[str, Node]
    inside: int = 0

    def broken(self) -> int:
        """How many values of the graphs that are being read could not be read."""
        return len(self.reading.broken) - self.inside
