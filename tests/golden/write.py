"""Rewrite tests/golden/messages.txt from the source, and the ids in tests that have moved with their text.

Usage: `PYTHONPATH=tests python tests/golden/write.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

from support.message_source import GOLDEN, ROOT, extract_messages, format_golden, read_golden

_ID_IN_TEST = re.compile(r"(?<=[\"'])[a-z_]+(?:\.\w+)+(?=[\"'])")


def main() -> None:
    """Write the golden file and print what changed."""
    before, after = read_golden(), extract_messages()
    moved = moved_ids(before, after)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        _rename_ids(path, moved)
    content = format_golden(after)
    if not GOLDEN.exists() or GOLDEN.read_text(encoding="utf-8") != content:
        GOLDEN.write_text(content, encoding="utf-8")
        print(f"{GOLDEN.relative_to(ROOT)}: {len(after)} messages written")


def moved_ids(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """Return the new id of each message whose text is found unchanged under exactly one new id.

    A text that keeps its number of messages in its function was reworded, not moved: it keeps its id. An id that is
    now the id of another text has moved if its own text is found once elsewhere.
    """
    places: dict[str, list[str]] = {}
    for key, text in after.items():
        places.setdefault(text, []).append(key)
    moved = {}
    for key, text in before.items():
        new = [place for place in places.get(text, []) if before.get(place) != text]
        if after.get(key) != text and len(new) == 1:
            moved[key] = new[0]
    return moved


def _rename_ids(path: Path, moved: dict[str, str]) -> None:
    source = path.read_text(encoding="utf-8")
    if "support.messages" not in source:
        return
    changed = _ID_IN_TEST.sub(lambda found: moved.get(found[0], found[0]), source)
    if changed == source:
        return
    path.write_text(changed, encoding="utf-8")
    for key in sorted({found for found in _ID_IN_TEST.findall(source) if found in moved}):
        print(f"{path.relative_to(ROOT)}: {key} is now {moved[key]}")


if __name__ == "__main__":
    main()
