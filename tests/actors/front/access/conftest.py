"""A server with callers for each test; see tests/access_town.py."""

from __future__ import annotations

from access_town import town

__all__ = ["town"]
