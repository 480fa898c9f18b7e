"""Keys of a vault: identities in a file or in the system's keyring, or a passphrase.

Identities are lines as `age-keygen` writes them. The first encrypts, each may decrypt: so `renew` puts a new one before
the others, and everything encrypted earlier, here, in a backup or in another vault, can still be decrypted.

Writers of a vault or an identity hold `locked`: `flock` on an empty `.lock` file, which the kernel releases.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Protocol, final

from ....protocol.errors import ConfigError, UpstreamError
from ....supervisors.user_code import failure_of
from ..atomic_write import write_whole
from ..directories import private_directory
from . import age

MOST = 64 * 1024
"""Maximum bytes of a file with identities, or with a passphrase."""


class Opener(Protocol):
    """Encryption and decryption of a vault. Its methods block.

    Attributes:
        quick: True if decryption takes a few milliseconds, and asks nothing.
        recipients: public keys of other users who can decrypt.
    """

    quick: bool
    recipients: tuple[str, ...]

    def own(self) -> list[str]:
        """Return the public keys of its identities, the encrypting one first; empty before the first is created."""
        ...

    def seal(self, data: bytes) -> bytes:
        """Encrypt data, creating the key if necessary."""
        ...

    def open(self, data: bytes) -> bytes:
        """Decrypt data.

        Raises:
            ConfigError: it can't be decrypted; the text gives the reason.
        """
        ...

    def renew(self) -> None:
        """Make the next `seal` use a new key."""
        ...


@final
class IdentityFile:
    """Identities in a private file.

    Args:
        path: path of the file, which the first `seal` creates.
        recipients: public keys of other users who can decrypt.
    """

    quick = True

    def __init__(self, path: Path, recipients: Sequence[str] = ()) -> None:
        self.path = path
        self.recipients = tuple(recipients)

    def seal(self, data: bytes) -> bytes:
        return _sealed(data, self._there() or self._make(renew=False), self.recipients)

    def own(self) -> list[str]:
        return [age.public_of(each) for each in self._there()]

    def open(self, data: bytes) -> bytes:
        identities = self._there()
        if not identities:
            raise ConfigError(
                f"the identity that decrypts the vault is missing: there is no {self.path}; restore it from a backup"
            )
        try:
            return age.opened(data, identities)
        except age.NotOpened as error:
            whose = f" than those in {self.path}" if "another identity" in str(error) else ""
            raise age.NotOpened(f"{error}{whose}") from error

    def renew(self) -> None:
        self._make(renew=True)

    def _make(self, *, renew: bool) -> list[str]:
        """Put a new identity before existing ones; without `renew`, only if there is none."""
        try:
            private_directory(self.path.parent)
            with locked(self.path):
                old = self._there()
                if old and not renew:
                    return old  # another process was faster
                identities = [age.new_identity(), *old]
                lines = [line for each in identities for line in (f"# public key: {age.public_of(each)}", each)]
                text = "\n".join(
                    ("# Identity that decrypts Callboard's vault. Keep it secret, and keep a copy.", *lines, "")
                )
                write_whole(self.path.resolve(), text.encode(), private=True, durable=True)
        except OSError as error:
            raise ConfigError(f"the identity {self.path} can't be written: {error.strerror or error}") from error
        return identities

    def _there(self) -> list[str]:
        data = _read_private(self.path, "the identity")
        if data is None:
            return []
        lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
        found = [line for line in lines if line.startswith(age.IDENTITY)]
        if not found:
            raise ConfigError(
                f"{self.path} contains no identity; expected a line AGE-SECRET-KEY-1..., as written by age-keygen"
            )
        return found


@final
class Keyring:
    """Identities in the system's keyring, through the library `keyring`.

    Args:
        lock: file whose `.lock` protects changes. All vaults share one entry.
        recipients: public keys of other users who can decrypt.
    """

    quick = False  # it may ask the user, and importing the library takes 160 ms
    SERVICE = "callboard"
    USER = "vault identity"

    def __init__(self, lock: Path, recipients: Sequence[str] = ()) -> None:
        self.recipients = tuple(recipients)
        self._lock = lock

    def seal(self, data: bytes) -> bytes:
        return _sealed(data, self._there() or self._make(renew=False), self.recipients)

    def own(self) -> list[str]:
        return [age.public_of(each) for each in self._there()]

    def open(self, data: bytes) -> bytes:
        identities = self._there()
        if not identities:
            raise ConfigError(
                f"the system's keyring has no identity for the vault (service {self.SERVICE}, user {self.USER})"
            )
        return age.opened(data, identities)

    def renew(self) -> None:
        self._make(renew=True)

    def _make(self, *, renew: bool) -> list[str]:
        """Put a new identity before existing ones; without `renew`, only if there is none."""
        try:
            private_directory(self._lock.parent)
            with locked(self._lock):
                old = self._there()
                if old and not renew:
                    return old  # another process was faster
                identities = [age.new_identity(), *old]
                self._call("set_password", self.SERVICE, self.USER, "\n".join(identities))
                if self._there() != identities:  # otherwise sealed data could not be decrypted
                    raise ConfigError(
                        "the system's keyring does not store entries: it returned another"
                        " value than the one just written"
                    )
        except OSError as error:
            raise ConfigError(f"{self._lock}.lock can't be written: {error.strerror or error}") from error
        return identities

    def _there(self) -> list[str]:
        text = self._call("get_password", self.SERVICE, self.USER)
        return [line for line in (text or "").splitlines() if line.startswith(age.IDENTITY)]

    def _call(self, method: str, *arguments: str) -> str | None:
        try:
            keyring = import_module("keyring")
        except ImportError as error:
            raise ConfigError("`keyring` of `vault` needs the Python package keyring: pip install keyring") from error
        try:
            found = getattr(keyring, method)(*arguments)
        except BaseException as raised:  # of any type, depending on the backend
            failure = failure_of(raised)
            raise ConfigError(f"the system's keyring can't be used: {type(failure).__name__}: {failure}") from raised
        return found if isinstance(found, str) else None


@final
class Passphrase:
    """Passphrase of a vault: the first line of a file, or the argument of `set_passphrase`; cached for the lifetime of
    this object.

    Attributes:
        next: replacement for the next `renew`; None for none.
    """

    quick = False
    recipients: tuple[str, ...] = ()

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._known: str | None = None
        self.next: str | None = None

    @property
    def is_in_file(self) -> bool:
        """True if the passphrase is read from a file."""
        return self._file is not None

    @property
    def is_wanted(self) -> bool:
        """True if the user has to type the passphrase before the vault can be used."""
        return self._file is None and self._known is None

    def set_passphrase(self, passphrase: str | None) -> None:
        """Set the passphrase; None forgets it."""
        self._known = passphrase

    def seal(self, data: bytes) -> bytes:
        return age.sealed_by_passphrase(data, self._passphrase())

    def own(self) -> list[str]:
        """Return no public keys, because a passphrase has no identity."""
        return []

    def open(self, data: bytes) -> bytes:
        try:
            return age.opened_by_passphrase(data, self._passphrase())
        except age.NotOpened as error:
            raise age.NotOpened(f"{error} (that of {self._file})" if self._file else str(error)) from error

    def renew(self) -> None:
        """Replace the passphrase by `next`; later calls of `seal` use the new one. No effect if `next` is None.

        Raises:
            ConfigError: the passphrase is in a file.
        """
        if self._file is None and self.next is not None:
            self._known, self.next = self.next, None
        elif self._file is not None:
            raise ConfigError(
                f"the passphrase is read from {self._file}, so Callboard can't change it: put a new "
                "passphrase into that file, and create a new vault"
            )

    def _passphrase(self) -> str:
        if self._known is None and self._file is not None:
            data = _read_private(self._file, "the passphrase")
            if data is None:
                raise ConfigError(f"the passphrase file {self._file} does not exist")
            self._known = data.decode("utf-8", "replace").partition("\n")[0].rstrip("\r")
            if not self._known:
                raise ConfigError(f"the first line of {self._file}, which has to be the passphrase, is empty")
        if self._known is None:
            raise ConfigError(
                "the passphrase must be typed, and no terminal is attached; name a file that contains it: "
                "`vault: {passphrase_file: FILE}`"
            )
        return self._known


def sealed_for(own: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the public keys for encryption: the first own key, and the keys of others.

    A team's shared list of recipients contains the own key too; a replaced one must not be able to decrypt any more.
    """
    keys = dict.fromkeys(" ".join(key.split()[:2]) for key in others)  # the text after an SSH key is a comment
    return [*own[:1], *(key for key in keys if key not in own)]


def _sealed(data: bytes, identities: Sequence[str], others: Sequence[str]) -> bytes:
    return age.sealed(data, sealed_for([age.public_of(each) for each in identities], others))


def _read_private(path: Path, what: str) -> bytes | None:
    """Return the content of a file that only its user may write; its group may read it. None if there is no file.

    Raises:
        ConfigError: it is no regular file, others may read or write it, or it is longer than `MOST` bytes.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{what} in {path} can't be read: {error.strerror or error}") from error
    with os.fdopen(handle, "rb") as stream:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(f"{what} in {path} can't be read: it is not a regular file")
        if found.st_mode & 0o027:
            mode = f"{stat.S_IMODE(found.st_mode):o}"
            raise ConfigError(
                f"{what} in {path} can be read or written by other users (mode {mode}); run: chmod 600 {path}"
            )
        data = stream.read(MOST + 1)
    if len(data) > MOST:
        raise ConfigError(f"{what} in {path} can't be read: it is longer than {MOST} bytes")
    return data


# --- lock between processes


WITHIN = 30.0
"""Seconds to wait for another process, whose user may be typing a passphrase."""

LOOK_EVERY = 0.02


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the lock of a file, whichever symlink leads to it. Blocks.

    Raises:
        OSError: locking is not possible.
        UpstreamError: another process holds it for too long.
    """
    target = Path(os.path.realpath(file))  # a loop of symlinks raises nothing here, and fails to open later
    path = target.with_name(f"{target.name}.lock")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        end = time.monotonic() + WITHIN
        while not _taken(handle, path):
            if time.monotonic() >= end:
                raise UpstreamError(f"another process has held the lock {path} for more than {WITHIN:g} s")
            time.sleep(LOOK_EVERY)
        yield
    finally:
        os.close(handle)


def _taken(handle: int, path: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # file systems without locks
        raise ConfigError(f"{path} can't be locked: {error.strerror or error}") from error
    return True
