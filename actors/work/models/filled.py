"""Secrets put into what `config.yaml` says of a client, when the client is about to be used.

`Settings` keep `{{NAME}}` as it was written; what this returns holds values, and goes to the catalog's targets alone.
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
"""Of a client that some other file describes, which can't name secrets of this user."""


def filled(client: ClientSettings, vault: Lookup, file: str, *, but: Collection[str] = ()) -> ClientSettings:
    """The client with the values of its secrets.

    Args:
        file: where it stands, for errors.
        but: keys that stay as they are.

    Raises:
        CredentialsError: a secret is not there.
        NotFetched, ConfigError: as `Vault.get`.
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
    """The value with secrets put into all of its texts; the same object if there are none."""
    if isinstance(value, str):
        return put(value, path) if "{{" in value else value
    if isinstance(value, msgspec.Struct):
        pairs = {key: (old := getattr(value, key), _put(old, f"{path}.{key}", put)) for key in value.__struct_fields__}
        changes = {key: new for key, (old, new) in pairs.items() if new is not old}
        return msgspec.structs.replace(value, **changes) if changes else value
    if isinstance(value, dict):
        told = {key: _put(each, f"{path}.{key}", put) for key, each in value.items()}
        return told if any(told[key] is not value[key] for key in value) else value
    if isinstance(value, list | tuple):
        items = [_put(each, f"{path}[{i}]", put) for i, each in enumerate(value)]
        return type(value)(items) if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value
