"""Stored trust decisions: one file per workspace, with hash and text of each of its files.

    ~/.local/state/callboard/trust/<hash of the directory's path>.json

The texts allow a later change to be displayed as a diff. With a sandbox, no process of an agent can read or write these
files, because they are in the state directory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ....protocol.decoding import json_decoder
from ....protocol.errors import ConfigError
from ...io.atomic_write import write_whole
from ...io.directories import private_directory, state_dir
from .workspace_files import Kind, files, read_inside

KEPT_TEXT = 64 * 1024
"""Maximum bytes of a file's text that is stored; of larger files only the hash."""


class TrustedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of a file when it was trusted.

    Attributes:
        sum: its SHA-256.
        kind: its kind.
        text: its content; None if it is too long or not text.
    """

    sum: str
    kind: Kind
    text: str | None = None


class TrustRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Decision of the user about a workspace.

    Attributes:
        directory: its path.
        trusted: True if trusted; False if the user refused and is not asked again.
        files: its files at that time, by path relative to its root.
    """

    directory: str
    trusted: bool
    files: dict[str, TrustedFile] = {}


_decode = json_decoder(TrustRecord).decode


def file_of(root: Path, environ: Mapping[str, str]) -> Path:
    """Return the path of a workspace's record."""
    return state_dir(environ) / "trust" / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}.json"


def record_of(root: Path, environ: Mapping[str, str]) -> TrustRecord | None:
    """Return the record of a workspace; None if there is none or it cannot be read."""
    try:
        record = _decode(file_of(root, environ).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    # The file name is a shortened hash, so the directory itself must match too.
    return record if record.directory == str(root) else None


def as_it_is(root: Path) -> TrustRecord:
    """Return a record that trusts the workspace in its current state. Reads all files that need trust."""
    found: dict[str, TrustedFile] = {}
    for name, kind in files(root).items():
        data = read_inside(root, root / name)
        if data is not None:
            found[name] = TrustedFile(sum=sum_of(data), kind=kind, text=_text(data))
    return TrustRecord(directory=str(root), trusted=True, files=found)


def keep(record: TrustRecord, environ: Mapping[str, str]) -> None:
    """Write the record.

    Raises:
        ConfigError: it cannot be written.
    """
    file = file_of(Path(record.directory), environ)
    try:
        private_directory(file.parent)
        write_whole(file, msgspec.json.format(msgspec.json.encode(record), indent=1), private=True)
    except OSError as error:
        raise ConfigError(f"what is trusted can't be written to {file}: {error.strerror or error}") from error


def forget(root: Path, environ: Mapping[str, str]) -> bool:
    """Delete the record of a workspace; return True if there was one."""
    file = file_of(root, environ)
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    return True


def sum_of(data: bytes) -> str:
    """Return the SHA-256 of a content."""
    return hashlib.sha256(data).hexdigest()


def _text(data: bytes) -> str | None:
    if len(data) > KEPT_TEXT or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
