"""What the kernel's tests tell actors."""

from __future__ import annotations

from typing import Any

from callboard.supervisors import Message


class Note(Message, frozen=True):
    said: Any
