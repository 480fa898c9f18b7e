"""Finds the blocks of a growing Markdown text, line by line, and has each painted once.

CommonMark's blocks and GFM's tables, read as models write them: what belongs to an item of a list may be indented by
two columns, however long its number is, and a fence inside an item lasts until it is closed, however its lines are
indented. A line that is complete is never read again. What is open is small, whatever the text: a paragraph settles
its upper lines once it is long, a table once its columns are known, and code every line.

`Blocks.line` takes a complete line, `end` closes what is open, and both hand what is settled to the painter. `copy`
is how the caller looks at a line that is not complete.
"""

from __future__ import annotations

import re
from copy import copy

from . import tables
from .code import colouring
from .inline import BOLD, DIM, HEADING, RULE, Span, is_final, spans
from .layout import lines_of
from .leaves import Container, Fence, Html, Indented, Leaf, Paragraph, Table
from .paint import Painter

STEP = 128
"""Characters after which a paragraph settles its upper lines if what follows can't change them, and the size of the
pieces in which a line of text is read."""

LONG = 2_048
"""Characters after which a paragraph settles its upper lines all the same, and any line is read in pieces."""

_DEEPEST = 12
"""Quotes and items inside each other; deeper ones are text."""

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


class Blocks:
    """The state of a text between two of its lines.

    Args:
        painter: gets what is settled.
    """

    def __init__(self, painter: Painter) -> None:
        self.painter = painter
        self._containers: list[Container] = []
        self._leaf: Leaf = None
        self._siblings: dict[int, tuple[str, int, int]] = {}
        self.growing = False

    def copy(self, painter: Painter) -> Blocks:
        """The same state, to look ahead with; what is open at its end is painted as growing."""
        other = copy(self)
        other.painter, other.growing = painter, True
        other._containers = list(self._containers)  # noqa: SLF001 - one of this class
        other._siblings = dict(self._siblings)  # noqa: SLF001 - likewise
        leaf = copy(self._leaf)
        if isinstance(leaf, Paragraph):
            leaf.lines, leaf.carry = list(leaf.lines), list(leaf.carry)
        elif isinstance(leaf, Fence):
            leaf.colours = leaf.colours.copy()
        elif isinstance(leaf, Table):
            leaf.sample = list(leaf.sample)
        other._leaf = leaf  # noqa: SLF001 - likewise
        return other

    @property
    def verbatim(self) -> bool:
        """Whether the next line is shown as it is, so that it can't be read in pieces."""
        return isinstance(self._leaf, Fence | Html)

    def waits(self, text: str) -> bool:
        """Whether a line that is not complete is better not shown: columns would jump with each letter of a row, and
        a header is text until the line below it has come."""
        return isinstance(self._leaf, Table) or (not self.verbatim and text.lstrip()[:1] == "|")

    def is_text(self, text: str) -> bool:
        """Whether a line that begins with these characters is certainly text of a paragraph."""
        if isinstance(self._leaf, Fence | Html | Table) or "|" in text:
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
        """A complete line; with `more` the first piece of a long one."""
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
        """The next piece of a long line."""
        text = text.expandtabs(4)
        leaf = self._leaf
        if not isinstance(leaf, Paragraph):  # it can't be: the first piece has opened one
            self._leaf = leaf = Paragraph()
        if leaf.mid and leaf.lines:
            leaf.lines[-1] += text
        else:
            leaf.lines.append(text)
        leaf.mid = more
        self._grown(leaf, len(text))

    def end(self) -> None:
        """The text has come to its end."""
        self._close_to(0)

    # --- containers -------------------------------------------------------------------------------------

    def _inside(self, text: str) -> tuple[str, int]:
        """What is left of the line inside of the open containers, and how many of those it belongs to."""
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
        """Opens the quotes and items that begin here, on which all that the line does not belong to is closed."""
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
        """Closes the leaf, and the containers but the first `count`."""
        self._close_leaf()
        del self._containers[count:]
        self.painter.pop_to(count)

    # --- leaves -----------------------------------------------------------------------------------------

    def _blank(self, matched: int) -> None:
        leaf = self._leaf
        if isinstance(leaf, Html) and leaf.ends and matched == len(self._containers):
            self.painter.row([])
            return
        if isinstance(leaf, Paragraph | Table | Html):
            self._close_leaf()
        quotes = [at for at, container in enumerate(self._containers[matched:], matched) if not container.marker]
        if quotes:
            self._close_to(quotes[0])
        self.painter.blank()

    def _starts_leaf(self, rest: str) -> bool:
        return any(start.match(rest) for start in (_HEADING, _RULE, _FENCE, _HTML))

    def _start(self, rest: str, more: bool) -> None:
        """The line, whose containers are open, begins a leaf or goes on with one."""
        if more:
            self._text(rest.lstrip(" "), more=True)
            return
        leaf = self._leaf
        if isinstance(leaf, Table) and "|" in rest and not self._starts_leaf(rest):
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
            self._settle(leaf, all_of_it=True)
        elif isinstance(leaf, Table) and not leaf.settled:
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
            self._settle(leaf, all_of_it=False)
        elif leaf.size > leaf.tried + STEP and not (leaf.lines and "|" in leaf.lines[-1]):
            leaf.tried = leaf.size  # it reads the whole paragraph, so not for every line
            if is_final("\n".join(leaf.lines)):
                self._settle(leaf, all_of_it=False)

    def _settle(self, leaf: Paragraph, *, all_of_it: bool) -> None:
        """Paints the paragraph. If its last line goes on, the row that has room for more of it is kept."""
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
        """The line makes of what stands above it a heading, or the header of a table."""
        if (align := tables.alignments(rest)) is not None:
            header = tables.cells_of(leaf.lines[-1])
            if len(header) == len(align) and not leaf.carry:
                leaf.lines.pop()
                self._begin(Table(header, align))
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

    def _row(self, leaf: Table, rest: str) -> None:
        cells = tables.cells_of(rest)
        if leaf.settled:
            layout = leaf.laid_out(self.painter.room)
            self.painter.all_rows(tables.body(layout, cells, self.painter.room))
            return
        leaf.sample.append(cells)
        leaf.size += len(rest)
        if (len(leaf.sample) >= tables.SAMPLE_ROWS or leaf.size > tables.SAMPLE) and not self.growing:
            self._table_head(leaf)

    def _table_head(self, leaf: Table) -> None:
        """The columns are known now: the rows that were waited for are painted."""
        layout = leaf.laid_out(self.painter.room)
        leaf.settled = True
        self.painter.all_rows(tables.head(layout))
        for cells in leaf.sample:
            self.painter.all_rows(tables.body(layout, cells, self.painter.room))
