"""Resolves an agent's model: its `provider`, `name`, `base_url` and `api_key` as a model of the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....protocol.settings import Settings
from .....protocol.workflow.model import AgentConfig
from ....work.models.described import client_of, providers

if TYPE_CHECKING:
    from ....work.context import RunContext

CALLBOARD = "callboard"
"""The provider whose models are agents of ours."""


def known_providers(settings: Settings) -> frozenset[str]:
    """What may stand under `provider` without a `base_url`."""
    return frozenset({CALLBOARD, *providers(settings)})


def model_of(config: AgentConfig, context: RunContext) -> str:
    """The model's id.

    Raises:
        GraphMistake: the provider is unknown.
    """
    client = client_of(
        config.provider, config.base_url, config.api_key, context.settings, context.environ, also=[CALLBOARD]
    )
    provider = config.provider if client is None else context.gateway.catalog.adopt(client)
    return f"{provider}:{config.name}"
