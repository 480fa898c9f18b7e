"""Questions of agents as the server tells them: those of the chat's own runs are shown, whenever they come."""

from __future__ import annotations

import pytest
from support.chat_screen import ScriptedScreen

from callboard.cli.chat.client import ChatClient
from callboard.cli.chat.server_requests import PersonAsked, QuestionNotice
from callboard.protocol.control import method_structs
from callboard.protocol.kernel.questions import Question


@pytest.fixture
def scripted_screen() -> ScriptedScreen:
    return ScriptedScreen()


def asked(id: str, run: str) -> QuestionNotice:
    return QuestionNotice(Question(id=id, actor=f"/{run}/a", run=run, text="Sure?", kind="text"))


def test_one_that_comes_before_its_run_is_known_is_shown_when_that_is(scripted_screen: ScriptedScreen) -> None:
    runs: set[str] = set()

    async def body() -> None:
        person = PersonAsked(
            ChatClient(lambda _: None),
            scripted_screen.screen,
            lambda _text, _style: None,
            lambda _lines: None,
            lambda run: run in runs,
            coloured=False,
        )

        def shown() -> list[str]:
            return [each.question.id for each in scripted_screen.screen.questions.open]

        for id, run in (("q-1", "run-1"), ("q-2", "run-2"), ("q-3", "run-1"), ("q-4", "run-1")):
            person.asked(asked(id, run))
        assert shown() == []
        person.closed(method_structs.Closed(subscription="", question="q-3", by="another"))
        person.only({"q-1", "q-2"})
        runs.add("run-1")
        person.began("run-1")
        assert shown() == ["q-1"]
        person.asked(asked("q-1", "run-1"))
        person.began("run-1")
        assert shown() == ["q-1"]
        person.asked(asked("q-5", "run-1"))
        assert shown() == ["q-1", "q-5"]

    scripted_screen.play(body)
