"""Record of installed bundles: `installed.json` of the configuration directory, with commits and file hashes.

A file with another hash than the recorded one has been changed by the user, and counts as the user's own.
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
        url, ref, path: its origin: see `BundleSource`, and the directory in it.
        commit: the installed commit; for the built-in bundle, the version of Callboard.
        filter: the filters that selected its items.
        date: time of the last install or update, in UTC.
        files: SHA-256 of each installed file, by its path in the configuration directory.
        servers: the same for entries of mcp.json, by name.
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
    def origin(self) -> str:
        """Origin in the form in which users write it."""
        return f"{self.url}#{self.ref}" if self.ref else self.url


class InstallManifest(msgspec.Struct, frozen=True, kw_only=True):
    """All installed bundles, by name."""

    version: int = 1
    bundles: dict[str, Bundle] = {}

    def with_bundle(self, name: str, bundle: Bundle | None) -> InstallManifest:
        """Return the record with this bundle added or replaced; None removes it.

        A file belongs to the bundle that has written it last.
        """
        rest = {other: kept for other, kept in self.bundles.items() if other != name}
        if bundle is not None:
            rest = {other: _without(kept, bundle) for other, kept in rest.items()}
            rest[name] = bundle
        return msgspec.structs.replace(self, bundles=dict(sorted(rest.items())))


def read_manifest(base: Path) -> InstallManifest:
    """Return the record of a configuration directory; empty if there is none.

    Raises:
        InvalidFile: the file can't be read, or is invalid.
    """
    file = base / NAME
    try:
        record = decode_json(file.read_bytes(), InstallManifest)
    except FileNotFoundError:
        return InstallManifest()
    except OSError as error:
        raise InvalidFile(f"{file} can't be read: {error.strerror or error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidFile(
            f"{file} can't be read: {error}; only `callboard install` writes it. Restore an older copy of it,"
            " or move it away: the files that it lists stay installed, and count as your own"
        ) from error
    if record.version != 1:
        raise InvalidFile(f"{file} is of version {record.version}; this Callboard knows version 1")
    odd = [path for bundle in record.bundles.values() for path in bundle.files if not is_safe(path)]
    if odd:
        raise InvalidFile(f"{file} lists {odd[0]!r}, which is no path within the configuration directory")
    return record


def encode_manifest(record: InstallManifest) -> bytes:
    """Return the contents of the file."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def hash_of(data: bytes) -> str:
    """Return the SHA-256 of a file's contents."""
    return hashlib.sha256(data).hexdigest()


def hash_of_entry(entry: Any) -> str:
    """Return the hash of an entry of mcp.json, independent of the order of its keys and its formatting."""
    return hash_of(msgspec.json.encode(entry, order="sorted"))


def _without(kept: Bundle, other: Bundle) -> Bundle:
    files = {path: hash for path, hash in kept.files.items() if path not in other.files}
    servers = {name: hash for name, hash in kept.servers.items() if name not in other.servers}
    return msgspec.structs.replace(kept, files=files, servers=servers)
