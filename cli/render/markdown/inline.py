"""Inline parser: CommonMark's emphasis, code, links and escapes, and GFM's strikethrough, as spans.

Other text is retained as it was written, and a construct shows only its text, so that no word is ever lost. Mathematics
(`\\(x_1\\)`, `$$...$$`) is not parsed: stars and underscores have another meaning in it. References (`[text][1]`) are
not resolved, because their definitions may arrive after the text was displayed.

The time is linear in the length of the text, whatever the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import unescape
from typing import NamedTuple

from ..text import safe

BOLD, ITALIC, STRIKE, CODE, LINK, DIM, HEADING, RULE, MATH = (1 << at for at in range(9))


class Span(NamedTuple):
    """Piece of text with a style (bits, see above) and the URL of its link."""

    text: str
    style: int = 0
    url: str = ""


_PUNCTUATION = r"""!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~"""
# Repetitions have bounds where a failed match could otherwise scan the rest of the text at every position.
_TOKEN = re.compile(
    rf"""
      (?P<math>\$\$[^$]+\$\$|\$(?=[^\s$])[^$\n]*[^\s$\\]\$(?![\d\w]))
    | \\(?P<escape>[{_PUNCTUATION}])
    | (?P<ticks>`+)
    | <(?P<auto>[a-zA-Z][a-zA-Z0-9+.\-]{{1,31}}:[^\s<>]*|[\w.+\-]{{1,64}}@[\w\-]{{1,64}}(?:\.[\w\-]{{1,64}}){{1,8}})>
    | (?P<break><br\s{{0,3}}/?>)
    | (?P<tag></?[a-zA-Z][a-zA-Z0-9\-]{{0,40}}(?:\s[^<>\n]{{0,500}})?/?>|<!--[^>]{{0,500}}-->)
    | (?P<open>!?\[)
    | (?P<close>\])
    | (?P<run>\*+|_+|~~?(?!~))
    | (?P<bare>(?<![\w/])https?://[^\s<>"'`*|\\^{{}}]+)
    | (?P<entity>&(?:\#[0-9]{{1,7}}|\#[xX][0-9a-fA-F]{{1,6}}|[a-zA-Z][a-zA-Z0-9]{{1,31}});)
    """,
    re.VERBOSE,
)
_TARGET = re.compile(
    r"\(\s{0,9}(?:<(?P<angle>[^<>\n]*)>|(?P<plain>[^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*))"
    r"""(?:\s{1,9}(?:"[^"]*"|'[^']*'|\([^()]*\)))?\s{0,9}\)"""
)
_UNFINISHED_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\Z")
_DANGLING = re.compile(r"(?:[*_~`]+|!?\[|\\)\Z")
_MATH_PAIRS = {"\\(": "\\)", "\\[": "\\]"}


@dataclass
class _Piece:
    """Parsed token.

    `run` is the unconsumed rest of a delimiter run; `opens`, `closes` and `length` are its properties.
    """

    text: str
    style: int = 0
    url: str = ""
    run: str = ""
    opens: bool = False
    closes: bool = False
    length: int = 0
    bits: int = 0
    plain: bool = field(default=False)


def spans(text: str, *, growing: bool = False) -> list[Span]:
    """Parse a text into spans. Line breaks remain in the texts.

    Args:
        growing: True if more text follows: constructs open at the end count as closed, and half a mark is hidden.
    """
    if growing:
        # Without this a growing text would flicker: `**wor` shows asterisks until the closing ones arrive.
        text = _DANGLING.sub("", _UNFINISHED_LINK.sub(r"\1", text))
    pieces = _Reader(text, growing=growing).read()
    _emphasise(pieces, growing=growing)
    return _merged(pieces)


def is_final(text: str) -> bool:
    """Return True if later text can't change the spans, because nothing is open."""
    reader = _Reader(text, growing=False)
    pieces = reader.read()
    _emphasise(pieces, growing=False)
    if reader.open or any(piece.run and piece.opens for piece in pieces):
        return False
    return not any(not piece.style and ("$" in piece.text or "<" in piece.text) for piece in pieces)


class _Reader:
    def __init__(self, text: str, *, growing: bool) -> None:
        self._text = text
        self._growing = growing
        self._pieces: list[_Piece] = []
        self._brackets: list[int] = []
        self._unpaired = False
        self._missing: set[str] = set()
        self._fences: dict[int, list[int]] | None = None

    @property
    def open(self) -> bool:
        """True if a bracket, code or mathematics has begun and not ended."""
        return self._unpaired or bool(self._brackets)

    def read(self) -> list[_Piece]:
        text, at = self._text, 0
        while (found := _TOKEN.search(text, at)) is not None:
            if found.start() > at:
                self._pieces.append(_Piece(text[at : found.start()]))
            at = self._token(found)
        if at < len(text):
            self._pieces.append(_Piece(text[at:]))
        return self._pieces

    def _token(self, found: re.Match[str]) -> int:
        kind, whole, end = found.lastgroup, found.group(), found.end()
        match kind:
            case "escape":
                if found["escape"] in "([":
                    return self._mathematics(found)
                self._pieces.append(_Piece(found["escape"]))
            case "ticks":
                return self._code(found)
            case "math":
                self._pieces.append(_Piece(whole, MATH))
            case "auto":
                url = found["auto"]
                self._pieces.append(_Piece(url, LINK, url if ":" in url else f"mailto:{url}"))
            case "bare":
                url = _trimmed(whole)
                self._pieces.append(_Piece(url, LINK, url))
                return found.start() + len(url)
            case "break":
                self._pieces.append(_Piece("\n"))
            case "tag":
                self._pieces.append(_Piece(whole, DIM))
            case "entity":
                self._pieces.append(_Piece(_character(whole)))
            case "run":
                self._run(found)
            case "open":
                self._brackets.append(len(self._pieces))
                self._pieces.append(_Piece(whole))
            case _:
                return self._closed(end)
        return end

    def _code(self, found: re.Match[str]) -> int:
        """Parse a code span. The ends of all backtick runs are indexed once, so that the time stays linear."""
        if self._fences is None:
            self._fences = {}
            for run in re.finditer("`+", self._text):
                self._fences.setdefault(len(run.group()), []).append(run.start())
        length, end = len(found.group()), found.end()
        ends = self._fences.get(length, [])
        while ends and ends[0] < end:
            ends.pop(0)
        self._unpaired |= not ends
        if not ends and not self._growing:
            self._pieces.append(_Piece(found.group()))
            return end
        close = ends[0] if ends else len(self._text)
        inner = self._text[end:close].replace("\n", " ")
        # CommonMark 6.1: one blank is stripped from both ends, so that a span can begin with a backtick.
        if len(inner) > 2 and inner[0] == inner[-1] == " " and inner.strip():
            inner = inner[1:-1]
        self._pieces.append(_Piece(inner, CODE))
        return close + length if ends else close

    def _mathematics(self, found: re.Match[str]) -> int:
        """Parse `\\(x\\)` or `\\[x\\]`. A missing end is searched for only once, so that the time stays linear."""
        begin, inside, end = found.start(), found.end(), _MATH_PAIRS[found.group()]
        close = -1 if end in self._missing else self._text.find(end, inside)
        if close > inside:
            self._pieces.append(_Piece(self._text[begin : close + len(end)], MATH))
            return close + len(end)
        if close < 0:
            self._missing.add(end)
        self._unpaired = True
        self._pieces.append(_Piece(found["escape"]))
        return inside

    def _run(self, found: re.Match[str]) -> None:
        text, run = self._text, found.group()
        before = text[found.start() - 1] if found.start() else " "
        after = text[found.end()] if found.end() < len(text) else " "
        # CommonMark 6.2: left- and right-flanking delimiter runs.
        left = not after.isspace() and (not _is_punctuation(after) or before.isspace() or _is_punctuation(before))
        right = not before.isspace() and (not _is_punctuation(before) or after.isspace() or _is_punctuation(after))
        opens, closes = left, right
        if run[0] == "_":
            # `_` within a word is no emphasis, so that snake_case stays as it is.
            opens = left and (not right or _is_punctuation(before))
            closes = right and (not left or _is_punctuation(after))
        self._pieces.append(_Piece("", run=run, opens=opens, closes=closes, length=len(run)))

    def _closed(self, end: int) -> int:
        """Parse a `]`: the end of a link, if a URL follows."""
        target = _TARGET.match(self._text, end) if self._brackets else None
        if target is None:
            if self._brackets:
                self._brackets.pop()
            self._pieces.append(_Piece("]"))
            return end
        begin = self._brackets.pop()
        url = target["angle"] if target["angle"] is not None else target["plain"]
        inside = self._pieces[begin + 1 :]
        _emphasise(inside, growing=False)
        for piece in inside:
            piece.style |= LINK
            piece.text = piece.text or piece.run
            piece.run, piece.url = "", piece.url or url
        image = self._pieces[begin].text == "!["
        if not any(piece.text for piece in inside):
            inside = [_Piece(url, LINK, "" if image else url)]
        if image:
            inside[0].text = f"🖼 {inside[0].text}"
        self._pieces[begin:] = inside
        if not image:
            self._brackets.clear()  # links hold no links
        return target.end()


def _character(entity: str) -> str:
    """Decode an entity and escape the result: `&#x9d;` would be a control character."""
    return safe(unescape(entity)).replace("\t", " ").replace("\n", " ")


def _trimmed(url: str) -> str:
    """Return the URL without trailing punctuation of the sentence around it."""
    # GFM, extended autolinks: `)` belongs to the URL only if it has a matching `(`, as in Wikipedia's addresses.
    while url and (url[-1] in ".,:;!?_~" or (url[-1] == ")" and url.count(")") > url.count("("))):
        url = url[:-1]
    while url and url[-1] == "]" and "[" not in url:
        url = url[:-1]
    return url


def _is_punctuation(char: str) -> bool:
    return not char.isalnum() and not char.isspace()


def _emphasise(pieces: list[_Piece], *, growing: bool) -> None:
    """Apply CommonMark's delimiter run procedure; a consumed run becomes style bits of the pieces inside it."""
    openers: list[int] = []
    marks: list[tuple[int, int, int]] = []
    # `openers_bottom` of the specification: without these floors, unmatched closers would make the search quadratic.
    floors: dict[tuple[str, bool, int], int] = {}
    for at, piece in enumerate(pieces):
        while piece.run and piece.closes:
            # Modulo 3: rules 9 and 10 of CommonMark compare the sums of lengths modulo 3.
            key = (piece.run[0], piece.opens, piece.length % 3)
            found = _opener(pieces, openers, piece, floors.get(key, -1))
            if found is None:
                floors[key] = at - 1
                break
            del openers[found + 1 :]
            opener = pieces[openers[found]]
            taken = 2 if len(opener.run) >= 2 and len(piece.run) >= 2 else 1
            bits = STRIKE if piece.run[0] == "~" else (BOLD if taken == 2 else ITALIC)
            taken = len(piece.run) if piece.run[0] == "~" else taken
            marks.append((openers[found], at, bits))
            opener.run, piece.run = opener.run[taken:], piece.run[taken:]
            if not opener.run:
                openers.pop()
        if piece.run and piece.opens:
            openers.append(at)
    if growing:
        for begin in openers:
            piece = pieces[begin]
            if piece.run in ("*", "**", "***", "_", "__", "~~") and not piece.closes:
                marks.append(
                    (
                        begin,
                        len(pieces),
                        (0, ITALIC, BOLD, BOLD | ITALIC)[len(piece.run)] if piece.run != "~~" else STRIKE,
                    )
                )
                piece.run = ""
    _apply(pieces, marks)


def _opener(pieces: list[_Piece], openers: list[int], closer: _Piece, floor: int) -> int | None:
    for position in range(len(openers) - 1, -1, -1):
        if openers[position] <= floor:
            return None
        opener = pieces[openers[position]]
        if opener.run[:1] != closer.run[0]:
            continue
        if closer.run[0] == "~":
            if opener.run == closer.run:
                return position
            continue
        odd = (opener.closes or closer.opens) and (opener.length + closer.length) % 3 == 0
        if odd and (opener.length % 3 or closer.length % 3):
            continue
        return position
    return None


def _apply(pieces: list[_Piece], marks: list[tuple[int, int, int]]) -> None:
    """Set the style bits of all marks in one pass with counters: marks may be many and nested."""
    if not marks:
        return
    steps: dict[int, list[tuple[int, int]]] = {}
    for begin, end, bits in marks:
        steps.setdefault(begin + 1, []).append((bits, 1))
        steps.setdefault(end, []).append((bits, -1))
    depth = {BOLD: 0, ITALIC: 0, STRIKE: 0}
    for at, piece in enumerate(pieces):
        for bits, step in steps.get(at, ()):
            for bit in depth:
                depth[bit] += step if bits & bit else 0
        for bit, deep in depth.items():
            if deep:
                piece.style |= bit


def _merged(pieces: list[_Piece]) -> list[Span]:
    merged: list[Span] = []
    for piece in pieces:
        text = piece.text or piece.run
        if not text:
            continue
        if merged and merged[-1].style == piece.style and merged[-1].url == piece.url:
            merged[-1] = Span(merged[-1].text + text, piece.style, piece.url)
        else:
            merged.append(Span(text, piece.style, piece.url))
    return merged
