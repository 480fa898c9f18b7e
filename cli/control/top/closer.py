"""What is shown of one actor: what it is, where its task stands, what it did last."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import msgspec

from ....protocol.control.things import ActorDetail
from ...render.text import one_line, safe
from ..figures import age, amount, money, seconds_since
from .table import Row, tokens


class _Told(msgspec.Struct):
    ts: datetime
    kind: str
    data: Any = None


def about(actor: ActorDetail) -> list[Row]:
    """All there is to see, as long as it takes."""
    doing = age(seconds_since(actor.doing_since))
    fields = {
        "path": actor.path,
        "kind": actor.kind + (f" of {actor.run}" if actor.run else ""),
        "state": actor.state + (", paused" if actor.paused else ""),
        "since": age(seconds_since(actor.since)),
        "doing": f"{actor.doing}, for {doing}" if doing else actor.doing,
        "mailbox": f"{actor.received} taken, {actor.mailbox} waiting" if actor.received or actor.mailbox else "",
        "sent": f"{actor.sent} messages since the tree is watched" if actor.sent else "",
        "memory": f"{actor.memory / 1e6:.0f} MB" if actor.memory else "",
        "children": str(actor.children or ""),
        "turns": str(actor.turns or ""),
        "tokens": f"{amount(actor.input_tokens)} in, {amount(actor.output_tokens)} out" if tokens(actor) else "",
        "cost": money(actor.cost),
        "restarts": str(actor.restarts or ""),
        "events": f"{amount(actor.events)}, the last {actor.last_event}" if actor.events else "",
    }
    rows = [Row(f"{name:<10}{one_line(value, 400)}") for name, value in fields.items() if value]
    rows += [
        Row(""),
        Row("last events", "title"),
        *(map(_event, actor.recent) if actor.recent else [Row("  none", "dim")]),
    ]
    if actor.stack:
        rows += [Row(""), Row("where its task stands", "title")]
        rows += [Row("  " + _source(line)) for line in actor.stack.rstrip("\n").split("\n")]
    return rows


def _source(line: str) -> str:
    """A line of source, its indentation kept."""
    return safe(line[:400]).replace("\n", " ").expandtabs(4)


def _event(raw: msgspec.Raw) -> Row:
    try:
        told = msgspec.json.decode(raw, type=_Told)
    except msgspec.MsgspecError:
        return Row("  (an event that can't be read)", "dim")
    data = "" if not told.data else json.dumps(told.data, ensure_ascii=False)
    when = told.ts.astimezone().strftime("%H:%M:%S")
    return Row(f"  {when} {one_line(told.kind, 30):<20} {one_line(data, 400)}".rstrip())
