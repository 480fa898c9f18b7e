"""Makers of Vertex AI models by name. The price lookup needs this as well, so the module imports nothing."""

from __future__ import annotations

_MAKERS = {"anthropic": ("claude",), "mistralai": ("mistral", "codestral", "ministral")}
"""Makers by the start of a model name."""


def maker_of(model: str) -> tuple[str, str]:
    """Return the maker of a model, and the maker's name of it. Without a known maker, it is `google`."""
    maker, slash, name = model.removeprefix("publishers/").partition("/")
    if slash and maker not in ("models", "endpoints", "projects"):
        return maker, name.removeprefix("models/")
    return next((maker for maker, begins in _MAKERS.items() if model.startswith(begins)), "google"), model
