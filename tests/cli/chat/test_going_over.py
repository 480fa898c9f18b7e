"""`.attach CHAT` at a terminal: it goes over to another conversation, and the one that it leaves stays open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from support.control_hub import Client
from support.fake_models import FakeModels, Reply
from support.program_window import Window
from support.serving_beside import begun, connected
from support.waiting import PATIENCE


@pytest.fixture
async def there(wide: Window, fake_model: FakeModels, tmp_path: Path) -> AsyncIterator[tuple[Client, str]]:
    """A client of the server that a conversation in the window `wide` has, and the id of its chat."""
    url, token, chat = await begun(wide, fake_model, tmp_path)
    async with connected(url, token) as client:
        yield client, chat


async def opened(client: Client, *prompts: str) -> str:
    """A chat of the client's in which these were asked."""
    chat: str = (await client.result("_chat/open"))["chat"]["chat"]
    for prompt in prompts:
        await client.result("_chat/line", chat=chat, line=prompt)
    return chat


def behind(text: str, lines: list[str]) -> list[str]:
    """The lines behind the last in which this stands."""
    return lines[max((at for at, line in enumerate(lines) if text in line), default=len(lines)) :]


def in_order(*texts: str) -> Callable[[list[str]], bool]:
    """Whether these stand below each other in the chat that was gone over to, each once."""

    def seen(lines: list[str]) -> bool:
        below = behind("to go back:", lines)
        return [text for line in below for text in texts if text in line] == list(texts)

    return seen


async def test_it_shows_what_was_said_there_in_order_and_goes_back(
    wide: Window, there: tuple[Client, str], fake_model: FakeModels
) -> None:
    client, mine = there
    fake_model.script("Answer one.", "Answer two.", "Answer three.", "My own answer.", "Answer four.")
    other = await opened(client, "ask one", "ask two", "ask three")
    wide.press("mine", "Enter")
    await wide.shows("My own answer.")
    wide.press(".attach", "Enter")
    await wide.shows(f"{other}  idle")
    wide.press(f".attach {other.removeprefix('chat-')[:6]}", "Enter")
    await wide.until(in_order("ask one", "Answer one.", "ask two", "Answer two.", "ask three", "Answer three."))
    wide.press("ask four", "Enter")
    await wide.shows("Answer four.")
    assert "ask three" in str(fake_model.requests[-1].json["messages"])
    wide.press(f".attach {mine}", "Enter")
    await wide.until(lambda lines: "My own answer." in "\n".join(behind(f"now in {mine}", lines)))
    listed: list[dict[str, Any]] = (await client.result("_chat/list"))["chats"]
    assert {each["chat"] for each in listed} == {mine, other}
    assert await wide.leave() == 0


async def test_a_run_that_is_under_way_goes_on_where_it_is_and_tells_nothing_here(
    wide: Window, there: tuple[Client, str], fake_model: FakeModels
) -> None:
    client, mine = there
    hold = trio.Event()
    fake_model.script("Answer one.", Reply("The long answer.", hold=hold), "Answer two.")
    other = await opened(client, "ask one")
    wide.press("think long", "Enter")
    await fake_model.arrived(2)
    wide.press(f".attach {other}", "Enter")
    await wide.shows("Answer one.")
    wide.press("ask two", "Enter")
    await wide.shows("Answer two.")
    hold.set()
    with trio.fail_after(PATIENCE):
        while (await client.result("_chat/get", chat=mine))["chat"]["run"] is not None:
            await trio.sleep(0.02)
    assert "The long answer." not in "\n".join(wide.lines())
    wide.press(f".attach {mine}", "Enter")
    await wide.shows("The long answer.")
