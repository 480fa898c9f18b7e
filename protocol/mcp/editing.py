"""Edits of single entries in an `mcp.json`, which leave its other text unchanged: comments, order, indentation.

The text is not generated from the parsed contents. An entry is inserted, replaced or removed at its position, with
the line ends and the indentation of the file. Pass the text with its original line ends (`read_text` and `open`
convert them to `\\n`).
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from ..errors import InvalidFile
from ..problems import errors_in
from ..tree import Mapping, plain
from . import jsonc
from .config import ROOTS, is_root_of_servers

EMPTY = '{\n  "mcpServers": {}\n}\n'
"""Initial contents of a file."""


class _Member(msgspec.Struct, frozen=True):
    """Member of an object: offsets of the key, of the value, of its end, and of the end of the member before it, if
    any.
    """

    begins: int
    value: int
    ends: int
    before: int | None


class _Object(msgspec.Struct, frozen=True):
    """Object: the offsets of its braces, and its members by key; of a repeated key the last one."""

    opens: int
    closes: int
    members: dict[str, _Member]


def entries_of(text: str, file: str) -> dict[str, Any]:
    """Return the entries of servers by name as plain JSON values, including unusable ones.

    Raises:
        InvalidFile: the text is not JSON, or its top level or its `mcpServers` is not an object.
    """
    root, problems = jsonc.parse(text.removeprefix("\ufeff"), file)
    if root is None:
        raise InvalidFile("\n".join(map(str, errors_in(problems))), problems)
    if not isinstance(root, Mapping):
        raise InvalidFile(f"{file} is not an mcp.json: its top level is not an object")
    key = next((key for key in ROOTS if key in root.entries), None)
    if key is None:
        bare = {name: entry for name, entry in root.entries.items() if name != "$schema"}
        return {name: plain(entry.value) for name, entry in bare.items()} if is_root_of_servers(bare) else {}
    servers = root.entries[key].value
    if not isinstance(servers, Mapping):
        raise InvalidFile(f"{file}: `{key}` is not an object with a server for each key")
    return {name: plain(entry.value) for name, entry in servers.entries.items()}


def with_entry(text: str, name: str, entry: Any, file: str = "mcp.json") -> str:
    """Return the text with this entry: in place of the entry of its name, else after the last one.

    Raises:
        InvalidFile: the text is not JSON, or not an object.
    """
    there = entries_of(text, file)
    whole, servers = _objects(text)
    if servers is None and not there:  # no servers yet, and no key for them
        return _appended(text, whole, ROOTS[0], {name: entry})
    servers = servers or whole
    if name not in there:
        return _appended(text, servers, name, entry)
    member = servers.members[name]
    written = _written(entry, text, _indent_at(text, member.begins), _unit(text, servers))
    return text[: member.value] + written + text[member.ends :]


def without_entry(text: str, name: str, file: str = "mcp.json") -> str:
    """Return the text without this entry, however often it occurs; unchanged if it does not.

    Raises:
        InvalidFile: the text is not JSON, or not an object.
    """
    # Of a repeated entry the last one is effective, so the first would take effect if only one was removed.
    while name in entries_of(text, file):
        text = _without_last(text, name)
    return text


def _without_last(text: str, name: str) -> str:
    whole, servers = _objects(text)
    member = (servers or whole).members[name]
    begins, ends = member.begins, member.ends
    word, _, after = _next(text, ends)
    if word == ",":
        ends = after
    elif member.before is not None:
        word, at, after = _next(text, member.before)
        if word == ",":  # Remove the comma before it too: strict readers refuse a trailing comma.
            text = text[:at] + text[after:]
            begins, ends = begins - 1, ends - 1
    start = text.rfind("\n", 0, begins) + 1
    end = text.find("\n", ends)
    if end >= 0 and not text[start:begins].strip() and not text[ends:end].strip():
        return text[:start] + text[end + 1 :]
    return text[:begins] + text[ends:].lstrip(" ")


def _appended(text: str, servers: _Object, name: str, entry: Any) -> str:
    outer, unit, end = _indent_at(text, servers.opens), _unit(text, servers), _line_end(text)
    inner = outer + unit
    members = list(servers.members.values())
    if members:
        blanks = _alone_before(text, members[0].begins)
        inner = inner if blanks is None else blanks
        last = max(member.ends for member in members)
        if _next(text, last)[0] != ",":
            text = f"{text[:last]},{text[last:]}"
            servers = msgspec.structs.replace(servers, closes=servers.closes + 1)
    new = f"{end}{inner}{json.dumps(name)}: {_written(entry, text, inner, unit)}"
    before = text[: servers.closes].rstrip()
    line = _LINE_END.search(text, len(before), servers.closes)
    if line is not None:
        return text[: line.start()] + new + text[line.start() :]
    return f"{before}{new}{end}{outer}{text[servers.closes :]}"


_LINE_END = re.compile(r"\r?\n")


def _line_end(text: str) -> str:
    """Return the line end of most lines."""
    return "\r\n" if 2 * text.count("\r\n") > text.count("\n") else "\n"


def _alone_before(text: str, at: int) -> str | None:
    """Return the blanks before the first word of a line; None if other text precedes this offset."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return None if line.strip(" \t") else line


def _unit(text: str, servers: _Object) -> str:
    """Return the additional indentation of one level."""
    outer = _indent_at(text, servers.opens)
    first = next(iter(servers.members.values()), None)
    inner = _alone_before(text, first.begins) if first is not None else None
    if inner is not None and inner.startswith(outer) and len(inner) > len(outer):
        return inner[len(outer) :]
    return outer or "  "


def _written(entry: Any, text: str, indent: str, unit: str) -> str:
    return json.dumps(entry, indent=unit, ensure_ascii=False).replace("\n", f"{_line_end(text)}{indent}")


def _indent_at(text: str, at: int) -> str:
    """Return the blanks at the beginning of the line."""
    blanks = re.compile(r"[ \t]*").match(text, text.rfind("\n", 0, at) + 1)
    return blanks[0] if blanks else ""


def _objects(text: str) -> tuple[_Object, _Object | None]:
    """Return the whole object of a valid text, and the object under the key for servers, if any."""
    whole = _object(text, _next(text, 1 if text.startswith("\ufeff") else 0)[1])
    key = next((key for key in ROOTS if key in whole.members), None)
    return whole, None if key is None else _object(text, whole.members[key].value)


def _object(text: str, opens: int) -> _Object:
    members: dict[str, _Member] = {}
    before: int | None = None
    word, begins, after = _next(text, opens + 1)
    while word != "}":
        if word != ",":
            _, _, colon = _next(text, after)
            value = _next(text, colon)[1]
            ends = _end_of(text, value)
            key = msgspec.json.decode(word.encode())
            # Assignment alone would leave a repeated key at its first position. `members` is in the order of the text.
            members.pop(key, None)
            members[key] = _Member(begins, value, ends, before)
            before = after = ends
        word, begins, after = _next(text, after)
    return _Object(opens, begins, members)


def _end_of(text: str, at: int) -> int:
    """Return the offset of the end of the value that begins here."""
    depth = 0
    while True:
        word, _, at = _next(text, at)
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(word, 0)
        if depth == 0:
            return at


def _next(text: str, at: int) -> tuple[str, int, int]:
    """Return the next word after blanks and comments, with its begin and end; an empty word at the end of the text."""
    begins = jsonc.behind_blanks(text, at)
    word = jsonc.word_at(text, begins)
    return word, begins, begins + len(word)
