"""Rows as lines of ANSI text, with container prefixes (bullets, quote bars), colours and hyperlinks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from ..text import END, width_of
from .inline import DIM, RULE, Span
from .layout import Row, cut, wrapped
from .theme import Theme

_BAR = "▎ "
_NARROWEST = 8
_ADDRESS = re.compile(r"(?:https?://|mailto:)[!-~]{1,2000}\Z")


class Painter:
    """Painter of rows inside the open containers.

    Args:
        width: columns of the terminal.
        theme: colours.
        wrap: column at which text is broken: None for nowhere, 0 for the width of the terminal.
        wrap_code: True breaks code too.
    """

    def __init__(self, width: int, theme: Theme, *, wrap: int | None, wrap_code: bool) -> None:
        self.width = width
        self.theme = theme
        self.lines: list[str] = []
        self._wrap = wrap
        self._wrap_code = wrap_code
        self._markers: list[str] = []
        self._drawn: list[bool] = []
        self._blank: int | None = None
        self._begun = False

    def copy(self) -> Painter:
        """Return a painter in the same state with an empty list of lines."""
        other = Painter(self.width, self.theme, wrap=self._wrap, wrap_code=self._wrap_code)
        other._markers, other._drawn = list(self._markers), list(self._drawn)
        other._blank, other._begun = self._blank, self._begun
        return other

    # --- containers -------------------------------------------------------------------------------------

    def push(self, marker: str) -> None:
        """Open a container: an item with its marker, or a quote without one."""
        self._markers.append(marker)
        self._drawn.append(False)

    def pop_to(self, count: int) -> None:
        """Close all containers after the first `count`. An empty item becomes a line with its marker."""
        if any(marker and not drawn for marker, drawn in zip(self._markers[count:], self._drawn[count:], strict=True)):
            self.row([])
        del self._markers[count:], self._drawn[count:]
        if self._blank is not None:
            self._blank = min(self._blank, count)

    def blank(self) -> None:
        """Record an empty line, which is written once more content follows."""
        if self._begun:
            self._blank = len(self._markers)

    @property
    def in_new_item(self) -> bool:
        """True if the next row is the first of an item."""
        return bool(self._markers and self._markers[-1]) and not self._drawn[-1]

    # --- rows -------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """Columns for text inside the open containers."""
        whole = min(self._wrap, self.width) if self._wrap else self.width
        return max(whole - self._taken(), min(_NARROWEST, whole))

    def _taken(self) -> int:
        return sum(len(marker) if marker else len(_BAR) for marker in self._markers)

    def rows(self, line: Row) -> list[Row]:
        """Wrap a line of text to the available columns."""
        return [line] if self._wrap is None else wrapped(line, self.room)

    def row(self, row: Sequence[Span]) -> None:
        """Append a row to `lines`, with the prefixes of the open containers. It is not wrapped; see `rows`."""
        self._line("".join(map(self._span, _joined(row))))

    def all_rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.row(row)

    def code(self, tokens: list[tuple[Any, str]]) -> None:
        """Append a line of code to `lines`; with `wrap_code`, as several rows if it is too long."""
        if not self._wrap_code or self._wrap is None:
            self._line(self._tokens(tokens))
            return
        kinds = {at: kind for at, (kind, _) in enumerate(tokens)}
        for row in cut([Span(text, at) for at, (_, text) in enumerate(tokens)], self.room):
            self._line(self._tokens([(kinds[span.style], span.text) for span in row]))

    def _line(self, text: str) -> None:
        if self._blank is not None:
            self.lines.append(self._prefix(self._blank, first=False).rstrip())
            self._blank = None
        self.lines.append((self._prefix(len(self._markers), first=True) + text).rstrip(" "))
        self._begun = True

    def _prefix(self, depth: int, *, first: bool) -> str:
        parts: list[str] = []
        left = max(self.width - _NARROWEST, 0)
        for at in range(depth):
            marker = self._markers[at]
            shown = marker or _BAR
            if width_of(shown) > left:
                shown = shown[:left]
            left -= len(shown)
            if not marker:
                parts.append(self._painted(shown, self.theme.of_style(RULE)))
            elif first and not self._drawn[at]:
                parts.append(self._painted(shown, self.theme.of_style(DIM)))
                self._drawn[at] = True
            else:
                parts.append(" " * len(shown))
        return "".join(parts)

    # --- colours ----------------------------------------------------------------------------------------

    def _tokens(self, tokens: list[tuple[Any, str]]) -> str:
        """Paint tokens, merging neighbours of the same colour. Blanks take the colour before them."""
        parts: list[str] = []
        run, code = "", ""
        for kind, text in tokens:
            other = self.theme.of_token(kind)
            if other != code and not text.isspace():
                parts.append(self._painted(run, code))
                run, code = "", other
            run += text
        return "".join([*parts, self._painted(run, code)])

    def _span(self, span: Span) -> str:
        text = self._painted(span.text, self.theme.of_style(span.style) if span.style else "")
        if span.url and self.theme.links and _ADDRESS.match(span.url):
            return f"\x1b]8;;{span.url}\x1b\\{text}\x1b]8;;\x1b\\"
        return text

    def _painted(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}{END}" if code and text else text

    def with_addresses(self, spans: list[Span]) -> list[Span]:
        """Add the URLs of links after their texts, unless the terminal shows hyperlinks (OSC 8)."""
        found: list[Span] = []
        for at, span in enumerate(spans):
            found.append(span)
            last = span.url and not (at + 1 < len(spans) and spans[at + 1].url == span.url)
            if not last or span.url.startswith("#"):
                continue
            if span.url.removeprefix("mailto:") == span.text or (self.theme.links and _ADDRESS.match(span.url)):
                continue
            found.append(Span(f" ({span.url})", DIM))
        return found


def _joined(row: Sequence[Span]) -> list[Span]:
    """Merge neighbours of the same style to reduce the output."""
    joined: list[Span] = []
    for span in row:
        if joined and joined[-1].style == span.style and joined[-1].url == span.url:
            joined[-1] = joined[-1]._replace(text=joined[-1].text + span.text)
        elif span.text:
            joined.append(span)
    return joined
