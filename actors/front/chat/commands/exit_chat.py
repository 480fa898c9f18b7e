"""`.exit`: leave the chat."""

from __future__ import annotations

from ..command_line import ChatLine, command
from .session import leave


@command(".exit", "Leave the chat", usage="[role|session|agent|rag]")
async def _exit(line: ChatLine) -> None:
    if line.rest:
        raise line.misused()
    if line.chat.session is not None:
        await leave(line)
    line.leave = True
