"""Writes the generated part of docs/events.md: `python tests/packaging/events_table.py` (or `make docs`).

A test compares the file with what this makes, so that the page can't fall behind protocol/events.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import msgspec

from callboard.protocol.events import KINDS, EventData

PAGE = Path(__file__).parents[2] / "docs" / "events.md"
BEGIN = "<!-- kinds: written by `make docs` from protocol/events -->\n"
END = "<!-- end of kinds -->\n"


def table() -> str:
    """Every kind with its story and its fields, by subject."""
    subjects: dict[str, list[str]] = {}
    for kind, data in KINDS.items():
        subjects.setdefault(kind.partition(".")[0], []).append(_entry(data))
    return "\n\n".join(f"### {subject}\n\n" + "\n\n".join(entries) for subject, entries in subjects.items())


def _entry(data: type[EventData]) -> str:
    story = " ".join(inspect.getdoc(data).split())
    fields = "".join(_field(field, data) for field in msgspec.structs.fields(data))
    return f"**`{data.kind}`** (`{data.__name__}`) {story}\n\n{fields}".strip()


def _field(field: msgspec.structs.FieldInfo, data: type[EventData]) -> str:
    type_ = re.sub(r"\bJson\b", "any JSON", str(data.__annotations__[field.name]))
    optional = "" if field.required else f", {_default(field)} if left out"
    return f"- `{field.name}`: {type_}{optional}\n"


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return f"`{value!r}`" if value is not None else "null"


def page(text: str) -> str:
    """The page with its generated part made anew."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
