"""An interrupt at every step of a line, from the frame that brings it to its end, concerns that line and no other.

A step is one turn of one task: the interrupt comes between two of them, in the order in which they happen to be. How
many there are is counted first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
from support.fake_models import Reply
from support.interrupted_chat import VAIN, Moment, Scene, scene_of

from callboard.protocol.control.caller import LOCAL

NEVER = 1_000_000


class Steps(trio.abc.Instrument):
    """Counts steps, and does something once: behind the one of this number, or when it is told to.

    Attributes:
        taken: steps so far.
        over: set when it was done, or is not to be done any more.
    """

    def __init__(self, at: int, do: Callable[[], object]) -> None:
        self.taken = 0
        self.over = trio.Event()
        self._at = at
        self._do = do

    def act(self) -> None:
        """Do it, unless it is too late."""
        if not self.over.is_set():
            self.over.set()
            self._do()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.taken += 1
        if self.taken == self._at:
            self.act()


@dataclass
class Played:
    """What came of a line that was interrupted at a step.

    Attributes:
        interrupted: what the interrupt was told; None if the line had ended before.
        begun: whether the line had begun then.
        status: how it ended.
        steps: how many there were until then.
    """

    interrupted: bool | None = None
    begun: bool = False
    status: str = ""
    steps: int = 0


async def play(scene: Scene, at: int, reply: Reply, until: Callable[[str, Steps], Awaitable[None]]) -> Played:
    """Have a line interrupted at a step, with another right behind the interrupt, which has to be answered.

    Args:
        until: waits for the last moment at which there is something to interrupt.
    """
    chat, played = scene.chats.open[scene.chat], Played()
    scene.script.clear()
    scene.on("tell me", reply)

    def interrupt() -> None:
        played.begun = chat.busy
        played.interrupted = chat.interrupt()

    steps = Steps(at, interrupt)
    with trio.fail_after(60):
        line = await scene.client.begin("_chat/line", chat=scene.chat, line="tell me")
        if at == 0:
            steps.act()
        trio.lowlevel.add_instrument(steps)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until, line, steps)
            await steps.over.wait()
            played.steps = steps.taken
            trio.lowlevel.remove_instrument(steps)
            nursery.cancel_scope.cancel()
        next = await scene.client.begin("_chat/line", chat=scene.chat, line="go on")
        played.status = (await scene.client.result(line))["status"]
        later = await scene.client.result(next)
    assert (later["status"], later["steered"]) == ("done", False), (at, played, later)
    await _check(scene, at, played)
    return played


async def _check(scene: Scene, at: int, played: Played) -> None:
    """`.undo` knows both prompts; nothing is left, and no provider has refused anything."""
    asked = next(each for each in reversed(scene.models.requests) if "go on" in str(each.json))
    assert await scene.undone() == "Taken back: go on", (at, played)
    if played.begun or played.interrupted is not True:  # a line that has not begun is as if it had never been sent
        told = "Taken back: tell me" if "tell me" in str(asked.json) else VAIN
        assert await scene.undone() == told, (at, played)
    assert not [actor for actor in scene.hub.actors.tree(LOCAL) if actor.run], (at, played)
    assert not scene.refused


async def nowhere(_: Scene) -> None:
    """The line itself is the way to the moment."""


PLACES = ["", ".session", ".session kept"]


@pytest.mark.parametrize("place", PLACES)
async def test_an_interrupt_is_never_lost(tmp_path: Path, place: str) -> None:
    """The model does not answer, so that a line whose interrupt is lost would not end."""
    async with scene_of(tmp_path, "openai", Moment("", "", nowhere)) as scene:
        for line in ("hello", place):
            await scene.line(line)

        async def at(step: int) -> Played:
            reply = Reply(hold=trio.Event())

            async def until(_: str, steps: Steps) -> None:
                await scene.held(reply)
                steps.act()

            return await play(scene, step, reply, until)

        for step in range((await at(NEVER)).steps + 1):
            played = await at(step)
            assert (played.interrupted, played.status) == (True, "cancelled"), step


@pytest.mark.parametrize("place", PLACES)
async def test_an_interrupt_at_the_end_of_a_line_leaves_its_answer_as_a_whole_or_finds_nothing(
    tmp_path: Path, place: str
) -> None:
    async with scene_of(tmp_path, "openai", Moment("", "", nowhere)) as scene:
        for line in ("hello", place):
            await scene.line(line)

        async def at(step: int) -> Played:
            async def until(line: str, steps: Steps) -> None:
                await scene.client.ended(line)
                steps.over.set()

            return await play(scene, step, Reply("so it is"), until)

        for step in range((await at(NEVER)).steps + 1):
            played = await at(step)
            assert played.interrupted or played.status == "done", step
