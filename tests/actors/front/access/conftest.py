"""A server with callers for each test; see tests/support/access_server.py."""

from __future__ import annotations

from support.access_server import access_server

__all__ = ["access_server"]
