"""A hub and a client for each test; see tests/support/control_fixtures.py."""

from __future__ import annotations

from support.control_fixtures import agent_runner, client, hub, root, served

__all__ = ["agent_runner", "client", "hub", "root", "served"]
