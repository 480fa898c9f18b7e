"""`.edit config` and `.edit mcp-config`: who may read what was written."""

from __future__ import annotations

import os

import pytest
from support.chat_person import Scripted

from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.execution import execute_line


@pytest.mark.parametrize(("before", "after"), [(None, 0o600), (0o600, 0o600), (0o640, 0o640), (0o644, 0o644)])
async def test_a_new_file_is_for_its_owner_and_one_that_is_there_keeps_its_mode(
    chat: Chat, person: Scripted, before: int | None, after: int
) -> None:
    file = chat.hub.root.config_dir / "mcp.json"
    if before is not None:
        file.write_text("{}\n")
        file.chmod(before)
    person.edits = ['{"mcpServers": {}}\n']
    mask = os.umask(0)
    try:
        await execute_line(chat, ".edit mcp-config", person)
    finally:
        os.umask(mask)
    assert file.read_text() == '{"mcpServers": {}}\n'
    assert file.stat().st_mode & 0o777 == after
