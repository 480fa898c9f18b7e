"""Table of actors (selection, order, columns, cursor), and the detail view of one.

Only rows that fit the screen are rendered, so a thousand actors cost little more than fifty.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from rich.cells import cell_len, set_cell_size

from ....protocol.control.resources import ActorDetail, ActorInfo
from ....protocol.decoding import decode_json
from ....protocol.relative_time import age, seconds_since
from ...render.text import one_line, safe
from ..figures import amount, money

_NARROWEST = 40
"""Minimum columns for path and activity together, as long as another column can be dropped."""

_WIDEST_DOING = 48
_LONG = 400
"""Characters of a path or name that are examined."""


class ScreenRow(NamedTuple):
    """Screen line and its style."""

    text: str
    style: str = ""


class _Column(NamedTuple):
    title: str
    width: int
    cell: Callable[[ActorInfo, datetime], str]
    goes: int
    """Order in which columns are dropped for lack of room; 0 is never dropped."""
    right: bool = True


def _doing(actor: ActorInfo, now: datetime) -> str:
    if not actor.doing:
        return ""
    return f"{age(seconds_since(actor.doing_since, now)):>6} {one_line(actor.doing, 100)}"


_COLUMNS = (
    _Column("STATE", 8, lambda actor, _: "paused" if actor.paused else one_line(actor.state, 8), 0, right=False),
    _Column("KIND", 5, lambda actor, _: "" if actor.kind == "actor" else one_line(actor.kind, 5), 1, right=False),
    _Column("MAIL", 5, lambda actor, _: amount(actor.mailbox) if actor.mailbox else "", 5),
    _Column("IN", 5, lambda actor, _: amount(actor.received) if actor.received else "", 2),
    _Column("OUT", 5, lambda actor, _: amount(actor.sent) if actor.sent else "", 1),
    _Column("TURNS", 5, lambda actor, _: amount(actor.turns) if actor.turns else "", 2),
    _Column("TOKENS", 7, lambda actor, _: amount(tokens(actor)) if tokens(actor) else "", 6),
    _Column("COST", 8, lambda actor, _: money(actor.cost, actor.priced), 4),
    _Column("MEM", 6, lambda actor, _: amount(actor.memory) if actor.memory else "", 1),
    _Column("RST", 3, lambda actor, _: amount(actor.restarts) if actor.restarts else "", 3),
    _Column("EVTS", 5, lambda actor, _: amount(actor.events) if actor.events else "", 1),
    _Column("LAST", 18, lambda actor, _: one_line(actor.last_event, 18), 1, right=False),
)


def tokens(actor: ActorInfo) -> int:
    """Return the sum of an actor's input and output tokens."""
    return actor.input_tokens + actor.output_tokens


def below(path: str, actors: Iterable[str]) -> int:
    """Return how many of the paths are below `path`, at any depth."""
    return sum(each.startswith(f"{path}/") for each in actors)


def _by_path(actor: ActorInfo) -> Any:
    return actor.path.split("/")


SORTS: dict[str, Callable[[ActorInfo], Any]] = {
    "path": _by_path,
    "time": lambda actor: (actor.doing_since or "~", _by_path(actor)),
    "mail": lambda actor: (-actor.mailbox, _by_path(actor)),
    "tokens": lambda actor: (-tokens(actor), _by_path(actor)),
    "cost": lambda actor: (-actor.cost, _by_path(actor)),
    "restarts": lambda actor: (-actor.restarts, _by_path(actor)),
    "events": lambda actor: (-actor.events, _by_path(actor)),
}
"""Sort keys by name: tree order, longest running first, highest first."""


class ActorTable:
    """Actors with filter, order and cursor.

    Attributes:
        sort: name of the order.
        plumbing: True also shows Callboard's own actors, which belong to no run, below the actors of runs.
        filter: text that paths, states and activities must contain, ignoring case; "" for everything.
    """

    def __init__(self) -> None:
        self.sort = "path"
        self.plumbing = False
        self.filter = ""
        self.asking: set[str] = set()
        """Paths of actors with an open question."""
        self._actors: dict[str, ActorInfo] = {}
        self._rows: list[ActorInfo] | None = None
        self._cursor = ""
        self._at = 0
        self._first = 0

    def take(self, actors: dict[str, ActorInfo]) -> None:
        """Replace the actors, given by path. The cursor stays at its actor, or at its row if the actor has ended."""
        self._actors = actors
        self._rows = None

    def next_sort(self, by: int = 1) -> None:
        """Select the next sort order of `SORTS`; with `by=-1` the previous one. The last is followed by the first."""
        names = list(SORTS)
        self.sort = names[(names.index(self.sort) + by) % len(names)]
        self._rows = None

    def narrow(self, text: str) -> None:
        """Set the filter."""
        self.filter = text
        self._rows = None

    def turn_plumbing(self) -> None:
        """Toggle the display of Callboard's own actors."""
        self.plumbing = not self.plumbing
        self._rows = None

    @property
    def rows(self) -> list[ActorInfo]:
        """Actors that the filter admits, in the sort order; those of no run are last."""
        if self._rows is None:
            wanted = self.filter.casefold()
            meant = (actor for actor in self._actors.values() if actor.run or self.plumbing)
            chosen = [actor for actor in meant if not wanted or wanted in _words(actor)]
            order = SORTS[self.sort]
            self._rows = sorted(chosen, key=lambda actor: (not actor.run, order(actor)))
            places = {actor.path: place for place, actor in enumerate(self._rows)}
            # If the selected actor is gone, its successor at the same position is selected.
            self._at = max(0, min(places.get(self._cursor, self._at), len(self._rows) - 1))
        return self._rows

    @property
    def chosen(self) -> ActorInfo | None:
        """Actor at the cursor; None if no actor is visible."""
        rows = self.rows
        return rows[self._at] if rows else None

    def move(self, by: int) -> None:
        """Move the cursor down by this many rows, up if negative; it stops at the first and the last row."""
        rows = self.rows
        self._at = max(0, min(self._at + by, len(rows) - 1))
        self._cursor = rows[self._at].path if rows else ""

    def head(self, width: int) -> str:
        """Return the line of column titles."""
        columns, path, doing = _layout(width)
        cells = [_fit("PATH", path), *(_fit(each.title, each.width, right=each.right) for each in columns)]
        return _fit("  " + "  ".join([*cells, _fit("       DOING", doing)]), width)

    def body(self, width: int, height: int, now: datetime | None = None) -> list[ScreenRow]:
        """Return the rows around the cursor."""
        rows = self.rows
        now = now or datetime.now(UTC)
        self._first = max(0, min(self._first, self._at, len(rows) - height))
        if self._at >= self._first + height:
            self._first = self._at - height + 1
        layout = _layout(width)
        return [
            self._row(actor, self._first + place == self._at, layout, width, now)
            for place, actor in enumerate(rows[self._first : self._first + height])
        ]

    def _row(
        self, actor: ActorInfo, here: bool, layout: tuple[Sequence[_Column], int, int], width: int, now: datetime
    ) -> ScreenRow:
        columns, path, doing = layout
        mark = ">" if here else "?" if actor.path in self.asking else " "
        cells = [
            _tail(actor.path, path),
            *(_fit(each.cell(actor, now), each.width, right=each.right) for each in columns),
        ]
        text = _fit(f"{mark} " + "  ".join([*cells, _fit(_doing(actor, now), doing)]), width)
        style = "here" if here else "question" if actor.path in self.asking else "dim" if actor.paused else ""
        return ScreenRow(text, style)


def total(actors: Iterable[ActorInfo]) -> tuple[int, float, bool]:
    """Return tokens and cost of all runs among the actors, and whether all prices are known."""
    runs = [actor for actor in actors if actor.kind == "run"]
    return sum(map(tokens, runs)), sum(run.cost for run in runs), all(run.priced for run in runs)


def full(actors: Iterable[ActorInfo]) -> list[Sequence[str]]:
    """Return all columns of all actors, titles first, in tree order, with Callboard's own actors last.

    Rows are not cut to a screen.
    """
    now = datetime.now(UTC)
    found: list[Sequence[str]] = [("PATH", *(each.title for each in _COLUMNS), "DOING")]
    for actor in sorted(actors, key=lambda actor: (not actor.run, _by_path(actor))):
        cells = [each.cell(actor, now) for each in _COLUMNS]
        found.append((one_line(actor.path, _LONG), *cells, _doing(actor, now).strip()))
    return found


def _layout(width: int) -> tuple[Sequence[_Column], int, int]:
    columns = list(_COLUMNS)
    while columns:
        room = width - 2 - sum(each.width + 2 for each in columns) - 2
        if room >= _NARROWEST or all(not each.goes for each in columns):
            break
        columns.remove(min((each for each in columns if each.goes), key=lambda each: each.goes))
    room = max(width - 2 - sum(each.width + 2 for each in columns) - 2, 2)
    doing = min(room * 2 // 5, _WIDEST_DOING)
    return columns, room - doing, doing


def _words(actor: ActorInfo) -> str:
    return f"{actor.path} {'paused' if actor.paused else actor.state} {actor.kind} {actor.doing}".casefold()


def _fit(text: str, width: int, *, right: bool = False) -> str:
    taken = cell_len(text)
    if taken > width:
        return set_cell_size(text, width - 1) + "…" if width > 1 else set_cell_size(text, width)
    blank = " " * (width - taken)
    return blank + text if right else text + blank


def _tail(path: str, width: int) -> str:
    text = one_line(path[-_LONG:], _LONG)
    if cell_len(text) <= width:
        return _fit(text, width)
    while cell_len(text) > width - 1:
        # A character has at most two cells, so dropping half of the excess never drops too much.
        text = text[max(1, (cell_len(text) - width + 1) // 2) :]
    return _fit("…" + text, width)


class _LoggedEvent(msgspec.Struct):
    ts: datetime
    kind: str
    data: Any = None


def about(actor: ActorDetail) -> list[ScreenRow]:
    """Return the complete detail view of an actor."""
    doing = age(seconds_since(actor.doing_since))
    fields = {
        "path": actor.path,
        "kind": actor.kind + (f" of {actor.run}" if actor.run else ""),
        "state": actor.state + (", paused" if actor.paused else ""),
        "since": age(seconds_since(actor.since)),
        "doing": f"{actor.doing}, for {doing}" if doing else actor.doing,
        "mailbox": f"{actor.received} taken, {actor.mailbox} waiting" if actor.received or actor.mailbox else "",
        "sent": f"{actor.sent} messages since top started" if actor.sent else "",
        "memory": f"{amount(actor.memory)} bytes" if actor.memory else "",
        "children": str(actor.children or ""),
        "turns": str(actor.turns or ""),
        "tokens": f"{amount(actor.input_tokens)} in, {amount(actor.output_tokens)} out" if tokens(actor) else "",
        "cost": money(actor.cost, actor.priced),
        "restarts": str(actor.restarts or ""),
        "events": f"{amount(actor.events)}, the last {actor.last_event}" if actor.events else "",
    }
    rows = [ScreenRow(f"{name:<10}{one_line(value, 400)}") for name, value in fields.items() if value]
    rows += [
        ScreenRow(""),
        ScreenRow("last events", "title"),
        *(map(_event, actor.recent) if actor.recent else [ScreenRow("  none", "dim")]),
    ]
    if actor.stack:
        rows += [ScreenRow(""), ScreenRow("stack of its task", "title")]
        rows += [ScreenRow("  " + _source(line)) for line in actor.stack.rstrip("\n").split("\n")]
    return rows


def _source(line: str) -> str:
    return safe(line[:400]).replace("\n", " ").expandtabs(4)


def _event(raw: msgspec.Raw) -> ScreenRow:
    try:
        told = decode_json(raw, _LoggedEvent)
    except msgspec.MsgspecError:
        return ScreenRow("  (an event that can't be read)", "dim")
    data = "" if not told.data else json.dumps(told.data, ensure_ascii=False)
    when = told.ts.astimezone().strftime("%H:%M:%S")
    return ScreenRow(f"  {when} {one_line(told.kind, 30):<20} {one_line(data, 400)}".rstrip())
