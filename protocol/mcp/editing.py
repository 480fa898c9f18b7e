"""Changes single entries of an `mcp.json` and leaves all else of it as it is: comments, order, indentation.

The text is not written anew from what was read: an entry is put in, replaced or cut out at its place. So a file that a
person keeps by hand stays theirs, and an entry is written as the file is: with its ends of lines and its indentation.
Hand over the text with both (`read_text` and `open` make `\\n` of every end of a line).
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
from .read_config import ROOTS, is_root_of_servers

EMPTY = '{\n  "mcpServers": {}\n}\n'
"""What a file begins as."""


class _Member(msgspec.Struct, frozen=True):
    """A key with its value: offsets of the key, of the value, behind it, and behind the member before it, if any."""

    begins: int
    value: int
    ends: int
    before: int | None


class _Object(msgspec.Struct, frozen=True):
    """An object: the offsets of its braces, and its members by key; of a key that stands twice the last one."""

    opens: int
    closes: int
    members: dict[str, _Member]


def entries_of(text: str, file: str) -> dict[str, Any]:
    """The entries of servers by name, as plain JSON values, also those that can't be used.

    Raises:
        InvalidFile: the text is no JSON, or holds no servers.
    """
    root, problems = jsonc.parse(text.removeprefix("\ufeff"), file)
    if root is None:
        raise InvalidFile("\n".join(map(str, errors_in(problems))), problems)
    if not isinstance(root, Mapping):
        raise InvalidFile(f"{file} is no mcp.json: it holds no object")
    key = next((key for key in ROOTS if key in root.entries), None)
    if key is None:
        bare = {name: entry for name, entry in root.entries.items() if name != "$schema"}
        return {name: plain(entry.value) for name, entry in bare.items()} if is_root_of_servers(bare) else {}
    servers = root.entries[key].value
    if not isinstance(servers, Mapping):
        raise InvalidFile(f"{file}: `{key}` is no object of servers")
    return {name: plain(entry.value) for name, entry in servers.entries.items()}


def with_entry(text: str, name: str, entry: Any, file: str = "mcp.json") -> str:
    """The text with this entry: in the place of the one of its name, else behind the last one.

    Raises:
        InvalidFile: the text is no JSON, or holds no object.
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
    """The text without this entry, however often it stands there; as it is, if there is none.

    Raises:
        InvalidFile: the text is no JSON, or holds no object.
    """
    while name in entries_of(text, file):  # one that stands twice counts as it stands last: the first would come back
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
        if word == ",":  # it would be left dangling, which strict readers refuse
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
    """How most lines of the text end."""
    return "\r\n" if 2 * text.count("\r\n") > text.count("\n") else "\n"


def _alone_before(text: str, at: int) -> str | None:
    """The blanks between the beginning of the line and what stands first in it; None if something is before it."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return None if line.strip(" \t") else line


def _unit(text: str, servers: _Object) -> str:
    """By what a level of the text is deeper than the one around it."""
    outer = _indent_at(text, servers.opens)
    first = next(iter(servers.members.values()), None)
    inner = _alone_before(text, first.begins) if first is not None else None
    if inner is not None and inner.startswith(outer) and len(inner) > len(outer):
        return inner[len(outer) :]
    return outer or "  "


def _written(entry: Any, text: str, indent: str, unit: str) -> str:
    return json.dumps(entry, indent=unit, ensure_ascii=False).replace("\n", f"{_line_end(text)}{indent}")


def _indent_at(text: str, at: int) -> str:
    """The blanks that the line begins with."""
    blanks = re.compile(r"[ \t]*").match(text, text.rfind("\n", 0, at) + 1)
    return blanks[0] if blanks else ""


def _objects(text: str) -> tuple[_Object, _Object | None]:
    """The whole object of a text that was read without mistake, and the one under the key for servers, if any."""
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
            members.pop(key, None)
            members[key] = _Member(begins, value, ends, before)
            before = after = ends
        word, begins, after = _next(text, after)
    return _Object(opens, begins, members)


def _end_of(text: str, at: int) -> int:
    """Where the value that begins here ends."""
    depth = 0
    while True:
        word, _, at = _next(text, at)
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(word, 0)
        if depth == 0:
            return at


def _next(text: str, at: int) -> tuple[str, int, int]:
    """The next word behind blanks and comments, where it begins and where it ends; nothing at the end of the text."""
    begins = jsonc.behind_blanks(text, at)
    word = jsonc.word_at(text, begins)
    return word, begins, begins + len(word)
