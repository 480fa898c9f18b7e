"""The privileges of root that a sandboxed process keeps.

A process of root keeps what it needs for files of other users, and no more. With the rest it could mount, load modules,
signal processes outside, act as another user, or change the network.
"""

from __future__ import annotations

KEPT = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4}
"""Capabilities that root keeps, with their numbers."""
