"""Editors that cancel at the wrong moment, never answer, say things twice, say too much, or vanish."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from support.editors import Editor, editor, editors
from support.fake_models import FakeModels, Reply
from support.waiting import until

from callboard.actors.front.acp.agent import ask
from callboard.actors.front.control.hub import Hub
from callboard.protocol.control.caller import LOCAL

__all__ = ["editor", "editors"]

WRITE = ("fs_write", {"path": "a.txt", "contents": "x"})
LOST = "f" * 32


async def asked(editor: Editor, fake_model: FakeModels, tmp_path: object) -> tuple[str, int]:
    """A session, and the id of its prompt, which waits for a permission."""
    session = await editor.new(cwd=str(tmp_path))
    editor.answers["session/request_permission"] = lambda _: None
    fake_model.script(Reply(calls=[WRITE]))
    prompt = await editor.speak(session, "go")
    await editor.until(lambda: editor.asked)
    return session, prompt


async def over(hub: Hub) -> None:
    """Nothing is left of any run."""
    await until(lambda: not hub.under_way)
    assert hub.questions(LOCAL) == []
    await until(lambda: not [each for each in hub.actors.tree(LOCAL) if each.path.startswith("/run-")])


async def test_a_cancel_while_a_permission_is_open_ends_both(
    editor: Editor, hub: Hub, fake_model: FakeModels, tmp_path: object
) -> None:
    session, prompt = await asked(editor, fake_model, tmp_path)
    await editor.tell("session/cancel", sessionId=session)
    assert await editor.end(prompt, good=True) == {"stopReason": "cancelled"}
    await editor.until(lambda: editor.withdrawn)
    assert editor.withdrawn == [editor.asked[0]["id"]]
    await over(hub)
    late = {"outcome": {"outcome": "selected", "optionId": "yes"}}
    editor.answers["session/request_permission"] = lambda _: late
    fake_model.script("fine")
    assert await editor.say(session, "again") == {"stopReason": "end_turn"}


async def test_a_permission_that_is_answered_and_cancelled_at_once_answers_the_prompt_once(
    editor: Editor, hub: Hub, fake_model: FakeModels, tmp_path: object
) -> None:
    session, prompt = await asked(editor, fake_model, tmp_path)
    id = editor.asked[0]["id"]
    result = {"outcome": {"outcome": "cancelled"}}
    await editor.tell("session/cancel", sessionId=session)
    for _ in range(2):
        await editor.reply(id, result)
    assert await editor.end(prompt, good=True) == {"stopReason": "cancelled"}
    await over(hub)


@pytest.mark.parametrize(
    "answer", [{}, {"outcome": None}, {"outcome": {"outcome": "selected", "optionId": "sudo"}}, [], "yes", 3]
)
async def test_an_answer_that_is_none_allows_nothing(
    editor: Editor, hub: Hub, fake_model: FakeModels, tmp_path: object, answer: object
) -> None:
    _, prompt = await asked(editor, fake_model, tmp_path)
    await editor.reply(editor.asked[0]["id"], answer)
    assert await editor.end(prompt, good=True) == {"stopReason": "cancelled"}
    await over(hub)
    assert not list(hub.root.config_dir.parent.glob("**/a.txt"))


async def test_an_editor_that_vanishes_while_it_is_asked_leaves_nothing(
    editor: Editor, hub: Hub, fake_model: FakeModels, tmp_path: object
) -> None:
    await asked(editor, fake_model, tmp_path)
    editor.peer.close()
    await over(hub)
    assert [run.status for run in hub.list(LOCAL)] == ["cancelled"]


async def test_of_two_prompts_at_once_the_second_is_refused_and_the_first_goes_on(
    editor: Editor, hub: Hub, fake_model: FakeModels
) -> None:
    session = await editor.new()
    hold = trio.Event()
    fake_model.script(Reply(text="first", hold=hold))
    first = await editor.speak(session, "one")
    await fake_model.arrived(1)
    second = await editor.speak(session, "two")
    assert (await editor.end(second))["error"]["code"] == -32009
    hold.set()
    assert await editor.end(first, good=True) == {"stopReason": "end_turn"}
    assert editor.text() == "first"
    assert len(hub.list(LOCAL)) == 1


async def test_a_cancel_right_behind_its_prompt_is_not_lost(editor: Editor, hub: Hub, fake_model: FakeModels) -> None:
    session = await editor.new()
    fake_model.answer_with(lambda _: Reply(hold=trio.Event()))
    for _ in range(5):
        prompt = await editor.speak(session, "go")
        await editor.tell("session/cancel", sessionId=session)
        assert await editor.end(prompt, good=True) == {"stopReason": "cancelled"}
    await over(hub)
    fake_model.answer_with(lambda _: "fine")
    assert await editor.say(session, "again") == {"stopReason": "end_turn"}


async def test_a_prompt_that_waits_for_another_editors_turn_can_be_cancelled(
    editor: Editor, editors: Callable[..., Editor], hub: Hub, fake_model: FakeModels
) -> None:
    session = await editor.new()
    hold = trio.Event()
    fake_model.script(Reply(text="first", hold=hold))
    first = await editor.speak(session, "one")
    await fake_model.arrived(1)
    other = editors()
    await other.call("session/resume", sessionId=session, cwd="/tmp", mcpServers=[])
    second = await other.speak(session, "two")
    await trio.testing.wait_all_tasks_blocked(0.01)
    await other.tell("session/cancel", sessionId=session)
    assert await other.end(second, good=True) == {"stopReason": "cancelled"}
    hold.set()
    assert await editor.end(first, good=True) == {"stopReason": "end_turn"}
    assert len(fake_model.requests) == 1
    await over(hub)


async def test_a_session_that_is_closed_in_a_prompt_ends_it_and_one_at_work_is_not_deleted(
    editor: Editor, hub: Hub, fake_model: FakeModels
) -> None:
    session = await editor.new()
    fake_model.script(Reply(hold=trio.Event()))
    prompt = await editor.speak(session, "go")
    await fake_model.arrived(1)
    assert await editor.refused("session/delete", sessionId=session) == -32009
    await editor.call("session/close", sessionId=session)
    assert await editor.end(prompt, good=True) == {"stopReason": "cancelled"}
    await over(hub)
    await editor.call("session/delete", sessionId=session)


async def test_what_names_no_session_is_not_found_and_a_cancel_of_it_is_nothing(editor: Editor) -> None:
    known = await editor.new()
    for id in (LOST, "", "../../etc/passwd", "\0", "x" * 500):
        words = [{"type": "text", "text": "x"}]
        assert await editor.refused("session/prompt", sessionId=id, prompt=words) == -32004
        for method in ("session/load", "session/resume"):
            assert await editor.refused(method, sessionId=id, cwd="/tmp", mcpServers=[]) == -32004
        for method in ("session/close", "session/delete"):
            assert await editor.refused(method, sessionId=id) == -32004
        assert await editor.refused("session/set_mode", sessionId=id, modeId="ask") == -32004
        await editor.tell("session/cancel", sessionId=id)
    assert await editor.refused("session/close", sessionId="x" * 100_000) == -32602
    await editor.tell("session/cancel", session=3)
    await editor.tell("session/cancel", sessionId=known)  # nothing is under way
    assert await editor.say(known, "hi") == {"stopReason": "end_turn"}


async def test_a_very_large_prompt_is_taken_whole(editor: Editor, fake_model: FakeModels) -> None:
    session = await editor.new()
    words = "much to say " * 100_000
    assert await editor.say(session, words) == {"stopReason": "end_turn"}
    assert len(fake_model.requests[0].prompt) == len(words)
    assert len(editor.of("session_info_update")[0]["title"]) < 200


async def test_a_session_that_is_closed_while_it_is_replayed_is_no_crash(
    editor: Editor, fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await editor.new()
    fake_model.script("fine")
    await editor.say(session, "go")
    closing: list[int] = []
    real = editor.peer.notify

    async def notify(method: str, params: Any) -> None:
        await real(method, params)
        if not closing:
            closing.append(await editor.begin("session/close", sessionId=session))
            await editor.end(closing[0], good=True)

    monkeypatch.setattr(editor.peer, "notify", notify)
    told = await editor.call("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
    assert closing
    assert "modes" in told
    assert await editor.refused("session/set_mode", sessionId=session, modeId="ask") == -32004


async def test_a_question_without_a_text_is_asked_as_any_other(editor: Editor) -> None:
    chosen = {"outcome": {"outcome": "selected", "optionId": "no"}}
    editor.answers["session/request_permission"] = lambda _: chosen
    question = {"id": "q-1", "actor": "/run-1/a", "text": "", "kind": "confirm", "options": ["yes", "no"]}
    assert await ask(editor.peer, await editor.new(), question, forms=False) == "no"
