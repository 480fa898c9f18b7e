"""API key typed by the user: stored in the vault, and never printed."""

from __future__ import annotations

from ...actors.io.vault.keys import Passphrase
from ...protocol.errors import CallboardError
from ...supervisors.installation import install_command
from ..vault_passphrase import vault_of
from .prompts import Asker


def hidden_in(text: str, key: str) -> str:
    """Remove the key from a text."""
    return text.replace(key, "[redacted]") if key else text


def vault_works(config_dir: str, name: str, asker: Asker) -> bool:
    """Return True if a key of this name can be stored in the vault; otherwise print the reason."""
    from importlib.util import find_spec

    if find_spec("pyrage") is None:
        asker.say(f"  (the encrypted vault needs an extra: {install_command('vault')})")
        return False
    try:
        file = vault_of(config_dir).file
        if file is None or (isinstance(file.opener, Passphrase) and file.opener.is_wanted):
            asker.say(
                "  (your vault needs a passphrase or a command; to store the key there later: "
                f"callboard vault add {name})"
            )
            return False
        file.read()
    except CallboardError as error:
        asker.say(f"  (the vault can't be opened: {error})")
        return False
    return True


def vault_has(config_dir: str, name: str) -> bool:
    """Return True if the vault, which must be usable, has a secret of this name."""
    file = vault_of(config_dir).file
    return file is not None and name in file.read()


def keep_in_vault(name: str, value: str, config_dir: str) -> None:
    """Store a secret, replacing one of the same name.

    Raises:
        CallboardError: the vault can't be written.
    """
    file = vault_of(config_dir).file
    assert file is not None  # `vault_works` has checked it

    def edit(secrets: dict[str, str]) -> None:
        secrets[name] = value

    file.change(edit)
