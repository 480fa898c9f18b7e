"""Interpolation of secrets into the settings of a client, directly before its use.

`Settings` keep the text `{{NAME}}`. Only the catalog's targets receive the values, so that settings can be printed and
logged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from ....protocol.errors import CredentialsError
from ....protocol.references import with_secrets
from ....protocol.settings import ClientSettings
from ...io.vault.lookups import Lookup

_NAMES = ("type", "name")
OF_ITS_FILE = ("api_key", "api_base")
"""Keys without interpolation in a client of a definition file, which must not refer to the user's secrets."""


def filled(client: ClientSettings, vault: Lookup, file: str, *, but: Collection[str] = ()) -> ClientSettings:
    """Return the client with the values of its secrets.

    Args:
        file: path of the settings, for errors.
        but: keys that are not changed.

    Raises:
        CredentialsError: a secret is missing.
        NotFetched, ConfigError: the same as in `Vault.get`.
    """
    lacking: dict[str, str] = {}

    def put(text: str, path: str) -> str:
        def missing(name: str) -> None:
            lacking.setdefault(name, path)

        return with_secrets(text, vault, missing)

    changes = {
        key: value
        for key in client.__struct_fields__
        if key not in _NAMES and key not in but and (value := _put(old := getattr(client, key), key, put)) is not old
    }
    for name, path in lacking.items():
        raise CredentialsError(
            f"client '{client.name}' in {file}: `{path}` needs {{{{{name}}}}}, {vault.why_missing(name)}"
        )
    return msgspec.structs.replace(client, **changes) if changes else client


def _put(value: Any, path: str, put: Callable[[str, str], str]) -> Any:
    """Return the value with secrets in all of its texts; the same object if there are none."""
    if isinstance(value, str):
        return put(value, path) if "{{" in value else value
    if isinstance(value, msgspec.Struct):
        pairs = {key: (old := getattr(value, key), _put(old, f"{path}.{key}", put)) for key in value.__struct_fields__}
        changes = {key: new for key, (old, new) in pairs.items() if new is not old}
        return msgspec.structs.replace(value, **changes) if changes else value
    if isinstance(value, dict):
        filled = {key: _put(each, f"{path}.{key}", put) for key, each in value.items()}
        return filled if any(filled[key] is not value[key] for key in value) else value
    if isinstance(value, list | tuple):
        items = [_put(each, f"{path}[{i}]", put) for i, each in enumerate(value)]
        return type(value)(items) if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value
