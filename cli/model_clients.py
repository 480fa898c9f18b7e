"""The clients that can be used, with their models, for lists."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..actors.work.models.catalog import Catalog
from ..actors.work.models.providers import KEYLESS, has_credentials, signs_in, usable_clients
from ..protocol.model_names import models_of
from .model_prices import in_short

if TYPE_CHECKING:
    from ..protocol.settings import ClientSettings, Settings


def usable(settings: Settings) -> list[dict[str, Any]]:
    """The clients that `config.yaml` has and those that the environment has a key for, with their models.

    Without a list in `config.yaml` a client takes any name; `key` is None where none is needed, `signed_in` where
    there is no sign-in.
    """
    catalog = Catalog(settings, os.environ)
    default = models_of(catalog.choice().model)[0]
    return [
        {
            "client": client.name,
            "type": client.type,
            "models": [
                {"id": f"{client.name}:{each.name}", "type": each.type, **in_short(client, each, catalog.prices.finder)}
                for each in client.models
            ],
            "key": _has_key(client, settings.file),
            "signed_in": _signed_in(client, settings) if signs_in(client) else None,
            "default": default if default.partition(":")[0] == client.name else None,
        }
        for client in usable_clients(settings, os.environ)
    ]


def _signed_in(client: ClientSettings, settings: Settings) -> bool:
    from ..actors.work.models.signed_in import is_signed_in

    return is_signed_in(client, os.environ, settings.file)


def _has_key(client: ClientSettings, file: str) -> bool | None:
    if client.type in KEYLESS or signs_in(client):
        return None
    return has_credentials(client, os.environ, file)
