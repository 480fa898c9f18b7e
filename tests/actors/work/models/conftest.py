"""A raw server for each test; see tests/support/raw_servers.py."""

from __future__ import annotations

from support.raw_servers import counting, read_request, serve

__all__ = ["counting", "read_request", "serve"]
