"""Tab in the input line while completions are loading."""

from __future__ import annotations

from support.chat_screen import ChatStage

from callboard.cli.chat.screen.threaded import WaitingHandler
from callboard.protocol.control import chat


def test_tab_pressed_together_with_the_text_completes_it() -> None:
    stage = ChatStage()
    stage.person.offered = [".session bridges"]

    async def body() -> None:
        await stage.press(".session br\t", lambda: stage.line == ".session bridges")

    stage.play(body)


def test_tab_pressed_while_a_list_is_loading_completes_when_it_has_arrived() -> None:
    stage = ChatStage()
    stage.person.offered = [".session bridges-one", ".session bridges-two"]

    async def body() -> None:
        stage.person.completes.clear()
        await stage.press(".session b", lambda: stage.person.completing)
        await stage.press("r\t", lambda: stage.line.endswith("br"))
        stage.person.completes.set()
        await stage.until(lambda: stage.line == ".session bridges-")
        assert stage.person.completing[-1] == ".session br"

    stage.play(body)


def test_tab_is_dropped_when_the_text_has_changed_before_the_list_arrives() -> None:
    stage = ChatStage()
    stage.person.offered = [".session bridges", ".role pirate"]

    async def body() -> None:
        stage.person.completes.clear()
        await stage.press(".session b\t", lambda: stage.person.completing)
        await stage.press("\x15.role pi", lambda: stage.line == ".role pi")
        stage.person.completes.set()
        await stage.press("\t", lambda: stage.line == ".role pirate")

    stage.play(body)


def test_tab_pressed_before_the_conversation_is_there_completes_when_it_is() -> None:
    stage = ChatStage()
    stage.person.offered = [".session bridges"]

    asked, answered = list[str](), list[object]()

    class Opening(WaitingHandler):
        async def complete(self, text: str) -> list[chat.Completion]:
            asked.append(text)
            found = await super().complete(text)
            answered.append(found)
            return found

    async def body() -> None:
        stage.screen.handler = waiting = Opening()
        await stage.press(".session br\t", lambda: asked)
        assert answered == [], "an empty list would end the completion"
        stage.screen.handler = stage.person
        waiting.hand_over(stage.person)
        await stage.until(lambda: stage.line == ".session bridges")

    stage.play(body)
