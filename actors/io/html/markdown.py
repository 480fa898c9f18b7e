"""Markdown writer for a stream of tags and text.

Headings, lists, tables and code retain their structure, because chunking uses it. An image is replaced by its text.
"""

from __future__ import annotations

HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_LINE_TAGS = (
    "div section article main header aside hr dt dd figure figcaption form fieldset address tr li br caption option"
    " summary details body html nav footer"
)
_LINES = frozenset(_LINE_TAGS.split())
_APART = frozenset(("p", "ul", "ol", "dl", "table", "blockquote", "pre")) | HEADINGS.keys()


TITLE = 500
"""Characters after which the rest of a title is ignored."""


class TextTooLong(Exception):
    """The page has more text than the caller accepts."""


class MarkdownWriter:
    """Consumer of tags and text in order; `text` is the Markdown.

    Args:
        most: maximum characters; more raise `TextTooLong`.
    """

    def __init__(self, most: int) -> None:
        self.title = ""
        self._most = most
        self._size = 0
        self._lines: list[str] = []
        self._line: list[str] = []
        self._mark = ""  # prefix of the next line with words
        self._lists: list[int] = []  # number of the next item, or 0 for bullets
        self._pre = 0
        self._in_title = False
        self._row: list[str] | None = None
        self._in_cell = False
        self._rows = 0
        self._link = ("", 0)  # target of the open link, and the number of pieces on the line before it

    @property
    def text(self) -> str:
        """Markdown so far, with at most one empty line in a row."""
        self._end_line()
        kept: list[str] = []
        for line in self._lines:
            if line or (kept and kept[-1]):
                kept.append(line)
        return "\n".join(kept).strip("\n")

    def open(self, tag: str, told: str = "") -> None:
        """Open an element; `told` is the text of an image, or the target of a link if it is to be written."""
        if tag == "a":
            self._end_link()
            self._link = (told, len(self._line))
        elif tag == "title":
            self._in_title = True
        elif tag in ("td", "th"):
            self._begin_cell()
        elif tag == "img" and told:
            self.add(f" [image: {' '.join(told.split())}] ")
        elif tag in _LINES or tag in _APART:
            self._begin_block(tag)

    def close(self, tag: str) -> None:
        """Close an element."""
        if tag == "a":
            self._end_link()
        elif tag == "title":
            self._in_title = False
        elif tag in ("td", "th"):
            self._end_cell()
        elif tag == "tr" and self._row is not None:
            self._end_row()
        elif tag == "pre" and self._pre:
            self._end_line()
            self._pre -= 1
            if not self._pre:
                self._lines += ["```", ""]
        elif tag in ("ul", "ol") and self._lists:
            self._end_line()
            self._lists.pop()
            self._mark = ""  # of an item without words that was never closed
            if not self._lists:
                self._lines.append("")
        elif tag in _LINES or tag in _APART:
            if tag == "table" and self._row is not None:
                self._end_row()  # `</tr>` may be left out
            self._end_block(tag)

    def add(self, words: str) -> None:
        """Add text.

        Raises:
            TextTooLong: there is more than `most`.
        """
        self._size += len(words)
        if self._size > self._most:
            raise TextTooLong
        if self._in_title:
            if len(self.title) < TITLE:
                self.title = " ".join(f"{self.title} {words[:TITLE]}".split())
        elif self._pre and self._row is None:
            *whole, last = words.split("\n")
            for line in whole:
                self._line.append(line)
                self._end_line()
            self._line.append(last)
        else:
            self._line.append(words)

    # --- blocks

    def _begin_block(self, tag: str) -> None:
        if self._row is not None and tag != "tr":
            self._line.append(" ")  # a cell is one line, whatever its content
            return
        if self._row is not None:
            self._end_row()  # not closed, or around a nested table
        self._end_line()
        if tag in _APART and not self._lists:
            self._lines.append("")
        if tag in HEADINGS:
            self._mark = HEADINGS[tag]
        elif tag in ("ul", "ol"):
            self._lists.append(1 if tag == "ol" else 0)
        elif tag == "li":
            self._mark = self._item()
        elif tag == "pre":
            self._pre += 1
            if self._pre == 1:
                self._lines.append("```")
        elif tag == "table":
            self._rows = 0
        elif tag == "tr":
            self._row = []

    def _end_block(self, tag: str) -> None:
        if self._row is not None:
            self._line.append(" ")
            return
        self._end_line()
        if tag in HEADINGS or tag == "li":
            self._mark = ""
        if tag in _APART and not self._lists:
            self._lines.append("")

    def _end_link(self) -> None:
        (target, start), self._link = self._link, ("", 0)
        if not target or self._pre:
            return
        words = "".join(self._line[start:])
        if label := " ".join(words.split()):
            before, after = words[:1].isspace() * " ", words[-1:].isspace() * " "
            self._line[start:] = [f"{before}[{label}]({target}){after}"]

    def _item(self) -> str:
        if not self._lists:
            return "- "
        inset = "  " * min(len(self._lists) - 1, 10)
        if not self._lists[-1]:
            return f"{inset}- "
        self._lists[-1] += 1
        return f"{inset}{self._lists[-1] - 1}. "

    def _end_line(self) -> None:
        line = "".join(self._line)
        self._line.clear()
        self._link = (self._link[0], 0)
        if self._pre:
            self._lines.append(line.rstrip())
            return
        line = " ".join(line.split())
        if not line:
            return
        if not self._mark and line[0] == "#" and line.lstrip("#")[:1] in ("", " "):
            line = f"\\{line}"  # words that only look like a heading
        self._lines.append(self._mark + line)
        self._mark = ""

    # --- tables

    def _begin_cell(self) -> None:
        self._end_cell()  # `</td>` may be left out
        self._in_cell = self._row is not None

    def _end_cell(self) -> None:
        if self._row is None:
            self._line.append(" ")
        elif self._in_cell:
            cell = " ".join("".join(self._line).split())
            self._line.clear()
            self._link = (self._link[0], 0)
            self._row.append(cell.replace("|", "\\|"))
        self._in_cell = False

    def _end_row(self) -> None:
        self._end_cell()
        self._line.clear()
        row, self._row = self._row or [], None
        if not any(row):
            return
        self._lines.append(f"| {' | '.join(row)} |")
        self._rows += 1
        if self._rows == 1:
            self._lines.append(f"|{' --- |' * len(row)}")
