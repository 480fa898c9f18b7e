"""A key that was typed: it is kept in the vault, and shown nowhere."""

from __future__ import annotations

from ...actors.io.vault.openers import Passphrase
from ...protocol.errors import CallboardError
from ..vault_opening import vault_of
from .asking import Asker


def hidden_in(text: str, key: str) -> str:
    """A text without the key."""
    return text.replace(key, "[redacted]") if key else text


def vault_works(config_dir: str, name: str, asker: Asker) -> bool:
    """Whether a key of this name can be kept in the vault; says why not."""
    from importlib.util import find_spec

    if find_spec("pyrage") is None:
        asker.say("  (the encrypted vault needs one package more: pip install 'callboard[vault]')")
        return False
    try:
        file = vault_of(config_dir).file
        if file is None or (isinstance(file.opener, Passphrase) and file.opener.is_wanted):
            asker.say(f"  (your vault is opened in a way of its own: callboard vault add {name} puts it there later)")
            return False
        file.read()
    except CallboardError as error:
        asker.say(f"  (the vault can't be opened: {error})")
        return False
    return True


def vault_has(config_dir: str, name: str) -> bool:
    """Whether a secret of this name is in the vault, which works."""
    file = vault_of(config_dir).file
    return file is not None and name in file.read()


def keep_in_vault(name: str, value: str, config_dir: str) -> None:
    """Keep it, in the place of what has that name.

    Raises:
        CallboardError: it can't be written.
    """
    file = vault_of(config_dir).file
    assert file is not None  # `vault_works` has seen it

    def edit(secrets: dict[str, str]) -> None:
        secrets[name] = value

    file.change(edit)
