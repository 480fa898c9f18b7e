"""What a record of changes holds: a line of JSON for each file that a call of a tool has changed, in their order.

Paths are percent-encoded, as in `file:` addresses, since names of files are bytes and JSON is text.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote_to_bytes

import msgspec

from .....protocol.decoding import json_decoder

Kind = Literal["file", "link", "directory", "other"]


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What stood at a path.

    Attributes:
        kind: `other` is what has no contents, such as a pipe.
        sha: SHA-256 of a file's content; empty if that was not looked at.
        size: of a file, in bytes.
        mode: its permissions.
        target: where a link points, encoded.
    """

    kind: Kind = "file"
    sha: str = ""
    size: int = 0
    mode: int = 0o644
    target: str = ""


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One path that one call has changed, or was about to change: the record is written first.

    Attributes:
        at: nanoseconds since 1970.
        actor: path of the call's actor.
        tool: its name.
        root: the allowed directory that it worked in, without links; encoded.
        path: below the root; encoded.
        before, after: what stood there; None for nothing.
        lost: why what stood there before is not kept; empty if it is, or if there is nothing to keep.
        unshown: the permissions deny showing its contents.
        secret: what the vault had handed out in that process stands in them.
        secrets: what that is called, each `{{NAME}}`; "" for what has no name.
        void: the change of the same path and moment, which is in an earlier line, has failed.
    """

    at: int
    actor: str
    tool: str
    root: str
    path: str
    before: State | None = None
    after: State | None = None
    lost: str = ""
    unshown: bool = False
    secret: bool = False
    secrets: tuple[str, ...] = ()
    void: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """The way down from the root."""
        return tuple(decoded(self.path).split("/"))

    @property
    def whole(self) -> Path:
        """The absolute path."""
        return Path(decoded(self.root)).joinpath(*self.parts)


def encoded(path: str | Path) -> str:
    """A path as text, whatever bytes it is made of."""
    return quote(os.fsencode(path), safe="/ ")


def decoded(text: str) -> str:
    """The path that was encoded."""
    return os.fsdecode(unquote_to_bytes(text))


def told(path: str | Path) -> str:
    """A path for people and for JSON: bytes that are no text are replaced."""
    return os.fsencode(path).decode(errors="replace")


def same(one: State | None, other: State | None) -> bool:
    """Whether it is the same thing with the same content; what was not looked at is like nothing else."""
    if one is None or other is None:
        return one is other
    if one.kind != other.kind:
        return False
    match one.kind:
        case "file":
            return one.sha == other.sha != ""
        case "link":
            return one.target == other.target
        case "directory":
            return True
    return False


_ENCODER = msgspec.json.Encoder()
_DECODER = json_decoder(Change)


def line_of(change: Change) -> bytes:
    """As a line, with its end."""
    return _ENCODER.encode(change) + b"\n"


def changes_in(data: bytes) -> list[Change]:
    """The changes of a record but those that failed; what can't be read (torn, of another version) is left out."""
    found: dict[tuple[int, str], Change] = {}
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
