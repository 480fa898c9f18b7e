"""Random conversations on the kernel: people write to them, calls and agents are cancelled, models fail.

A model is a script: what it says, how long that takes, what it calls. Where its calls need the id of a child or of a
task, it takes one that it was told. Whatever happens, the messages of every agent lead to the same effects again
(`tapes`), and no history that a model reads has a call without its result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from support.second_decider import twins
from trio.testing import MockClock

import callboard
from callboard.actors.work.models.gateway import Gateway
from callboard.protocol.chat import AssistantTurn, ChatReply, ChatRequest, TextDelta, TokenUsage, ToolCall, ToolTurn
from callboard.protocol.errors import ModelError
from callboard.protocol.events import Event
from callboard.protocol.messages import PersonSays
from callboard.supervisors.introspection import find

LENGTHS = pytest.mark.parametrize("examples", [50, pytest.param(500, marks=pytest.mark.soak)])


class Step(NamedTuple):
    """One reply of a model: its words, the seconds it takes, what it calls; or that it fails half-way."""

    text: str
    seconds: int
    calls: tuple[tuple[str, Any], ...]
    fails: bool


class Disturbance(NamedTuple):
    """What happens at a moment (half seconds are never a model's or a tool's own): see `_disturb`."""

    second: int
    what: str


async def wait(seconds: int) -> str:
    """Takes its time."""
    await trio.sleep(seconds)
    return f"waited {seconds} s"


async def fail(why: str) -> str:
    """Fails."""
    raise ValueError(why)


async def read(much: int) -> str:
    """Has much to say."""
    return "what is to be read, " * much


TOOLS = [wait, fail, read]
ID, TASK = "<the last child>", "<the last task>"
CALLS: list[tuple[str, Any]] = [
    ("wait", {"seconds": 0}),
    ("wait", {"seconds": 2}),
    ("wait", {"seconds": "long"}),
    ("wait", '{"seconds": '),
    ("fail", {"why": "no luck"}),
    ("read", {"much": 600}),
    ("nowhere", {}),
    ("todo__init", {"goal": "all of it"}),
    ("todo__add", {"task": "one"}),
    ("todo__done", {"id": 1}),
    ("todo__list", {}),
    ("todo__clear", {}),
    ("agent__spawn", {"agent": "helper", "prompt": "help"}),
    ("agent__spawn", {"agent": "helper", "prompt": "help", "timeout": 1}),
    ("agent__spawn", {"agent": "helper", "prompt": "help", "task_id": TASK}),
    ("agent__spawn", {"agent": "stranger", "prompt": "help"}),
    ("agent__check", {"id": ID}),
    ("agent__collect", {"id": ID}),
    ("agent__cancel", {"id": ID}),
    ("agent__list", {}),
    ("agent__send_message", {"id": ID, "message": "how is it?"}),
    ("agent__send_message", {"id": "parent", "message": "well"}),
    ("agent__check_inbox", {}),
    ("agent__task_create", {"subject": "a", "agent": "helper", "prompt": "do it"}),
    ("agent__task_create", {"subject": "b", "blocked_by": [TASK]}),
    ("agent__task_list", {}),
    ("agent__task_complete", {"task_id": TASK}),
    ("agent__task_fail", {"task_id": TASK, "reason": "too hard"}),
    ("user__ask", {"question": "which?", "options": ["this", "that"]}),
]

OFTEN = [call for call in CALLS if call[0] in {"agent__spawn", "agent__collect", "todo__add", "read"}]
"""What much else depends on."""

STEPS = st.builds(
    Step,
    text=st.sampled_from(["", "so", "a longer word about it, " * 5]),
    seconds=st.integers(0, 3),
    calls=st.lists(st.sampled_from(CALLS + 2 * OFTEN), min_size=1, max_size=4).map(tuple),
    fails=st.integers(0, 11).map(lambda n: n == 11),
)
DISTURBANCES = st.builds(
    Disturbance, second=st.integers(0, 8), what=st.sampled_from(["says", "says to child", "call", "child", "run"])
)


class Models:
    """In place of `Gateway.chat`: every agent has a script, told apart by their system prompts."""

    def __init__(self, scripts: dict[str, list[Step]]) -> None:
        self._scripts: dict[str, Iterator[Step]] = {name: iter(steps) for name, steps in scripts.items()}
        self.histories: list[tuple[Any, ...]] = []
        self.events: list[Event] = []
        self._replies = 0

    async def chat(self, _: Any, request: ChatRequest, *, on_delta: Any = None, **__: Any) -> ChatReply:
        """The next reply of the agent's script; "done" behind its end."""
        self.histories.append(tuple(request.messages))
        name = next((name for name in self._scripts if name in (request.system or "")), "")
        step = next(self._scripts.get(name, iter(())), Step("done", 0, (), fails=False))
        self._replies += 1
        read = str(request.messages)
        calls = [
            self._call(f"c{self._replies}-{i}", tool, arguments, read)
            for i, (tool, arguments) in enumerate(step.calls)
            if any(tool == offered.name for offered in request.tools) or tool == "nowhere"
        ]
        if on_delta is not None and step.text:
            on_delta(TextDelta(step.text[:2]))
        await trio.sleep(step.seconds)
        if step.fails:
            raise ModelError("the model is ill")
        whole = len(request.system) + len(msgspec.json.encode(request.tools)) + len(read)
        usage = TokenUsage(input_tokens=whole // 4, output_tokens=5)

        return ChatReply(text=step.text or ("" if calls else "done"), tool_calls=tuple(calls), usage=usage, model="x:y")

    @staticmethod
    def _call(id: str, tool: str, arguments: Any, read: str) -> ToolCall:
        """A call whose arguments have the last ids that the model was told."""
        if not isinstance(arguments, dict):
            return ToolCall(id=id, name=tool, malformed=arguments)
        text = json.dumps(arguments)
        for place, shape in ((ID, r"agent_helper_[0-9a-f]{8}"), (TASK, r"task_[0-9]+")):
            told = re.findall(shape, read)
            text = text.replace(place, told[-1] if told else "none")
        return ToolCall(id=id, name=tool, arguments=json.loads(text))


def _disturb(root: callboard.Root, events: list[Event], what: str) -> bool:
    """Do this to whatever is there; True for the end of all."""
    agents = [event.actor for event in events if event.kind == "agent.started"]
    if what == "run":
        return True
    kinds = {"call": "tool.call.started", "child": "agent.started"}
    for event in reversed(events):
        actor = find(root.kernel, event.actor)
        if actor is None or (what == "child" and event.actor == agents[0]):
            continue
        if event.kind == kinds.get(what):
            actor.interrupt()
            break
        if event.kind == "agent.started" and what == ("says" if event.actor == agents[0] else "says to child"):
            actor.ref.tell_nowait(PersonSays(text="hurry up", by="me"))
            break
    return False


async def held(
    directory: Path, scripts: dict[str, list[Step]], disturbances: list[Disturbance], options: Any
) -> Models:
    """A run of `lead`, who may have `helper`s."""
    home = directory / "agents" / "helper"
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text("name: helper\ninstructions: You are the helper.\ncan_spawn_agents: false\n")
    (directory / "config.yaml").write_text(
        "model: x:y\n"
        "clients: [{type: openai-compatible, name: x, api_base: 'http://localhost:9', models: [{name: y}]}]\n"
    )
    lead = callboard.Agent(
        can_ask_user=True,
        name="lead",
        instructions="You are the lead.",
        can_spawn_agents=True,
        max_auto_continues=2,
        **options,
    )
    models = Models({"the helper": scripts["helper"], "the lead": scripts["lead"]})
    events = models.events
    with mock.patch.object(Gateway, "chat", lambda _, *args, **kwargs: models.chat(*args, **kwargs)):
        async with callboard.Root(config_dir=directory) as root:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:

                    async def happenings() -> None:
                        for second, what in sorted(disturbances):
                            await trio.sleep_until(began + second + 0.5)
                            if _disturb(root, events, what):
                                scope.cancel()

                    began = trio.current_time()
                    nursery.start_soon(happenings)
                    play = partial(callboard.run, lead, "go", root=root, on_event=events.append, tools=TOOLS)
                    await play(answers=["this"] * 9)
                    nursery.cancel_scope.cancel()
    return models


def _check(history: tuple[Any, ...]) -> None:
    """Each call is followed by its result, before anything else is said."""
    due: list[str] = []
    for turn in history:
        if isinstance(turn, ToolTurn):
            assert turn.call == due.pop(0)
        else:
            assert due == []
            due = [call.id for call in turn.tool_calls] if isinstance(turn, AssistantTurn) else []
    assert due == []


@LENGTHS
def test_whatever_a_conversation_is_told_leads_to_the_same_again(examples: int, tmp_path: Path) -> None:
    options = st.fixed_dictionaries(
        {
            "auto_continue": st.sampled_from([True, True, False]),
            "max_concurrent_agents": st.integers(1, 3),
            "compression_threshold": st.sampled_from([0, 2_500]),
            "compression_keep_last": st.sampled_from([2, 6, 20]),
        }
    )

    seen: set[str] = set()

    @settings(max_examples=examples, deadline=None, derandomize=examples == 50)
    @given(
        st.lists(STEPS, min_size=3, max_size=8),
        st.lists(STEPS, max_size=3),
        st.lists(DISTURBANCES, max_size=3),
        options,
    )
    def law(lead: list[Step], helper: list[Step], disturbances: list[Disturbance], options: Any) -> None:
        playing = partial(held, tmp_path, {"lead": lead, "helper": helper}, disturbances, options)
        with twins() as replayed:
            models = trio.run(playing, clock=MockClock(autojump_threshold=0))
        assert replayed
        for history in models.histories:
            _check(history)
        shortened = [event.data for event in models.events if event.kind == "history.compacted"]
        assert all(data.tokens_now < data.tokens for data in shortened)
        seen.update("a summary" if data.turns else "cut results" for data in shortened)
        seen.update(event.kind for event in models.events)
        seen.update(
            event.data.tool for event in models.events if event.kind == "tool.call.finished" and not event.data.error
        )

    law()
    assert seen >= {"agent.told", "agent.continued", "a summary", "cut results", "question.answered", "run.cancelled"}
    assert examples == 50 or seen >= {name for name, _ in CALLS if name not in {"fail", "nowhere"}}
