"""Calls of one turn: played at once, each an actor, and whatever comes of one is told to the model."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing

from callboard.actors.engine.conversation.run import CallRounds
from callboard.actors.work.tools.calls import CallPlayer
from callboard.actors.work.tools.checking import MOST_CALLS, tame
from callboard.actors.work.tools.permissions import Permissions
from callboard.actors.work.tools.tool import Arguments, Tool, ToolSpec
from callboard.protocol.chat import ToolCall, ToolTurn
from callboard.protocol.effects import CallTool
from callboard.protocol.errors import BudgetReached, ToolFailed
from callboard.protocol.events import Event
from callboard.supervisors import Actor

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ANYTHING: dict[str, Any] = {"type": "object", "properties": {}}


def tool(name: str, run: Any, parameters: dict[str, Any] | None = None, **more: Any) -> Tool:
    return Tool(spec=ToolSpec(name=name, parameters=parameters or ANYTHING), run=run, **more)


async def double(me: Actor, arguments: Arguments) -> int:
    return 2 * int(arguments["n"])


def call(name: str, id: str = "1", /, **arguments: Any) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


def told(turn: ToolTurn) -> Any:
    """What the model reads, as a value."""
    assert isinstance(turn.content, str)
    return json.loads(turn.content)


def calls(*tools: Tool, **options: Any) -> CallRounds:
    return CallRounds(tools, Permissions(yes=True), **options)


async def test_a_parameter_may_be_given_by_its_synonym(me: Actor) -> None:
    doubling = tool("double", double, {**NUMBER, "additionalProperties": False}, synonyms={"number": "n"})
    turns = await calls(doubling).play(me, [call("double", "a", number=2), call("double", "b", n=3)])
    assert [turn.content for turn in turns] == ["4", "6"]
    (both,) = await calls(doubling).play(me, [call("double", number=2, n=3)])
    assert "number" in told(both)["tool_call_error"]


async def test_what_a_failed_tool_had_written_reaches_the_model(me: Actor) -> None:
    async def fail(me: Actor, arguments: Arguments) -> str:
        raise ToolFailed("exited with code 1", stderr="no\n", output="2 errors in a.c\n")

    (turn,) = await calls(tool("build", fail)).play(me, [call("build")])
    assert told(turn) == {"tool_call_error": "exited with code 1", "stderr": "no", "output": "2 errors in a.c"}


async def test_results_come_in_the_order_of_the_calls(me: Actor) -> None:
    first_may_end = trio.Event()

    async def late(me: Actor, arguments: Arguments) -> str:
        await first_may_end.wait()
        return "late"

    async def early(me: Actor, arguments: Arguments) -> str:
        first_may_end.set()
        return "early"

    turns = await calls(tool("late", late), tool("early", early)).play(me, [call("late", "a"), call("early", "b")])
    assert [(turn.call, turn.content, turn.error) for turn in turns] == [("a", "late", False), ("b", "early", False)]


async def test_each_call_is_an_actor_below_the_one_who_calls(me: Actor) -> None:
    paths: list[str] = []

    async def where(own: Actor, arguments: Arguments) -> None:
        paths.append(own.path)

    await calls(tool("where", where)).play(me, [call("where"), call("where", "2", x=1)])
    assert sorted(paths) == [f"{me.path.rstrip('/')}/where", f"{me.path.rstrip('/')}/where#2"]


@pytest.mark.parametrize(
    ("value", "text"), [("as it is", "as it is"), ({"a": [1, None]}, '{"a":[1,null]}'), (None, "null"), (True, "true")]
)
async def test_a_text_is_told_as_it_is_and_anything_else_as_json(me: Actor, value: Any, text: str) -> None:
    async def run(own: Actor, arguments: Arguments) -> Any:
        return value

    (turn,) = await calls(tool("t", run)).play(me, [call("t")])
    assert turn.content == text


async def test_an_unknown_tool_is_told_with_the_nearest_name(me: Actor) -> None:
    (turn,) = await calls(tool("double", double, NUMBER)).play(me, [call("duoble", n=1)])
    assert told(turn) == {"tool_call_error": "Unknown tool 'duoble': did you mean 'double'?"}
    assert turn.error


async def test_a_tools_name_of_ten_megabytes_is_bounded(me: Actor) -> None:
    (huge,) = tame([ToolCall(id="1", name="x" * 10_000_000)])
    assert len(huge.name) == 64
    (turn,) = await calls(tool("double", double, NUMBER)).play(me, [ToolCall(id="1", name="x" * 10_000_000)])
    assert isinstance(turn.content, str)
    assert len(turn.content) < 1_000


async def test_arguments_that_are_no_json_are_told(me: Actor) -> None:
    (turn,) = await calls(tool("double", double, NUMBER)).play(
        me, [ToolCall(id="1", name="double", malformed='{"n": 1')]
    )
    assert told(turn)["tool_call_error"].startswith("The call 'double' has invalid arguments")
    assert '{"n": 1' in told(turn)["tool_call_error"]


async def test_arguments_that_do_not_fit_the_schema_are_told_with_their_path(me: Actor) -> None:
    (turn,) = await calls(tool("double", double, NUMBER)).play(me, [call("double", n="two")])
    assert "$.n: 'two' is not of type 'integer'" in told(turn)["tool_call_error"]
    (turn,) = await calls(tool("double", double, NUMBER)).play(me, [call("double")])
    assert "'n' is a required property" in told(turn)["tool_call_error"]


async def test_ten_thousand_keys_are_refused_in_few_words(me: Actor) -> None:
    strict = {**NUMBER, "additionalProperties": False}
    (turn,) = await calls(tool("double", double, strict)).play(
        me, [ToolCall(id="1", name="double", arguments={f"k{i}": i for i in range(10_000)})]
    )
    assert turn.error
    assert isinstance(turn.content, str)
    assert len(turn.content) < 2_000


async def test_null_for_what_may_be_left_out_counts_as_left_out(me: Actor) -> None:
    seen: list[Arguments] = []

    async def run(own: Actor, arguments: Arguments) -> None:
        seen.append(arguments)

    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": ["string", "null"]}, "c": {"type": "string"}},
        "required": [],
    }
    await calls(tool("t", run, schema)).play(me, [call("t", a=None, b=None, c="x")])
    assert seen == [{"b": None, "c": "x"}]


async def test_a_failed_tool_is_told_with_the_end_of_its_stderr(me: Actor) -> None:
    async def fails(own: Actor, arguments: Arguments) -> None:
        raise ToolFailed("Tool call 't' exited with code 2", stderr="no such file")

    (turn,) = await calls(tool("t", fails)).play(me, [call("t")])
    assert told(turn) == {"tool_call_error": "Tool call 't' exited with code 2", "stderr": "no such file"}


async def test_a_crash_costs_the_call_and_not_its_siblings(me: Actor) -> None:
    async def crashes(own: Actor, arguments: Arguments) -> None:
        raise KeyError("oops")

    turns = await calls(tool("t", crashes), tool("double", double, NUMBER)).play(
        me, [call("t"), call("double", "2", n=4)]
    )
    assert told(turns[0]) == {"tool_call_error": "Tool call 't' crashed: KeyError: 'oops'"}
    assert turns[1].content == "8"


async def test_a_call_is_ended_after_its_time(me: Actor, autojump_clock: trio.testing.MockClock) -> None:
    ended = []

    async def sleeps(own: Actor, arguments: Arguments) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(trio.current_time())

    (turn,) = await calls(tool("t", sleeps, timeout=7)).play(me, [call("t")])
    assert told(turn) == {"tool_call_error": "Tool call 't' was stopped: it did not finish within 7 s"}
    assert len(ended) == 1
    (turn,) = await calls(tool("t", sleeps, timeout=7), timeout=3).play(me, [call("t")])
    assert "3 s" in told(turn)["tool_call_error"]


async def test_a_limit_of_the_run_ends_the_conversation(me: Actor) -> None:
    async def spends(own: Actor, arguments: Arguments) -> None:
        raise BudgetReached("the money is gone")

    with pytest.raises(BudgetReached):
        await calls(tool("t", spends)).play(me, [call("t")])


async def test_who_is_interrupted_leaves_no_call_behind(me: Actor) -> None:
    started, ended = trio.Event(), []

    async def sleeps(own: Actor, arguments: Arguments) -> None:
        started.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.append(arguments["n"])

    async with trio.open_nursery() as nursery:

        async def play() -> None:
            await calls(tool("t", sleeps, NUMBER)).play(me, [call("t", n=1), call("t", "2", n=2)])

        nursery.start_soon(play)
        await started.wait()
        nursery.cancel_scope.cancel()
    assert sorted(ended) == [1, 2]
    assert me.children == ()


async def test_a_long_result_is_cut_in_its_middle(me: Actor) -> None:
    async def talks(own: Actor, arguments: Arguments) -> str:
        return "a" * 500 + "z" * 500

    (turn,) = await calls(tool("t", talks), result_limit=100).play(me, [call("t")])
    assert isinstance(turn.content, str)
    assert len(turn.content) < 200
    assert turn.content.startswith("aaa")
    assert turn.content.endswith("zzz")
    assert "[... 900 characters left out ...]" in turn.content


async def test_more_calls_than_a_turn_may_have_are_refused_one_by_one(me: Actor) -> None:
    many = tame([call("double", str(i), n=i) for i in range(MOST_CALLS + 3)])
    turns = await calls(tool("double", double, NUMBER)).play(me, many)
    assert [turn.error for turn in turns] == [False] * MOST_CALLS + [True] * 3


def test_ids_that_are_missing_or_come_twice_are_made_unique() -> None:
    tamed = tame([call("a", ""), call("a", "x"), call("a", "x"), call("a", "y" * 1_000)])
    assert len({each.id for each in tamed}) == 4
    assert tamed[1].id == "x"


async def test_case_89_the_third_identical_call_in_a_row_is_not_played(me: Actor) -> None:
    played = []

    async def run(own: Actor, arguments: Arguments) -> str:
        played.append(arguments["n"])
        return "ok"

    conversation = calls(tool("t", run, NUMBER))
    for expected in (False, False, True, True):
        (turn,) = await conversation.play(me, [call("t", n=1)])
        assert turn.error is expected
    assert told(turn)["tool_call_loop_alert"]["code"] == 400
    assert played == [1, 1]
    (turn,) = await conversation.play(me, [call("t", n=2)])
    assert not turn.error


async def test_every_call_has_one_start_and_one_end_among_the_events(root: Any, me: Actor) -> None:
    events: list[Event] = []
    stream = root.bus.open("r")

    async def fails(own: Actor, arguments: Arguments) -> None:
        raise ToolFailed("no")

    async def body(own: Actor) -> None:
        await calls(tool("double", double, NUMBER), tool("f", fails)).play(
            own, [call("double", "a", n=1), call("f", "b"), call("ghost", "c")]
        )

    with stream.listen(events.append):
        await me.spawn(body, stream=stream).wait()
    of_calls = [(event.id, event.kind.rpartition(".")[2]) for event in events if event.kind.startswith("tool.call")]
    assert sorted(of_calls) == [(id, kind) for id in "abc" for kind in ("finished", "started")]
    errors = {event.id: event.data.error for event in events if event.kind == "tool.call.finished"}
    assert errors["a"] is None
    assert errors["b"] == "no"
    assert "Unknown tool 'ghost'" in errors["c"]


async def test_calls_that_must_stay_in_order_happen_in_the_order_of_the_model(me: Actor) -> None:
    seen: list[int] = []

    async def note(own: Actor, arguments: Arguments) -> None:
        for _ in range(arguments["n"] % 3):
            await trio.lowlevel.checkpoint()
        seen.append(arguments["n"])

    await calls(tool("note", note, NUMBER, ordered=True)).play(me, [call("note", str(i), n=i) for i in range(20)])
    assert seen == list(range(20))


async def test_the_same_call_several_times_in_one_turn_is_no_circle(me: Actor) -> None:
    conversation = calls(tool("double", double, NUMBER))
    turns = await conversation.play(me, [call("double", str(i), n=1) for i in range(5)])
    assert [turn.content for turn in turns] == ["2"] * 5


def test_names_that_no_provider_takes_are_made_such_as_it_takes() -> None:
    names = ["functions.fs cat<|x|>\n\0", "", "fs_cat", "é"]
    assert [each.name for each in tame([ToolCall(id="", name=name) for name in names])] == [
        "functions_fs_cat__x____",
        "unknown",
        "fs_cat",
        "_",
    ]


async def test_calls_that_wait_for_others_may_come_again(me: Actor) -> None:
    async def pending(own: Actor, arguments: Arguments) -> str:
        return "pending"

    conversation = calls(tool("agent__collect", pending, origin="family", timeout=None))
    for _ in range(5):
        (turn,) = await conversation.play(
            me, [ToolCall(id="1", name="agent__collect", arguments={"id": "agent_kid_1"})]
        )
        assert turn.content == "pending"


async def test_a_call_that_the_labels_forbid_is_not_executed(me: Actor) -> None:
    executed: list[Arguments] = []

    async def send(own: Actor, arguments: Arguments) -> None:
        executed.append(arguments)

    class Forbidding:
        async def check(self, me: Actor, tool: Tool, arguments: Arguments) -> None:
            raise ToolFailed(f"{tool.name} would send private text")

        async def heard_of_hooks(self) -> None:
            raise AssertionError("there are no hooks")

    sending = tool("send", send)
    player = CallPlayer({"send": sending}, Permissions(yes=True), flow=Forbidding())
    with pytest.raises(ToolFailed, match="send would send private text"):
        await player.play(me, CallTool(key=1, name="send", tool="send", call="a", arguments={"text": "x"}))
    assert executed == []
