"""Format of a change record: one JSON line per file that a tool call changed, in order.

Paths are percent-encoded as in `file:` URIs, since file names are bytes and JSON is text.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote_to_bytes

import msgspec

from .....protocol.decoding import json_decoder

Kind = Literal["file", "link", "directory", "other"]


class PathState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of a path at one time.

    Attributes:
        kind: `other` is a file without contents, such as a pipe.
        sha: SHA-256 of a file's content; empty if the content was not read.
        size: of a file, in bytes.
        mode: permission bits.
        target: target of a link, encoded.
    """

    kind: Kind = "file"
    sha: str = ""
    size: int = 0
    mode: int = 0o644
    target: str = ""


class PathChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Change of one path by one call. The record is written before the change is made.

    Attributes:
        at: nanoseconds since 1970.
        actor: path of the call's actor.
        tool: its name.
        root: the allowed directory of the call, without links; encoded.
        path: relative to the root; encoded.
        before, after: state of the path; None if nothing exists there.
        lost: the reason why the earlier content is not stored; empty if it is, or if there is none.
        unshown: the permissions deny reading the file's contents.
        secret: a content includes a secret that the vault had given to that process.
        secrets: names of these secrets, each as `{{NAME}}`; "" for one without a name.
        void: the change of the same path and time in an earlier line has failed.
        call: key of the call, the same in all incarnations of a durable run; "" in other runs.
    """

    at: int
    actor: str
    tool: str
    root: str
    path: str
    before: PathState | None = None
    after: PathState | None = None
    lost: str = ""
    unshown: bool = False
    secret: bool = False
    secrets: tuple[str, ...] = ()
    void: bool = False
    call: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """The path's components below the root."""
        return tuple(decoded(self.path).split("/"))

    @property
    def whole(self) -> Path:
        """The absolute path."""
        return Path(decoded(self.root)).joinpath(*self.parts)


def encoded(path: str | Path) -> str:
    """Return a path as ASCII text, whatever bytes it consists of."""
    return quote(os.fsencode(path), safe="/ ")


def decoded(text: str) -> str:
    """Return the path of an encoded text."""
    return os.fsdecode(unquote_to_bytes(text))


def printable_path(path: str | Path) -> str:
    """Return a path for display and JSON, with undecodable bytes replaced."""
    return os.fsencode(path).decode(errors="replace")


def same(one: PathState | None, other: PathState | None) -> bool:
    """Return True if both states have the same kind and content. A file whose content was not read equals no other."""
    if one is None or other is None:
        return one is other
    if one.kind != other.kind:
        return False
    match one.kind:
        case "file":
            # An empty hash means unknown content, which must not count as unchanged.
            return one.sha == other.sha != ""
        case "link":
            return one.target == other.target
        case "directory":
            return True
    return False


_ENCODER = msgspec.json.Encoder()
_DECODER = json_decoder(PathChange)


def line_of(change: PathChange) -> bytes:
    return _ENCODER.encode(change) + b"\n"


def changes_in(data: bytes) -> list[PathChange]:
    """Return the changes of a record, without failed ones. Unreadable lines (torn, other version) are ignored."""
    found: dict[tuple[int, str], PathChange] = {}
    for line in data.split(b"\n"):
        try:
            change = _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if change.void:
            found.pop((change.at, change.path), None)
        else:
            found[change.at, change.path] = change
    return list(found.values())
