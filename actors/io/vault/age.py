"""Encryption by age (https://age-encryption.org/v1), with pyrage, and with Callboard's errors."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ....protocol.errors import ConfigError
from ....supervisors.installation import install_command

MAGIC = b"age-encryption.org/"
ARMOR = b"-----BEGIN AGE ENCRYPTED FILE-----"
IDENTITY = "AGE-SECRET-KEY-1"
_MOST_HEADER = 64 * 1024


class NotOpened(ConfigError):
    """The data can't be decrypted. The text gives the reason, without naming the data."""

    code = "vault"


def require_age() -> None:
    """Raise `ConfigError` if the encryption library is missing; call it before the user types a secret."""
    _pyrage()


def new_identity() -> str:
    """Return a new secret key, `AGE-SECRET-KEY-1...`."""
    return str(_pyrage().x25519.Identity.generate())


def public_of(identity: str) -> str:
    """Return the public key of an identity, `age1...`."""
    return str(_identity(identity).to_public())


def sealed(data: bytes, recipients: Sequence[str]) -> bytes:
    """Encrypt data for these public keys, as armored text, which suits version control.

    Raises:
        ConfigError: one of them is not a public key.
    """
    text: bytes = _pyrage().encrypt(data, [_recipient(each) for each in recipients], armored=True)
    return text


def opened(data: bytes, identities: Sequence[str]) -> bytes:
    """Decrypt data with the first matching identity.

    Raises:
        NotOpened: none matches, or the data is not a complete age file.
    """
    kinds = stanzas(data)
    if kinds and set(kinds) == {"scrypt"}:
        raise NotOpened(
            "the vault is encrypted with a passphrase, not for an identity: set `vault: {passphrase: true}`"
        )
    age, keys = _pyrage(), [_identity(each) for each in identities]
    try:
        plain: bytes = age.decrypt(data, keys)
    except age.DecryptError as error:
        if "matching keys" in str(error):
            raise NotOpened("the vault is encrypted for another identity") from error
        raise NotOpened(_broken(str(error))) from error
    return plain


def sealed_by_passphrase(data: bytes, passphrase: str) -> bytes:
    """Encrypt data with a passphrase (scrypt), which takes seconds."""
    text: bytes = _pyrage().passphrase.encrypt(data, passphrase, armored=True)
    return text


def opened_by_passphrase(data: bytes, passphrase: str) -> bytes:
    """Decrypt data with a passphrase, which takes seconds.

    Raises:
        NotOpened: the passphrase is wrong, or the data is not a complete age file.
    """
    kinds = stanzas(data)
    if kinds and "scrypt" not in kinds:
        raise NotOpened(
            "the vault is encrypted for an identity, not with a passphrase: remove `passphrase` from `vault`"
        )
    age = _pyrage()
    try:
        plain: bytes = age.passphrase.decrypt(data, passphrase)
    except age.DecryptError as error:
        if "Decryption failed" in str(error):
            raise NotOpened("the passphrase is wrong") from error
        raise NotOpened(_broken(str(error))) from error
    return plain


def stanzas(data: bytes) -> list[str]:
    """Return the kinds of recipients that the header of an age file names: `X25519` for a public key, `scrypt` for a
    passphrase.

    Raises:
        NotOpened: it is not an age file.
    """
    head = data.lstrip()
    if head.startswith(ARMOR):
        lines = head[: 2 * _MOST_HEADER].splitlines()[1:]
        text = b"".join(line.strip() for line in lines if not line.startswith(b"-----"))
        try:
            head = base64.b64decode(text[: len(text) // 4 * 4], validate=True)
        except binascii.Error as error:
            raise NotOpened("the file is damaged: its armor is not base64") from error
    if not head.startswith(MAGIC):
        raise NotOpened("the file is not encrypted with age")
    lines = head[:_MOST_HEADER].partition(b"\n---")[0].splitlines()
    return [
        line.split()[1].decode("ascii", "replace")
        for line in lines
        if line.startswith(b"-> ") and len(line.split()) > 1 and not line.split()[1].endswith(b"-grease")
    ]


def _broken(why: str) -> str:
    if "Unknown age format" in why:
        return "the file was written by a newer version of age: update pyrage (pip install -U pyrage)"
    return f"the file is damaged ({why.splitlines()[0] if why else 'no reason given'}): restore it from a backup"


def _identity(text: str) -> Any:
    age = _pyrage()
    try:
        return age.x25519.Identity.from_str(text)
    except age.IdentityError as error:
        raise NotOpened("a line that begins with AGE-SECRET-KEY-1 is not a valid age identity") from error


def _recipient(text: str) -> Any:
    age = _pyrage()
    try:
        return (age.ssh if text.startswith("ssh-") else age.x25519).Recipient.from_str(text.strip())
    except age.RecipientError as error:
        raise NotOpened(f"'{text}' is not a public key of age (age1...): correct `recipients` of `vault`") from error


def _pyrage() -> Any:
    try:
        return import_module("pyrage")  # it has no types
    except ImportError as error:
        raise ConfigError(f"an encrypted vault needs pyrage; run: {install_command('vault')}") from error
