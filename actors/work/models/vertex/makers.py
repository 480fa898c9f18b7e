"""Who made a model of Vertex AI, by its name. Prices ask, too, so this imports nothing."""

from __future__ import annotations

_MAKERS = {"anthropic": ("claude",), "mistralai": ("mistral", "codestral", "ministral")}
"""Makers of models that are known by how their names begin."""


def maker_of(model: str) -> tuple[str, str]:
    """Who made a model, and what its maker calls it."""
    maker, slash, name = model.removeprefix("publishers/").partition("/")
    if slash and maker not in ("models", "endpoints", "projects"):
        return maker, name.removeprefix("models/")
    return next((maker for maker, begins in _MAKERS.items() if model.startswith(begins)), "google"), model
