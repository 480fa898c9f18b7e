"""Open blocks of the Markdown parser: containers (quotes, list items) and the leaf inside them."""

from __future__ import annotations

from dataclasses import dataclass, field

from .code import Colouring
from .layout import Row
from .tables import Cells, Columns, columns


@dataclass(frozen=True)
class Container:
    """Quote or list item.

    Attributes:
        marker: text before an item's first line; empty for a quote.
        need: minimum indentation in columns of lines that belong to the item.
        offset: columns of indentation that are not content.
    """

    marker: str = ""
    need: int = 0
    offset: int = 0


@dataclass
class Paragraph:
    """Lines of text.

    Attributes:
        size: characters since the last settlement.
        tried: `size` at the last check whether the text can settle.
        carry: already laid out start of the first line.
        mid: True if the last line continues.
    """

    lines: list[str] = field(default_factory=list)
    size: int = 0
    tried: int = 0
    carry: Row = field(default_factory=list)
    mid: bool = False


@dataclass
class Fence:
    mark: str
    indent: int
    colours: Colouring


@dataclass
class Html:
    """Verbatim lines up to a line that contains one of `ends`; without any, up to an empty line."""

    ends: tuple[str, ...]


@dataclass
class MarkdownTable:
    """Table with its sampled first rows, and with its columns once it has begun to settle."""

    header: Cells
    align: str
    sample: list[Cells] = field(default_factory=list)
    size: int = 0
    settled: bool = False
    columns: Columns | None = None
    room: int = 0

    def laid_out(self, room: int) -> Columns:
        """Return the layout in `room` columns. It is fixed for a width once the table has settled."""
        if self.columns is None or self.room != room or not self.settled:
            self.columns, self.room = columns(self.header, self.align, self.sample, room), room
        return self.columns


class Indented:
    """Indented code."""


Leaf = Paragraph | Fence | Html | MarkdownTable | Indented | None
