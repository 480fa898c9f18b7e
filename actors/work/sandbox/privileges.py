"""The privileges of root that a held process keeps.

A process of root keeps what it needs for files of other users (as in a container), and no more: with the rest it could
mount, load modules, look into other processes, or change the network.
"""

from __future__ import annotations

KEPT = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7}
"""Capabilities that root keeps, with their numbers."""
