"""The tool get_current_time."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from ..tool import Arguments
from .allowed_paths import Setting

if TYPE_CHECKING:
    from .....supervisors import Actor


async def get_current_time(_me: Actor, _setting: Setting, _arguments: Arguments) -> str:
    """Return the time in a form for users and models: `Friday 2025-10-24 17:55:04 MDT (UTC-06:00)`."""
    now = datetime.now().astimezone()
    offset = now.strftime("%z")
    return now.strftime(f"%A %Y-%m-%d %H:%M:%S %Z (UTC{offset[:3]}:{offset[3:]})")
