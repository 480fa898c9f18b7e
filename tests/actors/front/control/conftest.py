"""A hub and a client for each test; see tests/control_fixtures.py."""

from __future__ import annotations

from control_fixtures import client, frames, hub, root, served, stage

__all__ = ["client", "frames", "hub", "root", "served", "stage"]
