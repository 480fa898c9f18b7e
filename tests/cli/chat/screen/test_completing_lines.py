"""Tab in the input line while completions are loading."""

from __future__ import annotations

from support.chat_screen import ScriptedScreen

from callboard.cli.chat.screen.threaded import WaitingHandler
from callboard.protocol.control import chat


def test_tab_pressed_together_with_the_text_completes_it() -> None:
    scripted_screen = ScriptedScreen()
    scripted_screen.person.offered = [".session bridges"]

    async def body() -> None:
        await scripted_screen.press(".session br\t", lambda: scripted_screen.line == ".session bridges")

    scripted_screen.play(body)


def test_tab_pressed_while_a_list_is_loading_completes_when_it_has_arrived() -> None:
    scripted_screen = ScriptedScreen()
    scripted_screen.person.offered = [".session bridges-one", ".session bridges-two"]

    async def body() -> None:
        scripted_screen.person.completes.clear()
        await scripted_screen.press(".session b", lambda: scripted_screen.person.completing)
        await scripted_screen.press("r\t", lambda: scripted_screen.line.endswith("br"))
        scripted_screen.person.completes.set()
        await scripted_screen.until(lambda: scripted_screen.line == ".session bridges-")
        assert scripted_screen.person.completing[-1] == ".session br"

    scripted_screen.play(body)


def test_tab_is_dropped_when_the_text_has_changed_before_the_list_arrives() -> None:
    scripted_screen = ScriptedScreen()
    scripted_screen.person.offered = [".session bridges", ".role pirate"]

    async def body() -> None:
        scripted_screen.person.completes.clear()
        await scripted_screen.press(".session b\t", lambda: scripted_screen.person.completing)
        await scripted_screen.press("\x15.role pi", lambda: scripted_screen.line == ".role pi")
        scripted_screen.person.completes.set()
        await scripted_screen.press("\t", lambda: scripted_screen.line == ".role pirate")

    scripted_screen.play(body)


def test_tab_pressed_before_the_conversation_is_there_completes_when_it_is() -> None:
    scripted_screen = ScriptedScreen()
    scripted_screen.person.offered = [".session bridges"]

    asked, answered = list[str](), list[object]()

    class Opening(WaitingHandler):
        async def complete(self, text: str) -> list[chat.Completion]:
            asked.append(text)
            found = await super().complete(text)
            answered.append(found)
            return found

    async def body() -> None:
        scripted_screen.screen.handler = waiting = Opening()
        await scripted_screen.press(".session br\t", lambda: asked)
        assert answered == [], "an empty list would end the completion"
        scripted_screen.screen.handler = scripted_screen.person
        waiting.hand_over(scripted_screen.person)
        await scripted_screen.until(lambda: scripted_screen.line == ".session bridges")

    scripted_screen.play(body)
