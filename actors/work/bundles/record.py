"""`installed.json` of the configuration directory: the bundles, the commit of each, and what each file was.

A file whose contents are no longer those has been changed by its user since, and is theirs.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from ....protocol.decoding import decode_json
from ....protocol.errors import InvalidFile
from .layout import is_safe

NAME = "installed.json"


class Bundle(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An installed bundle.

    Attributes:
        url, ref, path: where it comes from: see `Source`, and the directory in it.
        commit: which state of it is installed; of what comes with Callboard, the version.
        filter: what was chosen of it.
        date: when it was installed or updated last, in UTC.
        files: the SHA-256 of each file as it was installed, by its path in the configuration directory.
        servers: the same of entries of mcp.json, by their names.
    """

    url: str
    ref: str = ""
    path: str = ""
    commit: str = ""
    filter: tuple[str, ...] = ()
    date: str = ""
    files: dict[str, str] = {}
    servers: dict[str, str] = {}

    @property
    def shown(self) -> str:
        """Where it comes from, as a person writes it."""
        return f"{self.url}#{self.ref}" if self.ref else self.url


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """All of them, by name."""

    version: int = 1
    bundles: dict[str, Bundle] = {}

    def with_bundle(self, name: str, bundle: Bundle | None) -> Record:
        """The record with this one in the place of what it said of it; without it for None.

        A file belongs to the bundle that has written it last.
        """
        rest = {other: kept for other, kept in self.bundles.items() if other != name}
        if bundle is not None:
            rest = {other: _without(kept, bundle) for other, kept in rest.items()}
            rest[name] = bundle
        return msgspec.structs.replace(self, bundles=dict(sorted(rest.items())))


def read_record(base: Path) -> Record:
    """What is installed in a configuration directory.

    Raises:
        InvalidFile: the file can't be read, or is none of ours.
    """
    file = base / NAME
    try:
        record = decode_json(file.read_bytes(), Record)
    except FileNotFoundError:
        return Record()
    except OSError as error:
        raise InvalidFile(f"{file} can't be read: {error.strerror or error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidFile(
            f"{file} can't be read: {error}; it is written by `callboard install` alone. Put an older copy of it"
            " there, or move it away: what it lists stays installed and counts as yours then"
        ) from error
    if record.version != 1:
        raise InvalidFile(f"{file} is of version {record.version}; this Callboard knows version 1")
    odd = [path for bundle in record.bundles.values() for path in bundle.files if not is_safe(path)]
    if odd:
        raise InvalidFile(f"{file} lists {odd[0]!r}, which is no path within the configuration directory")
    return record


def written(record: Record) -> bytes:
    """The file's contents."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def hash_of(data: bytes) -> str:
    """The SHA-256 of a file's contents."""
    return hashlib.sha256(data).hexdigest()


def hash_of_entry(entry: Any) -> str:
    """The same of an entry of mcp.json, however it is written."""
    return hash_of(msgspec.json.encode(entry, order="sorted"))


def _without(kept: Bundle, other: Bundle) -> Bundle:
    files = {path: hash for path, hash in kept.files.items() if path not in other.files}
    servers = {name: hash for name, hash in kept.servers.items() if name not in other.servers}
    return msgspec.structs.replace(kept, files=files, servers=servers)
