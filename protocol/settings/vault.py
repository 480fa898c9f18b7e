"""The `vault:` block of `config.yaml`: the place of the values for `{{NAME}}`, and the way to open it.

    vault: {file: vault.age, identity: ~/keys/callboard.txt}      # a file of Callboard, opened by an age identity
    vault: {passphrase: true}                                     # by a passphrase, asked once per process
    vault: {keyring: true}                                        # by an identity in the system's keyring
    vault: {command: "op read op://Private/{name}/credential"}    # no file: a program prints the value

Without the block, there is a vault as soon as `callboard vault add` has made one.
"""

from __future__ import annotations

import shlex
from typing import Annotated

import msgspec
from msgspec import Meta

from ..environment import SECRET
from ..problems import Problem
from ..tree import Path
from ..yaml_tree import Source

PLACE = "{name}"
"""Placeholder for the name of the secret in the command."""

LOKIS_KEY = "vault_password_file"
"""Loki's name for `vault.passphrase_file`."""


class VaultSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Source of secrets. Relative paths are relative to the configuration directory."""

    file: Annotated[str, Meta(description="The encrypted file; `vault.age` if it is not given.")] = ""
    identity: Annotated[str, Meta(description="The file of age identities that open it; made at first use.")] = ""
    recipients: Annotated[
        tuple[str, ...], Meta(description="Other readers of the vault: public keys of age, `age1...`.")
    ] = ()
    passphrase: Annotated[bool, Meta(description="Encrypt with a passphrase, which is asked for.")] = False
    passphrase_file: Annotated[str, Meta(description="A file whose first line is the passphrase.")] = ""
    keyring: Annotated[bool, Meta(description="Store the identity in the system's keyring.")] = False
    command: Annotated[str, Meta(description="A command that prints the secret called `{name}`; no shell runs it.")] = (
        ""
    )
    timeout: Annotated[float, Meta(gt=0, description="Time limit of the command in seconds.")] = 30.0


def vault_problems(vault: VaultSettings, lokis: str | None, source: Source) -> list[Problem]:
    """Return the problems that types can't express: keys that exclude each other, and unusable values."""
    found: list[Problem] = []

    def error(path: Path, message: str, hint: str) -> None:
        found.append(source.problem("error", "bad_vault", message, path, hint=hint))

    def no_effect(path: Path, why: str, hint: str) -> None:
        message = f"`{path[-1]}` has no effect: {why}"
        found.append(source.problem("warning", "ignored_key", message, path, hint=hint))

    by_passphrase = "passphrase" if vault.passphrase else "passphrase_file" if vault.passphrase_file else ""
    openers = [key for key in ("identity", "keyring", by_passphrase) if key and getattr(vault, key)]
    if vault.command:
        of_a_file = [key for key in ("file", "recipients") if getattr(vault, key)]
        for key in (*of_a_file, *openers):
            error(
                ("vault", key),
                f"`{key}` can't be combined with `command`",
                "remove one of them: a vault is either a file or a command",
            )
        if (why := _no_command(vault.command)) is not None:
            error(("vault", "command"), f"`command` {why}", f"write it as in op read op://Private/{PLACE}/credential")
    elif len(openers) > 1:
        error(("vault", openers[1]), f"`{openers[0]}` and `{openers[1]}` exclude each other", "remove one of them")
    elif vault.recipients and (by_passphrase or (lokis and not openers)):
        what = "a vault with a passphrase can't have `recipients`"
        error(("vault", "recipients"), what, "share the passphrase with the other readers, or use an identity")
    if lokis and (instead := "command" if vault.command else openers[0] if openers else ""):
        no_effect((LOKIS_KEY,), f"`{instead}` of `vault` is used", "remove one of them")
    if not vault.command and vault.timeout != VaultSettings().timeout:
        no_effect(("vault", "timeout"), "it limits `command`, which is not set", "remove it")
    for path, value in ((("vault", "passphrase_file"), vault.passphrase_file), ((LOKIS_KEY,), lokis or "")):
        if SECRET.search(value):
            error(path, f"`{path[-1]}` can't refer to a secret of the vault that it opens", "write the path of a file")
    return found


def _no_command(command: str) -> str | None:
    try:
        words = shlex.split(command)
    except ValueError as error:
        return f"can't be read: {error}"
    if not words or words[0] == PLACE:
        return "names no program"
    if PLACE not in command:
        return f"does not contain {PLACE}, the place for the name of the secret"
    return None
