"""Names that can't be one: a clear error, short, without what would move a terminal's cursor."""

from __future__ import annotations

import pytest
from support.chat_person import Scripted

from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.execution import execute_line
from callboard.protocol.errors import CallboardError, UsageError

NAMES = {
    "long": "a" * 300,
    "very long": "a" * 1_000_000,
    "zero": "a\0b",
    "escape": "a\x1bb",
    "path": "./" + "b" * 300,
    "home": "~nobody-here/x",
}
BEFORE = [".set ", ".set temperature ", ".role ", ".model ", ".macro ", ".agent ", ".attach ", ".rag ", ".list "]


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.sample(18)
async def test_a_name_that_can_be_none_is_told_short_and_without_control_characters(
    chat: Chat, before: str, name: str
) -> None:
    person = Scripted(None, None)
    person.edits = [None]
    with pytest.raises(CallboardError) as refused:
        await execute_line(chat, f"{before}{name}" + (" 1" if before == ".set " else ""), person)
    assert len(str(refused.value)) < 1000
    assert str(refused.value).replace("\n", " ").isprintable()


@pytest.mark.parametrize("name", ["a" * 5000, "a" * 5000 + ".png", "~nobody-here/x.png", "a\0b.png"])
async def test_a_file_that_can_be_none_is_told(chat: Chat, person: Scripted, name: str) -> None:
    with pytest.raises(UsageError) as refused:
        await execute_line(chat, f".file {name}", person)
    assert len(str(refused.value)) < 1000


async def test_a_key_that_is_nearly_right_is_named(chat: Chat, person: Scripted) -> None:
    with pytest.raises(UsageError, match="Unknown key 'temprature'; did you mean 'temperature'"):
        await execute_line(chat, ".set temprature 1", person)
