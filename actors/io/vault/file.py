"""Vault file: `{"version": 1, "secrets": {"NAME": "value"}}`, encrypted as a whole, including the names.

If several users can decrypt it, its `recipients` contain their public keys, which the encrypted file does not reveal:
so a writer whose settings lack one of them is refused.

It is replaced atomically, under a lock between processes: a reader finds the old or the new one, and a writer that is
killed, or has a full disk, leaves the old one. An object of texts without `version` is accepted too, for files written
by hand (`age -r age1... secrets.json > vault.age`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import final

import msgspec

from ....protocol.decoding import decode_json
from ....protocol.errors import ConfigError
from ....protocol.json_values import UNREADABLE
from ..atomic_write import unfinished, write_whole
from ..directories import private_directory
from . import age
from .keys import Opener, locked, sealed_for

VERSION = 1
MOST = 16 * 1024 * 1024
"""Maximum bytes of a file."""


MOST_OF_ONE = 64 * 1024
"""Maximum characters of a value."""


def unusable(value: str) -> str:
    """Return the reason why a text can't be the value of a secret; empty if it can."""
    if len(value) > MOST_OF_ONE:
        return f"is longer than {MOST_OF_ONE} characters"
    return "is empty" if not value.strip() else "contains the NUL character" if "\0" in value else ""


class _Content(msgspec.Struct, kw_only=True, omit_defaults=True):
    version: int
    secrets: dict[str, str]
    recipients: list[str] = []

    def __repr__(self) -> str:
        return "_Content()"


class _Version(msgspec.Struct):
    version: int | str = 0


@final
class VaultFile:
    """Encrypted file of secrets. Its methods block.

    Args:
        path: path of the file; it need not exist.
        opener: encrypts and decrypts it.
    """

    def __init__(self, path: Path, opener: Opener) -> None:
        self.path = path
        self.opener = opener

    def read(self) -> dict[str, str]:
        """Return its secrets; empty if there is no file.

        Raises:
            ConfigError: it can't be read or decrypted; the text says why and what to do.
        """
        data = self.data()
        return {} if data is None else self._content_of(data).secrets

    def change(self, edit: Callable[[dict[str, str]], None]) -> None:
        """Apply `edit` to its secrets; if it raises, nothing changes.

        Raises:
            ConfigError: it can't be read or written, and is unchanged.
            UpstreamError: another process holds its lock.
        """
        try:
            private_directory(self.path.parent)
            with locked(self.path):
                data = self.data()
                secrets: dict[str, str] = {}
                if data is not None:
                    content = self._content_of(data)
                    self._check_recipients(data, content)
                    secrets = content.secrets
                before = dict(secrets)
                edit(secrets)
                if secrets != before or data is None:
                    self._write(secrets)
        except OSError as error:
            raise self._bad(f"can't be written: {error.strerror or error}; the vault is unchanged") from error

    def rotate(self, *, leave_out: bool = False) -> int:
        """Encrypt the vault again, for a new identity or passphrase; return the number of its secrets.

        Args:
            leave_out: allow that other users who can decrypt it now lose access.

        Raises: as `change`.
        """
        try:
            with locked(self.path):
                data = self.data()
                if data is None:
                    raise ConfigError(f"there is no vault {self.path}; create it: callboard vault add NAME")
                content = self._content_of(data)
                if not leave_out:
                    self._check_recipients(data, content)
                self.opener.renew()
                self._write(content.secrets)
        except OSError as error:
            raise self._bad(f"can't be written: {error.strerror or error}; the vault is unchanged") from error
        return len(content.secrets)

    def data(self) -> bytes | None:
        """Return the encrypted file; None if there is none. Raises as `read`."""
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with os.fdopen(handle, "rb") as stream:
                data = stream.read(MOST + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._bad(f"can't be read: {error.strerror or error}") from error
        if len(data) > MOST:
            raise self._bad(f"can't be read: it is longer than {MOST} bytes")
        return data

    @property
    def stamp(self) -> tuple[int, ...] | None:
        """Fingerprint of the file; None if there is none."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _content_of(self, data: bytes) -> _Content:
        try:
            text = self.opener.open(data)
        except ConfigError as error:
            raise self._bad(f"can't be opened: {error}") from error
        try:
            version = decode_json(text, _Version).version
            if isinstance(version, int) and version > VERSION:
                raise self._bad(
                    f"has version {version}, which this version of Callboard does not know: update Callboard"
                )
            if version == VERSION:
                return decode_json(text, _Content)
            return _Content(version=VERSION, secrets=decode_json(text, dict[str, str]))
        except UNREADABLE:  # the error would quote it
            pass
        raise self._bad('was decrypted, but its content is not a JSON object of strings: {"NAME": "value"}')

    def _check_recipients(self, data: bytes, content: _Content) -> None:
        """Raise if other users who can decrypt the file now could not after a write."""
        own = self.opener.own()
        after, count = sealed_for(own, self.opener.recipients), len(age.stanzas(data))
        if len(content.recipients) == count:
            lost = [key for key in content.recipients if key not in after and key not in own]
            if lost:
                raise self._bad(
                    f"is also encrypted for {', '.join(lost)}, and this change would exclude {_them(lost)}: "
                    f"list {_them(lost)} in `vault: {{recipients: [...]}}`, or exclude {_them(lost)} on "
                    "purpose: callboard vault rotate --leave-out"
                )
        elif count > max(len(after), 1):  # written by age's own program
            raise self._bad(
                f"is encrypted for {count} recipients, and this change would leave {max(len(after), 1)}: "
                "list the public keys of the others in `vault: {recipients: [age1...]}`"
            )

    def _write(self, secrets: dict[str, str]) -> None:
        content = _Content(version=VERSION, secrets=dict(sorted(secrets.items())))
        if self.opener.recipients:
            content.recipients = sealed_for(self.opener.own() or self._first_key(), self.opener.recipients)
        text = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
        target = self.path.resolve()  # follow a symlink
        write_whole(target, self.opener.seal(text), private=True, durable=True)
        for left in unfinished(target):  # of killed writers: this process holds the lock
            left.unlink(missing_ok=True)

    def _first_key(self) -> list[str]:
        """Make the opener create its identity; return its public key."""
        self.opener.seal(b"")
        return self.opener.own()

    def _bad(self, why: str) -> ConfigError:
        return ConfigError(f"the vault {self.path} {why}")


def _them(keys: list[str]) -> str:
    return "it" if len(keys) == 1 else "them"
