"""Incremental block parser: finds the blocks of a growing Markdown text line by line and paints each once.

It parses CommonMark's blocks and GFM's tables, with two concessions to models. Content of a list item may be indented
by two columns, however long its number is. A fence inside an item lasts until it is closed, however its lines are
indented. A complete line is never parsed again. The open part stays small, whatever the text: a long paragraph settles
its upper lines, a table settles once its columns are known, and code settles every line. Open blocks are containers
(quotes, list items) and at most one leaf inside them.

`Blocks.line` accepts a complete line, `end` closes the open block, and both pass settled rows to the painter. To render
an incomplete line, the caller parses it with a `copy`.
"""

from __future__ import annotations

import re
from copy import copy
from dataclasses import dataclass, field

from . import tables
from .code import Colouring, colouring
from .inline import BOLD, DIM, HEADING, RULE, Span, is_final, spans
from .layout import Row, lines_of
from .paint import Painter

STEP = 128
"""Characters after which a paragraph settles its upper lines if later text can't change them; also the size of the
pieces in which a line of text is parsed.
"""

LONG = 2_048
"""Characters after which a paragraph settles its upper lines in any case, and any line is parsed in pieces."""

_DEEPEST = 12
"""Maximum nesting of quotes and items; deeper markers are text."""

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\Z")
_RULE = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})\Z")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)\Z")
_ITEM = re.compile(r"( {0,3})([-+*]|(\d{1,9})[.)])(?:( {1,4})(?=\S)|( +|\Z))")
_QUOTE = re.compile(r" {0,3}> ?")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*\Z")
_TASK = re.compile(r"\[([ xX])\](?=[ \t]+\S)")
_HTML_UNTIL = (
    (
        re.compile(r" {0,3}<(?:pre|script|style|textarea)(?:[\s>]|\Z)", re.IGNORECASE),
        ("</pre>", "</script>", "</style>", "</textarea>"),
    ),
    (re.compile(r" {0,3}<!--"), ("-->",)),
)
_HTML = re.compile(
    r" {0,3}</?(?:address|article|aside|blockquote|body|center|details|dialog|div|dl|dd|dt|fieldset|figure|footer|form|"
    r"h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|nav|ol|p|section|summary|table|tbody|td|tfoot|th|thead|"
    r"title|tr|ul)(?:[\s/>]|\Z)",
    re.IGNORECASE,
)
_BULLETS = "•◦▪"


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

    header: tables.Cells
    align: str
    sample: list[tables.Cells] = field(default_factory=list)
    size: int = 0
    settled: bool = False
    columns: tables.Columns | None = None
    room: int = 0

    def laid_out(self, room: int) -> tables.Columns:
        """Return the layout in `room` columns. It is fixed for a width once the table has settled."""
        if self.columns is None or self.room != room or not self.settled:
            self.columns, self.room = tables.columns(self.header, self.align, self.sample, room), room
        return self.columns


class Indented:
    """Indented code."""


Leaf = Paragraph | Fence | Html | MarkdownTable | Indented | None


class Blocks:
    """Parser state between two lines.

    Args:
        painter: receives settled rows.
    """

    def __init__(self, painter: Painter) -> None:
        self.painter = painter
        self._containers: list[Container] = []
        self._leaf: Leaf = None
        self._siblings: dict[int, tuple[str, int, int]] = {}
        self.growing = False

    def copy(self, painter: Painter) -> Blocks:
        """Return a copy for look-ahead; the block that is open at its end is painted as growing."""
        other = copy(self)
        other.painter, other.growing = painter, True
        other._containers = list(self._containers)  # noqa: SLF001 - one of this class
        other._siblings = dict(self._siblings)  # noqa: SLF001 - likewise
        leaf = copy(self._leaf)
        if isinstance(leaf, Paragraph):
            leaf.lines, leaf.carry = list(leaf.lines), list(leaf.carry)
        elif isinstance(leaf, Fence):
            leaf.colours = leaf.colours.copy()
        elif isinstance(leaf, MarkdownTable):
            leaf.sample = list(leaf.sample)
        other._leaf = leaf  # noqa: SLF001 - likewise
        return other

    @property
    def verbatim(self) -> bool:
        """True if the next line is displayed as it is, so that it can't be parsed in pieces."""
        return isinstance(self._leaf, Fence | Html)

    def waits(self, text: str) -> bool:
        """Return True if an incomplete line should not be drawn.

        Table columns would jump with each letter of a row, and a header is plain text until the line below it arrives.
        """
        return isinstance(self._leaf, MarkdownTable) or (not self.verbatim and text.lstrip()[:1] == "|")

    def is_text(self, text: str) -> bool:
        """Return True if a line that begins with these characters is certainly paragraph text."""
        if isinstance(self._leaf, Fence | Html | MarkdownTable) or "|" in text:
            return False
        rest, _ = self._inside(text.expandtabs(4))
        for _ in range(_DEEPEST):
            begin = _QUOTE.match(rest) or _ITEM.match(rest)
            if begin is None:
                break
            rest = rest[begin.end() :]
        return not rest.startswith("    ") and not self._starts_leaf(rest)

    # --- lines ------------------------------------------------------------------------------------------

    def line(self, text: str, *, more: bool = False) -> None:
        """Parse a complete line; with `more`, the first piece of a long one."""
        text = text.expandtabs(4)
        rest, matched = self._inside(text)
        if isinstance(self._leaf, Fence):
            if self._quotes_end(matched):
                self._close_to(matched)
            else:
                self._code(self._leaf, rest if matched == len(self._containers) else text)
                return
        if not rest.strip():
            self._blank(matched)
            return
        if isinstance(self._leaf, Html) and matched == len(self._containers):
            self._html(self._leaf, rest)
            return
        lazy = isinstance(self._leaf, Paragraph)
        rest, opened = self._open(rest, matched)
        if not opened and matched < len(self._containers):
            if lazy and not self._starts_leaf(rest):
                self._text(rest.lstrip(), more)
                return
            self._close_to(matched)
        self._start(rest, more)

    def piece(self, text: str, *, more: bool) -> None:
        """Parse a further piece of a long line, after `line` with the first one; `more` if another piece follows."""
        text = text.expandtabs(4)
        leaf = self._leaf
        if not isinstance(leaf, Paragraph):  # for the type checker: the first piece has opened a paragraph
            self._leaf = leaf = Paragraph()
        if leaf.mid and leaf.lines:
            leaf.lines[-1] += text
        else:
            leaf.lines.append(text)
        leaf.mid = more
        self._grown(leaf, len(text))

    def end(self) -> None:
        """Close all open blocks at the end of the text."""
        self._close_to(0)

    # --- containers -------------------------------------------------------------------------------------

    def _inside(self, text: str) -> tuple[str, int]:
        """Return the line without the prefixes of the open containers, and how many of them it belongs to."""
        rest = text
        for at, container in enumerate(self._containers):
            indent = len(rest) - len(rest.lstrip(" "))
            if not container.marker:
                if indent > 3 or not rest[indent:].startswith(">"):
                    return rest, at
                rest = rest[indent + 1 :].removeprefix(" ")
            elif indent == len(rest):
                rest = ""
            elif indent < container.need:
                return rest, at
            else:
                rest = rest[min(indent, container.offset) :]
        return rest, len(self._containers)

    def _quotes_end(self, matched: int) -> bool:
        return any(not container.marker for container in self._containers[matched:])

    def _open(self, rest: str, matched: int) -> tuple[str, bool]:
        """Open the quotes and items that begin here, and close the containers that the line does not belong to."""
        opened = False
        while len(self._containers if opened else self._containers[:matched]) < _DEEPEST:
            indent = len(rest) - len(rest.lstrip(" "))
            in_text = not opened and isinstance(self._leaf, Paragraph) and matched == len(self._containers)
            if indent > 3:
                break
            if rest[indent:].startswith(">"):
                container, rest = Container(), rest[indent + 1 :].removeprefix(" ")
            else:
                found = _ITEM.match(rest)
                if found is None or _RULE.match(rest):
                    break
                if in_text and (not rest[found.end() :].strip() or found[3] not in (None, "1")):
                    break
                if in_text and _SETEXT.match(rest):
                    break
                if not opened:
                    self._close_to(matched)
                container, rest = self._item(found, rest)
            if not opened:
                self._close_to(matched)
                opened = True
            self._containers.append(container)
            self.painter.push(container.marker)
        return rest, opened

    def _item(self, found: re.Match[str], rest: str) -> tuple[Container, str]:
        depth = len(self._containers)
        before, mark, number, blanks = found[1], found[2], found[3], found[4]
        width = len(before) + len(mark)
        offset = width + (len(blanks) if blanks else 1)
        kind = mark[-1]
        if number is None:
            bullets = sum(1 for container in self._containers if container.marker[:1] in _BULLETS and container.marker)
            marker = _BULLETS[bullets % 3]
            self._siblings[depth] = (kind, 0, 0)
        else:
            known, said, shown = self._siblings.get(depth, ("", 0, 0))
            value = int(number)
            shown = shown + 1 if known == kind and said == value else value
            self._siblings[depth] = (kind, value, shown)
            marker = f"{shown}{kind}"
        return Container(f"{marker} ", min(offset, len(before) + 2), offset), rest[min(offset, len(rest)) :]

    def _close_to(self, count: int) -> None:
        """Close the leaf, and all containers after the first `count`."""
        self._close_leaf()
        del self._containers[count:]
        self.painter.pop_to(count)

    # --- leaves -----------------------------------------------------------------------------------------

    def _blank(self, matched: int) -> None:
        leaf = self._leaf
        if isinstance(leaf, Html) and leaf.ends and matched == len(self._containers):
            self.painter.row([])
            return
        if isinstance(leaf, Paragraph | MarkdownTable | Html):
            self._close_leaf()
        quotes = [at for at, container in enumerate(self._containers[matched:], matched) if not container.marker]
        if quotes:
            self._close_to(quotes[0])
        self.painter.blank()

    def _starts_leaf(self, rest: str) -> bool:
        return any(start.match(rest) for start in (_HEADING, _RULE, _FENCE, _HTML))

    def _start(self, rest: str, more: bool) -> None:
        """Begin a leaf with the line, or continue the open one. The line's containers are open."""
        if more:
            self._text(rest.lstrip(" "), more=True)
            return
        leaf = self._leaf
        if isinstance(leaf, MarkdownTable) and "|" in rest and not self._starts_leaf(rest):
            self._row(leaf, rest)
            return
        if rest.startswith("    ") and not isinstance(leaf, Paragraph):
            if not isinstance(leaf, Indented):
                self._begin(Indented())
            self.painter.row([Span(rest)])
            return
        if isinstance(leaf, Paragraph) and not leaf.mid and leaf.lines and self._underlined(leaf, rest):
            return
        if (found := _HEADING.match(rest)) is not None:
            self._begin(None)
            self._heading(len(found[1]), found[2] or "")
        elif _RULE.match(rest):
            self._begin(None)
            self.painter.row([Span("─" * self.painter.room, RULE)])
        elif (found := _FENCE.match(rest)) is not None and not ("`" in found[2] and found[1][0] == "`"):
            self._begin(Fence(found[1], len(rest) - len(rest.lstrip(" ")), colouring(found[2])))
            self.painter.row([Span(found[1] + found[2].rstrip(), RULE)])
        elif not self._html_begins(rest):
            self._text(rest.strip(" "), more=False)

    def _begin(self, leaf: Leaf) -> None:
        self._close_leaf()
        self._leaf = leaf
        for depth in [depth for depth in self._siblings if depth >= len(self._containers)]:
            del self._siblings[depth]

    def _close_leaf(self) -> None:
        leaf, self._leaf = self._leaf, None
        if isinstance(leaf, Paragraph):
            self._paint_paragraph(leaf, all_of_it=True)
        elif isinstance(leaf, MarkdownTable) and not leaf.settled:
            self._table_head(leaf)

    # --- paragraphs and headings ------------------------------------------------------------------------

    def _text(self, text: str, more: bool) -> None:
        leaf = self._leaf
        if not isinstance(leaf, Paragraph):
            leaf = Paragraph()
            self._begin(leaf)
            if self.painter.in_new_item and (found := _TASK.match(text)):
                text = ("☐" if found[1] == " " else "☑") + text[found.end() :]
        leaf.lines.append(text)
        leaf.mid = more
        self._grown(leaf, len(text))

    def _grown(self, leaf: Paragraph, more: int) -> None:
        leaf.size += more
        if self.growing:
            return
        if leaf.size > LONG:
            self._paint_paragraph(leaf, all_of_it=False)
        elif leaf.size > leaf.tried + STEP and not (leaf.lines and "|" in leaf.lines[-1]):
            leaf.tried = leaf.size  # `is_final` parses the whole paragraph, so it does not run for every line
            if is_final("\n".join(leaf.lines)):
                self._paint_paragraph(leaf, all_of_it=False)

    def _paint_paragraph(self, leaf: Paragraph, *, all_of_it: bool) -> None:
        """Paint the paragraph. If its last line continues, its last row is carried over to receive more text."""
        if not leaf.lines and not leaf.carry:
            return
        found = lines_of(self.painter.with_addresses(spans("\n".join(leaf.lines), growing=self.growing)))
        found[0] = leaf.carry + found[0]
        keep = leaf.mid and not all_of_it
        rows = [row for line in found for row in self.painter.rows(line)]
        if keep:
            rows = [row for line in found[:-1] for row in self.painter.rows(line)]
            *full, leaf.carry = self.painter.rows(found[-1])
            rows += full
            if leaf.lines[-1:] and leaf.lines[-1].endswith(" ") and leaf.carry and leaf.carry[-1].text[-1:] != " ":
                leaf.carry.append(Span(" "))
        else:
            leaf.carry = []
        for row in rows:
            self.painter.row(row)
        leaf.lines, leaf.size, leaf.tried = [], 0, 0

    def _underlined(self, leaf: Paragraph, rest: str) -> bool:
        """Turn the lines above into a heading or a table header if `rest` underlines them; return True if it does."""
        if (align := tables.alignments(rest)) is not None:
            header = tables.cells_of(leaf.lines[-1])
            if len(header) == len(align) and not leaf.carry:
                leaf.lines.pop()
                self._begin(MarkdownTable(header, align))
                return True
        if (found := _SETEXT.match(rest)) is not None and not leaf.carry:
            self._leaf = None
            self._begin(None)
            self._heading(1 if found[1][0] == "=" else 2, "\n".join(leaf.lines))
            return True
        return False

    def _heading(self, level: int, text: str) -> None:
        style = HEADING | BOLD if level < 3 else HEADING
        heading = self.painter.with_addresses(spans(text, growing=self.growing))
        for line in lines_of([span._replace(style=span.style | style) for span in heading]):
            for row in self.painter.rows([Span("#" * level + " ", HEADING | DIM), *line]):
                self.painter.row(row)

    # --- code, html, tables -----------------------------------------------------------------------------

    def _code(self, leaf: Fence, rest: str) -> None:
        stripped = rest.strip(" ")
        if stripped.startswith(leaf.mark) and not stripped.strip(leaf.mark[0]):
            self._leaf = None
            self.painter.row([Span(stripped, RULE)])
            return
        indent = len(rest) - len(rest.lstrip(" "))
        self.painter.code(leaf.colours.line(rest[min(indent, leaf.indent) :]))

    def _html_begins(self, rest: str) -> bool:
        for start, ends in _HTML_UNTIL:
            if start.match(rest):
                self._begin(Html(ends))
                self._html(Html(ends), rest)
                return True
        if _HTML.match(rest):
            self._begin(Html(()))
            self._html(Html(()), rest)
            return True
        return False

    def _html(self, leaf: Html, rest: str) -> None:
        for row in self.painter.rows([Span(rest, DIM)]):
            self.painter.row(row)
        if any(end in rest.lower() for end in leaf.ends):
            self._leaf = None

    def _row(self, leaf: MarkdownTable, rest: str) -> None:
        cells = tables.cells_of(rest)
        if leaf.settled:
            layout = leaf.laid_out(self.painter.room)
            self.painter.all_rows(tables.body(layout, cells, self.painter.room))
            return
        leaf.sample.append(cells)
        leaf.size += len(rest)
        if (len(leaf.sample) >= tables.SAMPLE_ROWS or leaf.size > tables.SAMPLE) and not self.growing:
            self._table_head(leaf)

    def _table_head(self, leaf: MarkdownTable) -> None:
        """Settle the columns and paint the sampled rows."""
        layout = leaf.laid_out(self.painter.room)
        leaf.settled = True
        self.painter.all_rows(tables.head(layout))
        for cells in leaf.sample:
            self.painter.all_rows(tables.body(layout, cells, self.painter.room))
