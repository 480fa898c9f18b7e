"""Crash-safe changes to the configuration directory, and its record of installed bundles.

A kill leaves the old state, or one that leads to the new state. All new files are first written below `.installing/`,
and a journal next to them last. Without a journal nothing has changed, and the next install deletes the directory. With
a journal, everything needed is on disk: the next `callboard install` of any kind first completes the interrupted one.
The record is the last file of the journal.

Only one install runs at a time: it locks the configuration directory itself (`flock`). The kernel releases the lock
when the process ends.

`ConfigState` is the state before a change: hashes of files, and the text of mcp.json. `InstallManifest` is the record,
`installed.json`, with commits and file hashes. A file with another hash than the recorded one has been changed by the
user, and counts as the user's own.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from ....protocol.decoding import decode_json
from ....protocol.errors import Conflict, InvalidFile, NotKept
from ....protocol.mcp.editing import EMPTY, entries_of, with_entry, without_entry
from ...io.atomic_write import write_whole
from ...io.directories import private_directory
from .layout import MCP_FILES, is_safe

STAGING = ".installing"
JOURNAL = "journal.json"


class PutFile(msgspec.Struct, frozen=True):
    """A file to write: its path, the name of its contents below `STAGING`, and `NewFile.personal`."""

    path: str
    staged: str
    personal: bool = False


class InstallJournal(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to make, in this order; making them twice is harmless."""

    puts: list[PutFile] = []
    removes: list[str] = []


class NewFile(msgspec.Struct, frozen=True):
    """New contents of a file. An existing file keeps its read and write permissions.

    Attributes:
        executable: the file can be started as a program.
        personal: the file belongs to the user, and only a part of it to bundles. If it is a link, the target is
            changed. A new one is readable by its owner alone.
    """

    data: bytes
    executable: bool = False
    personal: bool = False


@contextmanager
def alone(base: Path) -> Iterator[None]:
    """Prevent other processes from installing in this directory during the block.

    The directory is created if it is missing.

    Raises:
        Conflict: another process installs there.
        NotKept: the directory can't be created or read.
    """
    try:
        private_directory(base)
        handle = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise NotKept(f"{base} can't be used: {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"another `callboard install` is running in {base}; wait until it has finished") from None
        yield
    finally:
        os.close(handle)


def apply_files(base: Path, puts: Mapping[str, NewFile], removes: Sequence[str]) -> None:
    """Write the files `puts` and delete the files `removes`, as paths below `base`. Blocks.

    The last of `puts` is written after all other changes; it must be the record of installed bundles.

    Raises:
        NotKept: a write failed; the next install completes the changes if the journal was written.
    """
    stage = base / STAGING
    try:
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir(mode=0o700)
        journal = InstallJournal(removes=list(removes))
        for number, (path, new) in enumerate(puts.items()):
            staged = stage / str(number)
            staged.write_bytes(new.data)
            # A new file's mode shows the umask, which can't be queried without changing it.
            before = stat.S_IMODE(staged.stat().st_mode)
            mode = _mode(base / path, new, before)
            if mode != before:
                staged.chmod(mode)
            journal.puts.append(PutFile(path, staged.name, new.personal))
        write_whole(stage / JOURNAL, msgspec.json.encode(journal), durable=True)
        _follow(base, journal)
    except OSError as error:
        raise NotKept(f"{base} can't be written to: {error.strerror or error} ({error.filename})") from error


def finish(base: Path) -> bool:
    """Complete or discard an interrupted install. Return whether there was one to complete.

    Raises:
        InvalidFile: the journal is invalid.
        NotKept: a write failed.
    """
    stage = base / STAGING
    try:
        text = (stage / JOURNAL).read_bytes()
    except OSError:
        shutil.rmtree(stage, ignore_errors=True)
        return False
    try:
        journal = decode_json(text, InstallJournal)
        # The journal is data in the user's directory: a damaged one must not write or delete files outside of it.
        named = [name for put in journal.puts for name in (put.path, put.staged)]
        if not all(map(is_safe, [*named, *journal.removes])):
            raise ValueError("the journal names a path outside of the configuration directory")
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidFile(
            f"{stage / JOURNAL}, the journal of an interrupted install, can't be read: {error}; move {stage} away"
        ) from error
    try:
        _follow(base, journal)
    except OSError as error:
        raise NotKept(f"{base} can't be written to: {error.strerror or error} ({error.filename})") from error
    return True


def _mode(target: Path, new: NewFile, usual: int) -> int:
    """Return the mode of the new file; `usual` is the mode according to the umask."""
    mode = 0o600 if new.personal else usual
    with suppress(FileNotFoundError, NotADirectoryError):
        mode = target.stat().st_mode & 0o666
    return mode | (mode & 0o444) >> 2 if new.executable else mode  # executable for everyone who may read it


def _follow(base: Path, journal: InstallJournal) -> None:
    for put in journal.puts[:-1]:
        _put(base, put)
    for path in journal.removes:
        (base / path).unlink(missing_ok=True)
        _drop_empty(base, PurePosixPath(path).parent)
    # The record comes last: until then, a repeated run of the journal completes the install.
    for put in journal.puts[-1:]:
        _put(base, put)
    (base / STAGING / JOURNAL).unlink(missing_ok=True)
    shutil.rmtree(base / STAGING, ignore_errors=True)


def _put(base: Path, put: PutFile) -> None:
    staged, target = base / STAGING / put.staged, base / put.path
    if not staged.exists():
        return  # an earlier attempt, which was interrupted, has moved it already
    if put.personal:
        target = Path(os.path.realpath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        staged.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        write_whole(target, staged.read_bytes(), private=True)  # `agents` may be a link to another file system
        target.chmod(staged.stat().st_mode & 0o777)
        staged.unlink()


def _drop_empty(base: Path, directory: PurePosixPath) -> None:
    """Remove empty directories, up to the configuration directory."""
    while directory.parts:
        with suppress(OSError):
            (base / directory).rmdir()
        directory = directory.parent


# --- state of the configuration directory, read before a change


class ConfigState(msgspec.Struct, frozen=True, kw_only=True):
    """State of a configuration directory: hashes of some files, and the text of mcp.json."""

    files: dict[str, str]
    mcp_file: str
    mcp_text: str

    @classmethod
    def of(cls, base: Path, paths: Mapping[str, object]) -> ConfigState:
        """Read the state of the files at `paths` below `base`; missing ones have no hash. Blocks.

        Raises:
            Conflict: one of the paths is a directory or can't be read.
            InvalidFile: mcp.json can't be read.
        """
        files = {path: hash for path in paths if (hash := _hash_at(base / path)) is not None}
        mcp_file = next((name for name in MCP_FILES if (base / name).exists()), MCP_FILES[0])
        text = ""
        with suppress(FileNotFoundError):
            try:
                text = (base / mcp_file).read_bytes().decode("utf-8")  # bytes, to preserve the line endings
            except (OSError, UnicodeDecodeError) as error:
                if isinstance(error, FileNotFoundError):
                    raise
                raise InvalidFile(f"{base / mcp_file} can't be read: {error}") from error
        return cls(files=files, mcp_file=mcp_file, mcp_text=text)

    @property
    def servers(self) -> dict[str, object]:
        """Entries of mcp.json by name; empty without a file."""
        return entries_of(self.mcp_text, self.mcp_file) if self.mcp_text.strip() else {}

    @property
    def server_hashes(self) -> dict[str, str]:
        """Hashes of the entries of mcp.json by name, see `hash_of_entry`."""
        return {name: hash_of_entry(entry) for name, entry in self.servers.items()}


def _hash_at(file: Path) -> str | None:
    try:
        return hash_of(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError:
        raise Conflict(
            f"{file} is a directory, and the bundle installs a file there; move the directory away"
        ) from None
    except OSError as error:
        raise Conflict(f"{file} can't be read: {error.strerror or error}") from error


def mcp_put(state: ConfigState, entries: Mapping[str, object], gone: list[str]) -> dict[str, NewFile]:
    """Return mcp.json by its path, with `entries` put in and `gone` removed; empty without changes."""
    if not entries and not gone:
        return {}
    text = state.mcp_text if state.mcp_text.strip() else EMPTY
    for name in gone:
        text = without_entry(text, name, state.mcp_file)
    for name, entry in entries.items():
        text = with_entry(text, name, entry, state.mcp_file)
    return {state.mcp_file: NewFile(text.encode(), personal=True)}


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
            f"{file} can't be read: {error}; only `callboard install` writes this file. Restore an older "
            "copy of it, or move it away: the files that it lists stay installed and are treated as your own"
        ) from error
    if record.version != 1:
        raise InvalidFile(
            f"{file} has version {record.version}, and this version of Callboard reads version 1; update Callboard"
        )
    odd = [path for bundle in record.bundles.values() for path in bundle.files if not is_safe(path)]
    if odd:
        raise InvalidFile(f"{file} lists {odd[0]!r}, which is not a path within the configuration directory")
    return record


def encode_manifest(record: InstallManifest) -> bytes:
    """Return the contents of the file `installed.json` for this record."""
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
