"""Secrets in the vault's file, for `callboard vault`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from ...actors.io.secret_redaction import SHORTEST
from ...actors.io.vault.age import require_age
from ...actors.io.vault.file import VaultFile, unusable
from ...actors.io.vault.keys import Passphrase
from ...actors.io.vault.vault import LOKIS_FILE, Vault
from ...protocol.environment import is_secret_name
from ...protocol.errors import NobodyToAsk, NotFound, UsageError
from ...protocol.problems import did_you_mean
from ..frame import person_at_terminal
from ..render.text import counted, json_object, safe
from ..stdin import piped_text
from ..vault_passphrase import has_terminal, hidden_line, vault_of


def put_secret(name: str, *, new: bool, no_input: bool, config_dir: str | None) -> int:
    """Store a value, which is typed without echo or read from standard input; return 0.

    Raises:
        UsageError: `new` is set and the secret exists; the name or value is invalid; or the vault is a command.
        NotFound: `new` is not set, and there is no such secret.
        ConfigError: the vault can't be opened or written.
        NobodyToAsk: there is neither a terminal nor standard input.
    """
    _check_name(name)
    file = _file(vault_of(config_dir, no_input=no_input), f"to {'add' if new else 'change'} {name}")
    if file.stamp is not None or not new:
        _unlock(file, no_input=no_input)
        # Checked before the value is typed, and again in `edit`: another process may have changed the file meanwhile.
        _check_presence(name, file.read(), file, new=new)
    else:
        _choose_passphrase(file, no_input=no_input)
    require_age()
    value = _value(name, no_input=no_input)

    def edit(secrets: dict[str, str]) -> None:
        _check_presence(name, secrets, file, new=new)
        secrets[name] = value

    file.change(edit)
    _print_line(f"{name} is {'stored' if new else 'changed'} in {file.path}")
    if len(value) < SHORTEST:
        _print_line(
            f"its value is shorter than {SHORTEST} characters: it can't be distinguished from other "
            "words in logs and output"
        )
    return 0


def secret_value(name: str, *, no_input: bool, config_dir: str | None) -> str:
    """Return the value of a secret.

    Raises:
        NotFound: there is no such secret.
        ConfigError: the vault can't be opened, or its command has failed.
    """
    vault = vault_of(config_dir, no_input=no_input)
    if vault.file is None:
        _check_name(name)
        value = vault.get(name)
        assert value is not None  # otherwise `get` has raised
        return value
    _unlock(vault.file, no_input=no_input)
    secrets = vault.file.read()
    if name not in secrets:
        _refuse_missing(name, secrets, vault.file)
    return secrets[name]


def remove_secrets(names: tuple[str, ...], *, yes: bool, no_input: bool, config_dir: str | None) -> int:
    """Remove secrets, all or none; return 1 if the user declines, else 0. Raises as `put_secret`."""
    file = _file(vault_of(config_dir, no_input=no_input), f"to delete {', '.join(names)}")
    _unlock(file, no_input=no_input)
    for name in names:
        _check_presence(name, file.read(), file, new=False)
    if not yes:
        if not person_at_terminal(no_input=no_input):
            raise NobodyToAsk(
                "deleting them needs a confirmation, and no user is present: repeat the command with --yes"
            )
        if not click.confirm(f"Delete {', '.join(names)} from {file.path} permanently?", err=True):
            _print_line("nothing was deleted")
            return 1

    def edit(secrets: dict[str, str]) -> None:
        for name in names:
            # Another process may have deleted it since the check.
            secrets.pop(name, None)

    file.change(edit)
    _print_line(f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} deleted")
    return 0


def list_secrets(*, as_json: bool, no_input: bool, config_dir: str | None) -> str:
    """Return the names of all secrets, one per line or as JSON. Raises as `put_secret`."""
    vault = vault_of(config_dir, no_input=no_input)
    file = _file(vault, "for a list")
    if file.stamp is not None:
        _unlock(file, no_input=no_input)
    names = sorted(file.read())
    if as_json:
        return json_object(file=str(file.path), names=names)
    if not names:
        lokis = file.path.parent / LOKIS_FILE
        told = (
            f"; {lokis} is Loki's vault, which only Loki can read: callboard vault import --help"
            if lokis.exists()
            else ""
        )
        _print_line(f"there is no secret in {file.path}: callboard vault add NAME{told}")
    return "".join(f"{safe(name)}\n" for name in names)


def import_secrets(
    *,
    names: tuple[str, ...],
    from_env: bool,
    from_json: str | None,
    replace: bool,
    no_input: bool,
    config_dir: str | None,
) -> int:
    """Store many secrets, all or none; return 0. Raises as `put_secret`.

    Without `replace`, a secret that exists with another value raises `UsageError`.
    """
    if from_env == (from_json is not None):
        raise UsageError("name a source: --from-env NAME..., or --from-json FILE")
    if from_json is not None and names:
        raise UsageError("--from-json imports the whole file: give no NAME")
    if from_env and not names:
        raise UsageError("--from-env needs the NAMEs of variables")
    values = _of_environment(names) if from_json is None else _of_json(from_json)
    for name, value in values.items():
        _check_name(name)
        _check_value(name, value)
    file = _file(vault_of(config_dir, no_input=no_input), "to import")
    if file.stamp is None:
        _choose_passphrase(file, no_input=no_input)
    else:
        _unlock(file, no_input=no_input)
    added: list[str] = []

    def edit(secrets: dict[str, str]) -> None:
        # An equal value is no conflict, so that an import can be repeated. An error raised here leaves the file
        # unchanged.
        others = [name for name, value in values.items() if secrets.get(name, value) != value]
        if others and not replace:
            raise UsageError(f"{file.path} has other values of {', '.join(others)}: --replace overwrites them")
        added[:] = [name for name in values if name not in secrets]
        secrets.update(values)

    file.change(edit)
    _print_line(f"{counted(len(added), 'secret')} added, {len(values) - len(added)} already present, in {file.path}")
    return 0


def rotate_vault(*, leave_out: bool, no_input: bool, config_dir: str | None) -> int:
    """Encrypt the vault again, with a new passphrase if it has one that is typed; return 0. Raises as `put_secret`."""
    file = _file(vault_of(config_dir, no_input=no_input), "to rotate")
    if file.stamp is not None:
        _unlock(file, no_input=no_input)
    opener = file.opener
    if isinstance(opener, Passphrase) and file.stamp is not None:
        file.read()  # decrypts with the old passphrase
        opener.next = None if opener.is_in_file else _new_passphrase(no_input=no_input)
    count = file.rotate(leave_out=leave_out)
    _print_line(f"{file.path} is encrypted again, with {counted(count, 'secret')}")
    if opener.recipients:
        _print_line(f"your public key is now {opener.own()[0]}: replace the former one in `recipients` with it")
    return 0


# --- input ------------------------------------------------------------------------------------------------


def _value(name: str, *, no_input: bool) -> str:
    if sys.stdin is None or sys.stdin.isatty():
        if no_input or not has_terminal():
            raise NobodyToAsk(f"the value of {name} is missing, and there is no terminal to ask for it: pipe it in")
        value = hidden_line(f"Value of {name} (not echoed): ")
    else:
        value = piped_text()
    _check_value(name, value)
    return value


def _check_name(name: str) -> None:
    if not is_secret_name(name):
        raise UsageError(
            f"'{name}' can't be the name of a secret: use letters, digits, '_' and '-', and begin with a letter or '_'"
        )


def _check_value(name: str, value: str) -> None:
    if why := unusable(value):
        raise UsageError(f"the value of {name} {why}; nothing was stored")


def _of_environment(names: tuple[str, ...]) -> dict[str, str]:
    lacking = [name for name in names if not os.environ.get(name)]
    if lacking:
        raise UsageError(f"not set in the environment: {', '.join(lacking)}; nothing was stored")
    return {name: os.environ[name] for name in names}


def _of_json(path: str) -> dict[str, str]:
    try:
        text = piped_text() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{path} can't be read: {reason}") from error
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):  # no exception chain: the error text may quote a value
        if Path(path).name == LOKIS_FILE:
            raise UsageError(
                f"{path} is Loki's vault, which Callboard can't read. Let Loki open it: "
                "loki --get-secret NAME | callboard vault add NAME"
            ) from None
        raise UsageError(f'{path} is not JSON: expected an object of texts, {{"NAME": "value"}}') from None
    if not isinstance(found, dict) or not found:
        raise UsageError(f'{path}: expected an object of texts, {{"NAME": "value"}}')
    for name, value in found.items():
        if not isinstance(value, str):
            raise UsageError(f"in {path} the value of '{name}' is not a text; nothing was stored")
    return found


# --- passphrase -------------------------------------------------------------------------------------------


def _file(vault: Vault, what: str) -> VaultFile:
    if vault.file is None:
        raise UsageError(f"the vault is a command (`vault` in config.yaml): use its own program {what}")
    return vault.file


def _unlock(file: VaultFile, *, no_input: bool) -> None:
    """Ask for the passphrase, if the vault needs one and a terminal can ask."""
    opener = file.opener
    if isinstance(opener, Passphrase) and opener.is_wanted and not no_input and has_terminal():
        opener.set_passphrase(hidden_line(f"Passphrase of the vault {file.path}: "))


def _choose_passphrase(file: VaultFile, *, no_input: bool) -> None:
    """Ask for the passphrase of a new vault, if it needs one."""
    if isinstance(file.opener, Passphrase) and file.opener.is_wanted:
        file.opener.set_passphrase(_new_passphrase(no_input=no_input))


def _new_passphrase(*, no_input: bool) -> str:
    if no_input or not has_terminal():
        raise NobodyToAsk(
            "a new passphrase is needed, and there is no terminal to ask for it: set `passphrase_file` of `vault`"
        )
    chosen = hidden_line("New passphrase of the vault: ")
    if not chosen:
        raise UsageError("a passphrase can't be empty")
    if hidden_line("Repeat the passphrase: ") != chosen:
        raise UsageError("the two passphrases differ; nothing was changed")
    return chosen


def _check_presence(name: str, secrets: dict[str, str], file: VaultFile, *, new: bool) -> None:
    if new and name in secrets:
        raise UsageError(f"the secret {name} exists already; to replace it: callboard vault update {name}")
    if not new and name not in secrets:
        _refuse_missing(name, secrets, file)


def _refuse_missing(name: str, secrets: dict[str, str], file: VaultFile) -> NoReturn:
    hint = did_you_mean(name, secrets) or (f"there are: {', '.join(sorted(secrets))}" if secrets else "it is empty")
    raise NotFound(f"there is no secret '{name}' in {file.path}; {hint}")


def _print_line(text: str) -> None:
    sys.stderr.write(f"callboard: {safe(text)}\n")
