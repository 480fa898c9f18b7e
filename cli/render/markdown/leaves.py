"""What a Markdown text is made of while it is read: quotes and items, and the block that is open inside of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from .code import Colouring
from .layout import Row
from .tables import Cells, Columns, columns


@dataclass(frozen=True)
class Container:
    """A quote, or an item of a list.

    Attributes:
        marker: what stands before an item's first line; empty for a quote.
        need: columns by which a line has to be indented to belong to the item.
        offset: columns of its indentation that are no content.
    """

    marker: str = ""
    need: int = 0
    offset: int = 0


@dataclass
class Paragraph:
    """Lines of text.

    Attributes:
        size: characters that have come since it was settled last.
        tried: how many they were when it was last looked whether it can be settled.
        carry: the begin of its first line, which is laid out.
        mid: its last line goes on.
    """

    lines: list[str] = field(default_factory=list)
    size: int = 0
    tried: int = 0
    carry: Row = field(default_factory=list)
    mid: bool = False


@dataclass
class Fence:
    """Code between fences."""

    mark: str
    indent: int
    colours: Colouring


@dataclass
class Html:
    """Lines shown as they are, up to one that has one of `ends`; without any, up to an empty line."""

    ends: tuple[str, ...]


@dataclass
class Table:
    """A table: its first rows, which are waited for, and its columns in a width once it has begun to settle."""

    header: Cells
    align: str
    sample: list[Cells] = field(default_factory=list)
    size: int = 0
    settled: bool = False
    columns: Columns | None = None
    room: int = 0

    def laid_out(self, room: int) -> Columns:
        """How it fits into that many columns of the terminal."""
        if self.columns is None or self.room != room or not self.settled:
            self.columns, self.room = columns(self.header, self.align, self.sample, room), room
        return self.columns


class Indented:
    """Code by indentation."""


Leaf = Paragraph | Fence | Html | Table | Indented | None
