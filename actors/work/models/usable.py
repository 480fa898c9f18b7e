"""The models that can be named: for lists, and to complete names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ....protocol.model_names import models_of
from .catalog import Catalog
from .facts import chats
from .providers import base_of, usable_clients

if TYPE_CHECKING:
    from ....protocol.settings import Settings


def model_names(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    """Models that can be named, as far as they are known: the chosen ones, and of each client those that `config.yaml`
    lists, else those with a price whose names tell of nothing else than chats. Each once.
    """
    chosen = models_of(settings.model) if settings.model else ()
    yield from dict.fromkeys(chosen)
    yield from (name for name in _of_clients(settings, environ) if name not in chosen)


def _of_clients(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    catalog = Catalog(settings, environ)
    for client in usable_clients(settings, environ):
        if client.models:
            yield from (f"{client.name}:{model.name}" for model in client.models if model.type == "chat")
        else:
            yield from (
                f"{client.name}:{name}"
                for name in catalog.prices.finder.known(client, base_of(client, environ))
                if chats(name) and not name.startswith("regional.")  # the table's word for the regions of Bedrock
            )
