"""Trust of a directory is asked in the chat, once, with what would be loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fake_models import FakeModels
from support.program_window import Window
from support.talking import start

RULE = "Always answer in Danish."


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that a user has just cloned."""
    found = tmp_path / "cloned"
    (found / ".git").mkdir(parents=True)
    (found / "AGENTS.md").write_text(RULE)
    (found / ".mcp.json").write_text('{"mcpServers": {"docs": {"command": "no-such-server", "args": ["-y"]}}}')
    (found / ".claude").mkdir()
    hook = '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "make lint"}]}]}}'
    (found / ".claude" / "settings.json").write_text(hook)
    monkeypatch.chdir(found)
    return found


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize(
    ("key", "told", "asked_again"),
    [("1", True, False), ("2", False, False), ("3", False, True)],
    ids=["yes", "no", "later"],
)
async def test_a_chat_asks_once_with_what_would_be_loaded(
    window: Window, fake_model: FakeModels, tmp_path: Path, key: str, told: bool, asked_again: bool
) -> None:
    start(window, fake_model, tmp_path)
    await window.shows("3. Not now")
    text = "\n".join(window.lines())
    assert "AGENTS.md" in text
    assert "docs: no-such-server -y" in text
    assert "make lint" in text
    window.press(key, "Enter")
    await window.gone("3. Not now")
    window.press("hi", "Enter")
    await fake_model.arrived(1)
    assert (RULE in str(fake_model.requests[0].json)) == told
    await window.until(lambda lines: any(line == "ok" for line in lines))
    assert "not trusted" not in "\n".join(window.lines())
    assert await window.leave() == 0
    second = Window()
    try:
        start(second, fake_model, tmp_path)
        await second.shows(".help lists commands")
        if asked_again:
            await second.shows("3. Not now")
            second.press("C-c")
            await second.gone("3. Not now")
        else:
            second.press(".cost", "Enter")
            await second.shows("chat  $0")
            assert "Load them?" not in "\n".join(second.lines())
        assert await second.leave() == 0
    finally:
        second.close()
