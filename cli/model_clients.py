"""The clients that can be used, with their models: for lists, and to complete names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..actors.work.models.catalog import Catalog
from ..actors.work.models.providers import BUILT_IN, KEYLESS, READY_MADE, base_of, has_credentials, signs_in
from ..protocol.model_names import models_of
from ..protocol.settings import ClientSettings
from .model_prices import in_short

if TYPE_CHECKING:
    from ..protocol.settings import Settings


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
        for client in usable_clients(settings)
    ]


def usable_clients(settings: Settings) -> list[ClientSettings]:
    """The clients that `config.yaml` has and those that the environment has a key or credentials for."""
    known = [*settings.clients]
    names = {client.name for client in known}
    for name, kind in {**BUILT_IN, **dict.fromkeys(READY_MADE, "openai-compatible")}.items():
        client = ClientSettings(type=kind, name=name)
        if name not in names and has_credentials(client, os.environ, settings.file):
            known.append(client)
    return known


def _signed_in(client: ClientSettings, settings: Settings) -> bool:
    from ..actors.work.models.signed_in import is_signed_in

    return is_signed_in(client, os.environ, settings.file)


def _has_key(client: ClientSettings, file: str) -> bool | None:
    if client.type in KEYLESS or signs_in(client):
        return None
    return has_credentials(client, os.environ, file)


def model_names(settings: Settings) -> Iterator[str]:
    """Models that can be named, as far as they are known: those that `config.yaml` lists, else those with a price."""
    catalog = Catalog(settings, os.environ)
    for client in usable_clients(settings):
        if client.models:
            yield from (f"{client.name}:{model.name}" for model in client.models if model.type == "chat")
        else:
            yield from (
                f"{client.name}:{name}"
                for name in catalog.prices.finder.known(client, base_of(client, os.environ))
                if not name.startswith("regional.")  # the table's word for the regions of Bedrock
            )
