"""A hub and a client for each test; see tests/support/control_fixtures.py."""

from __future__ import annotations

from support.control_fixtures import client, hub, root, served, stage

__all__ = ["client", "hub", "root", "served", "stage"]
