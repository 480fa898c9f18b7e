"""`.set`: nonsense is refused, and nothing that is taken keeps clients from being told how the chat is."""

from __future__ import annotations

from contextlib import suppress

import pytest
from support.chat_person import Scripted

from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.execution import execute_line
from callboard.actors.front.chat.options import KEYS
from callboard.protocol.control.chat import Changed
from callboard.protocol.errors import ConfigError, UsageError
from callboard.protocol.jsonrpc import encode_notification

NONSENSE = (
    *("nan", "inf", "-inf", "-1", "1e400", "0x10", "9" * 16, "9" * 30, "9" * 5000, "-" + "9" * 30),
    *("\0", "[]", "{{x}}", "é" * 1000, "x" * 200_000, "true", "a b", "\x1b[2J", ","),
)


@pytest.mark.parametrize("scoped", [False, True], ids=["chat", "session"])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.sample(12)
async def test_no_value_breaks_a_chat(chat: Chat, person: Scripted, key: str, *, scoped: bool) -> None:
    if scoped:
        await execute_line(chat, ".session", person)
    for value in NONSENSE:
        with suppress(UsageError, ConfigError):
            await execute_line(chat, f".set {key} {value}", person)
        frame = encode_notification("_chat/changed", Changed(chat=chat.info()))
        assert len(frame) < 128 * 1024
