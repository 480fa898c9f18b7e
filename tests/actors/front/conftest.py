"""A server on loopback for each test; see tests/support/http_server.py."""

from __future__ import annotations

from support.http_server import api_server, serve

__all__ = ["api_server", "serve"]
