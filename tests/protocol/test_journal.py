"""The rows of durable runs: every version reads those of all before it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from callboard.protocol import journal, messages
from callboard.protocol import workflow_messages as workflows
from callboard.protocol.chat import AssistantTurn, ChatReply, ImagePart, TextPart, TokenUsage, ToolCall, UserTurn
from callboard.protocol.journal import (
    CAN_BE_KEPT,
    About,
    Answered,
    AnyRow,
    Asked,
    Began,
    Definition,
    Intends,
    Lived,
    MessageRow,
    Noted,
    Over,
    Spoilt,
    decode,
    decode_about,
    decode_value,
    encode,
    encode_about,
    encode_value,
    name_of_kind,
)
from callboard.protocol.kernel.questions import Answer, Question
from callboard.protocol.messages import Failure
from callboard.protocol.outcome import ChildRecord
from callboard.protocol.requests import Limits, RunRequest

QUESTION = Question(id="q-1-1", actor="/run-1/g/ok", text="Go on?", kind="choice", options=("yes", "no"))
TOOL = messages.OfferedTool(
    name="a",
    spec=messages.Tool(name="a"),
    origin="mcp",
    ordered=False,
    elsewhere=False,
    waits=False,
    synonyms={},
    listed=True,
)
MESSAGES: list[Any] = [
    messages.GraphBegun(prompt="hello", state={"n": 1}),
    messages.MapBegun(items=[], state={}),
    messages.ConversationBegun((UserTurn("hi"), UserTurn((TextPart("there"),))), messages.Todos(goal="g")),
    messages.CallsBegun((ToolCall(id="1", name="a"),)),
    messages.NodeDone(key=1, node="a", writes={"x": [1, {"y": None}]}, targets=("b",), output=2.5, seconds=0.25),
    messages.WorkFailed(2, failure=Failure(("NodeFailed",), "no", {"exit_code": 3}), crashed=True, seconds=1.5),
    messages.Replied(3, reply=ChatReply(text="yes", usage=TokenUsage(input_tokens=10), model="a:b", cost=0.01)),
    messages.ToolDone(4, content="done"),
    messages.Summarized(5, summary="short"),
    messages.ResultsStored(6, files=("a", "")),
    messages.ToolsChecked(7, offered=(TOOL,)),
    messages.FamilyCalled(key=8, name="todo__add", arguments={"task": "t"}, token="0123abcd"),
    messages.PersonSays(text="stop", by="ann"),
    messages.TeamMessage(sender="a", payload=messages.Text("x"), written=datetime(2026, 11, 24, tzinfo=UTC)),
    messages.Partial(text="half"),
    messages.ChildEnded(record=ChildRecord(id="c", agent="a"), at=datetime(2026, 11, 24, tzinfo=UTC), token="t"),
    messages.EscalationNoted(id="e", agent="a", question=QUESTION),
    messages.EscalationClosed(id="e", answered=True, late=True),
    messages.TimerFired("graph"),
    messages.Idle("turn"),
]
LATER: list[Any] = [messages.ServersRestarted(servers=("notes", "time")), messages.StateSet(state={"n": 2})]
"""Messages that came after the first version."""
SAID = workflows.Message(
    role="assistant",
    content=(TextPart("x"), ImagePart(data=b"\x89PNG")),
    source="a",
    keep=True,
    preserve_role=True,
    dynamic=True,
    metadata={"n": 1},
)
TEXT = workflows.Message(role="user", content="y")
FAILED = Failure(("NodeFailed",), "no", {"exit_code": 3})
OF_WORKFLOWS: list[Any] = [
    workflows.WorkflowBegun(task=()),
    workflows.UnitsBegun(units=()),
    workflows.Fired(
        1,
        node="a",
        outputs=(SAID,),
        trace=(TEXT,),
        failure=FAILED,
        unaccepted=(FAILED,),
        crossings=(
            workflows.Crossing(0, 0, fires=True),
            workflows.Crossing(1, TEXT, fires=True),
            workflows.Crossing(2, None, fires=False),
        ),
        tolerated=FAILED,
        warnings=("w",),
        gate=workflows.Gate(2, 1.5, spoken=True),
        seconds=0.25,
    ),
    workflows.NodeCodeDone(2, outputs=(TEXT,), trace=(TEXT,), failure=FAILED, unaccepted=(FAILED,)),
]
CALLED = workflows.Called(met=False, messages=(TEXT,), failure=FAILED, whose="1/2", number=3, shared={"count": 4})
DEFINITION = Definition("graph", "/a/graph.yaml", "/a", "name: g")
REQUEST = RunRequest(target="g", prompt="hello", limits=Limits(max_turns=3), answers={"ok": ["yes"]}, id="run-1")
ROWS: list[AnyRow] = [
    Began(0, REQUEST, DEFINITION, 1, "0.1.0", 1764000000.5, "local"),
    Lived(1200, 2, "0.1.0", 1764000100.5),
    Over(1300, "done"),
    Intends(5, "the script 'a.sh'"),
    Asked(6, QUESTION, 1764000000.5),
    Answered(7, Answer(question="q-1-1", value="yes", by="person")),
    Noted(8, "reply", encode_value({"x": 1})),
    Spoilt(9, "why"),
]

GOLDEN = Path(__file__).with_name("journal_rows") / "fold-1.hex"
"""These rows as the first version has written them. The file stays as it is; a later fold gets one beside it."""

WORKFLOWS = GOLDEN.with_name("fold-1-workflows.hex")
"""The same of workflows, which could be kept a little later."""


@pytest.mark.parametrize("message", [*MESSAGES, *LATER, *OF_WORKFLOWS], ids=lambda message: type(message).__name__)
def test_what_deciders_are_told_comes_back_as_it_was(message: Any) -> None:
    row = MessageRow(12, message)
    assert decode(encode(row)) == row


def test_each_message_that_can_be_kept_is_among_these() -> None:
    assert {type(message) for message in [*MESSAGES, *LATER, *OF_WORKFLOWS]} == CAN_BE_KEPT


@pytest.mark.parametrize("row", ROWS, ids=lambda row: type(row).__name__)
def test_all_rows_come_back_as_they_were(row: AnyRow) -> None:
    assert decode(encode(row)) == row
    assert {type(row) for row in ROWS} | {MessageRow} == set(get_args(AnyRow))


def test_numbers_of_any_size_come_back_whole() -> None:
    big = {"a": [2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**40]}
    row = MessageRow(1, messages.NodeDone(key=1, node="a", writes=big, targets=None, output=2**70))
    assert decode(encode(row)) == row
    assert decode_value(encode_value(big), dict) == big


def test_rows_are_as_small_as_they_say() -> None:
    left = messages.NodeDone(key=7, node="work", writes={}, targets=("next",), seconds=0.001)
    assert len(encode(MessageRow(12345, left))) <= 32
    assert len(encode(MessageRow(12345, messages.ToolDone(7, content="x" * 2_000)))) <= 2_030


def test_rows_of_the_first_version_are_read_for_ever() -> None:
    rows = [decode(bytes.fromhex(line)) for line in GOLDEN.read_text().splitlines()]
    assert rows == [*ROWS, *(MessageRow(12, message) for message in MESSAGES)]


def test_rows_of_later_messages_are_read_for_ever() -> None:
    rows = [decode(bytes.fromhex(line)) for line in GOLDEN.with_name("fold-1-later.hex").read_text().splitlines()]
    assert rows == [MessageRow(12, message) for message in LATER]


def test_rows_of_the_first_workflows_are_read_for_ever() -> None:
    rows = [decode(bytes.fromhex(line)) for line in WORKFLOWS.read_text().splitlines()]
    *told, noted, began = rows
    assert told == [MessageRow(12, message) for message in OF_WORKFLOWS]
    assert isinstance(noted, Noted)
    assert decode_value(noted.value, workflows.Called) == CALLED
    parts = Definition("workflow", "/a/flow.yaml", "/a", "graph:", {"/a/part.yaml": "nodes:"})
    assert began == Began(0, REQUEST, parts, 1, "0.1.0", 1764000000.5, "local")


def test_what_a_no_op_node_of_a_workflow_has_come_to_takes_little_more_than_its_words() -> None:
    said = workflows.Message(role="assistant", content="x" * 2_000, source="Writer")
    crossings = tuple(workflows.Crossing(way, 0, fires=True) for way in range(3))
    fired = workflows.Fired(7, node="Writer", outputs=(said,), crossings=crossings, seconds=0.001)
    assert len(encode(MessageRow(12345, fired))) <= 2_080


def test_a_later_version_may_add_fields_at_the_end() -> None:
    array = msgspec.msgpack.decode(encode(Lived(1, 2, "0.1.0", 3.0)))
    assert decode(msgspec.msgpack.encode([*array, "new"])) == Lived(1, 2, "0.1.0", 3.0)
    message = msgspec.msgpack.decode(encode(MessageRow(1, messages.Idle("turn"))))
    message[2].append("new")
    assert decode(msgspec.msgpack.encode(message)) == MessageRow(1, messages.Idle("turn"))


def test_a_row_of_a_kind_that_is_not_known_is_no_row() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(msgspec.msgpack.encode([99, 1]))


def test_what_lists_say_of_a_run_comes_back() -> None:
    about = About("g", "the graph", "hello", "/home", "/config", "local")
    assert decode_about(encode_about(about)) == about


def test_a_row_may_hold_an_image_and_a_number_of_more_than_64_bits() -> None:
    image, call = UserTurn((ImagePart(data=b"\x89PNG"),)), ToolCall(id="1", name="a", arguments={"n": 2**70})
    turns = (image, AssistantTurn("", (call,)))
    row = MessageRow(at=0, message=messages.ConversationBegun(turns, messages.Todos(goal="g")))
    assert decode(encode(row)) == row
    both = {"image": b"\x89PNG", "n": 2**70}
    assert decode_value(encode_value(both), dict[str, Any]) == both


def test_names_that_users_see_are_those_of_classes_that_exist() -> None:
    assert name_of_kind(messages.NodeDone(key=1, node="a", writes={}, targets=(), seconds=0.1)) == "NodeLeft"
    named = vars(messages) | vars(workflows) | vars(journal)
    assert {name for name in journal._SHOWN_AS if name not in named} == set()
