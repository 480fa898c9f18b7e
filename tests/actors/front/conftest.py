"""A server on loopback for each test; see tests/http_house.py."""

from __future__ import annotations

from http_house import house, serve

__all__ = ["house", "serve"]
