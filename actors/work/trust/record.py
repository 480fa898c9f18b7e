"""What the user has trusted, on disk: a file per workspace, with the sum of each of its files, and their texts.

    ~/.local/state/callboard/trust/<sum of the directory's path>.json

The texts are there so that a change can be shown as a diff. No process of an agent can read or write these files where
there is a sandbox (they lie in the state directory).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ....protocol.decoding import json_decoder
from ....protocol.errors import ConfigError
from ...io.directories import private_directory, state_dir
from ...io.whole_file import write_whole
from .offered import Kind, files, read_inside

KEPT_TEXT = 64 * 1024
"""Bytes of a file's text that are kept; of larger ones only the sum."""


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file as it was when it was trusted.

    Attributes:
        sum: its SHA-256.
        kind: what it is.
        text: what it said; None if that is too long, or no text.
    """

    sum: str
    kind: Kind
    text: str | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What was said of a workspace.

    Attributes:
        directory: its path.
        trusted: whether it is; False for one whose user does not want to be asked any more.
        files: what was there then, by path from its root.
    """

    directory: str
    trusted: bool
    files: dict[str, Seen] = {}


_decode = json_decoder(Record).decode


def file_of(root: Path, environ: Mapping[str, str]) -> Path:
    """Where the record of a workspace lies."""
    return state_dir(environ) / "trust" / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}.json"


def record_of(root: Path, environ: Mapping[str, str]) -> Record | None:
    """What was said of a workspace; None for nothing. A record that can't be read counts as none."""
    try:
        record = _decode(file_of(root, environ).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    return record if record.directory == str(root) else None


def as_it_is(root: Path) -> Record:
    """The record of a workspace that is trusted as it is now. Reads all that would count."""
    found: dict[str, Seen] = {}
    for name, kind in files(root).items():
        data = read_inside(root, root / name)
        if data is not None:
            found[name] = Seen(sum=sum_of(data), kind=kind, text=_text(data))
    return Record(directory=str(root), trusted=True, files=found)


def keep(record: Record, environ: Mapping[str, str]) -> None:
    """Write it down.

    Raises:
        ConfigError: it can't be written.
    """
    file = file_of(Path(record.directory), environ)
    try:
        private_directory(file.parent)
        write_whole(file, msgspec.json.format(msgspec.json.encode(record), indent=1), private=True)
    except OSError as error:
        raise ConfigError(f"what is trusted can't be written to {file}: {error.strerror or error}") from error


def forget(root: Path, environ: Mapping[str, str]) -> bool:
    """Remove the record of a workspace; whether there was one."""
    file = file_of(root, environ)
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    return True


def sum_of(data: bytes) -> str:
    """A file's sum."""
    return hashlib.sha256(data).hexdigest()


def _text(data: bytes) -> str | None:
    if len(data) > KEPT_TEXT or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
