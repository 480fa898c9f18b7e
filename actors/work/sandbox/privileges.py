"""Capabilities of root that a sandboxed process retains.

A process of root retains the capabilities for files of other users, and no others. With the rest it could mount, load
modules, signal outside processes, act as another user, or change the network. It could also change a setuid file
without clearing that bit (FSETID).
"""

from __future__ import annotations

KEPT = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3}
"""Names and numbers of the capabilities that root retains."""
