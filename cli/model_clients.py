"""The clients that can be used, with their models: for lists, and to complete names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..actors.work.models.catalog import Catalog
from ..actors.work.models.providers import BUILT_IN, READY_MADE, base_of, key_variables, signs_in
from ..protocol.model_names import models_of
from ..protocol.settings import ClientSettings
from .model_prices import in_short

if TYPE_CHECKING:
    from ..protocol.settings import Settings


def usable(settings: Settings) -> list[dict[str, Any]]:
    """The clients that `config.yaml` has and those that the environment has a key for, with their models.

    Without a list in `config.yaml` a client takes any name; `key` is None where none is needed, `signed_in` where
    nobody signs in.
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
            "key": _has_key(client, key_variables(client)),
            "signed_in": _signed_in(client, settings) if signs_in(client) else None,
            "default": default if default.partition(":")[0] == client.name else None,
        }
        for client in usable_clients(settings)
    ]


def usable_clients(settings: Settings) -> list[ClientSettings]:
    """The clients that `config.yaml` has and those that the environment has a key for."""
    known = [*settings.clients]
    names = {client.name for client in known}
    for name, kind in {**BUILT_IN, **dict.fromkeys(READY_MADE, "openai-compatible")}.items():
        client = ClientSettings(type=kind, name=name)
        if name not in names and any(os.environ.get(variable) for variable in key_variables(client)):
            known.append(client)
    return known


def _signed_in(client: ClientSettings, settings: Settings) -> bool:
    from ..actors.work.models.signed_in import is_signed_in

    return is_signed_in(client, os.environ, settings.file)


def _has_key(client: ClientSettings, variables: list[str]) -> bool | None:
    if client.type in ("ollama", "local") or signs_in(client):
        return None
    return bool(client.api_key or client.access_key_id) or any(os.environ.get(name) for name in variables)


def model_names(settings: Settings) -> Iterator[str]:
    """Models that can be named, as far as they are known: those that `config.yaml` lists, else those with a price."""
    catalog = Catalog(settings, os.environ)
    for client in usable_clients(settings):
        if client.models:
            yield from (f"{client.name}:{model.name}" for model in client.models if model.type == "chat")
        else:
            yield from (
                f"{client.name}:{name}" for name in catalog.prices.finder.known(client, base_of(client, os.environ))
            )
