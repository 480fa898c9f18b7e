"""What is kept of calls stays in proportion to what was said, within its bounds, and without secrets."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.messages import has_message

from callboard.actors.front.control.logs.files import REQUESTS
from callboard.actors.front.control.logs.model_calls import read_body, read_call, read_calls
from callboard.actors.work.models import recorder
from callboard.actors.work.models.recorder import Recorder, parted, ranges
from callboard.protocol.chat import (
    AssistantTurn,
    ChatReply,
    ChatRequest,
    FilePart,
    ImagePart,
    TextPart,
    Tool,
    ToolCall,
    ToolTurn,
    Turn,
    UserTurn,
)
from callboard.protocol.errors import UpstreamError


class Kept:
    """A recorder that writes into a directory at once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ended = 0
        self.recorder = Recorder(self._open, lambda line: line.replace(b"s3same", b"[redacted]"))

    def _open(self, number: int) -> Kept:
        self.path = self.directory / REQUESTS.format(number)
        (self.directory / REQUESTS.format(number - 2)).unlink(missing_ok=True)
        return self

    def append(self, line: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(line + b"\n")

    def end(self) -> None:
        self.ended += 1

    def call(self, *messages: Turn, actor: str = "/run-1/a", reply: str = "ok", **more: object) -> None:
        """One call with its reply."""
        id = f"llm-{time.monotonic_ns()}"
        self.recorder.asked(id, actor, "fake:m", ChatRequest(messages=messages, **more), stream=False)  # type: ignore[arg-type] # any field
        self.recorder.answered(id, ChatReply(text=reply, model="fake:m"))

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.directory.iterdir())


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def said(number: int, length: int = 100_000) -> Turn:
    return UserTurn(f"{number} ".ljust(length, "x"))


def test_thirty_turns_of_a_hundred_kilobytes_take_three_megabytes(kept: Kept) -> None:
    turns: list[Turn] = []
    for number in range(30):
        turns.append(said(number))
        kept.call(*turns)
        turns.append(AssistantTurn(f"answer {number}"))
    assert kept.size < 1.02 * 30 * 100_000
    assert [call.messages for call in read_calls(kept.directory)] == list(range(1, 60, 2))
    last = read_call(kept.directory, 30)
    assert last is not None
    assert msgspec.convert(last.request.messages, list[Turn]) == turns[:-1]


def test_a_conversation_that_was_made_anew_is_not_written_anew(kept: Kept) -> None:
    for _ in range(10):
        kept.call(*(said(number) for number in range(5)))  # equal turns, other objects
        kept.call(*(said(number) for number in range(5)), actor="/run-1/b")
    assert kept.size < 510_000
    kept.call(said(9), *(said(number) for number in range(2, 5)))  # compacted: a new beginning, then what was there
    last = read_call(kept.directory, 21)
    assert last is not None
    assert [message["content"][0] for message in last.request.messages] == ["9", "2", "3", "4"]
    assert kept.size < 620_000


def test_tools_and_system_prompts_are_written_once(kept: Kept) -> None:
    tools = tuple(Tool(name=f"t{n}", description="d" * 2_000) for n in range(20))
    for number in range(50):
        kept.call(said(number, 10), system="s" * 10_000, tools=tools, temperature=0.5)
    assert kept.size < 80_000
    last = read_call(kept.directory, 50)
    assert last is not None
    assert ([tool["name"] for tool in last.request.tools], last.tools) == ([f"t{n}" for n in range(20)], 20)
    assert last.request.parameters == {"temperature": 0.5, "stream": False}
    kept.call(said(1, 10), tools=tools[:3])
    last = read_call(kept.directory, 51)
    assert last is not None
    assert (last.request.system, last.tools) == ("", 3)


def test_images_and_files_are_told_of_but_not_kept(kept: Kept) -> None:
    parts = (TextPart("look"), ImagePart(data=b"i" * 5000), ImagePart(url="https://x.test/a.png"))
    files = (FilePart(name="a.txt", data=b"words"), FilePart(name="a.pdf", data=b"%PDF", media_type="application/pdf"))
    kept.call(UserTurn((*parts, *files)))
    call = read_call(kept.directory, 1)
    assert call is not None
    assert call.request.messages == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image", "media_type": "image/png", "bytes": 5000},
                {"type": "image", "media_type": "image/png", "url": "https://x.test/a.png"},
                {"type": "file", "name": "a.txt", "media_type": "text/plain", "text": "words"},
                {"type": "file", "name": "a.pdf", "media_type": "application/pdf", "bytes": 4},
            ],
        }
    ]


def test_a_text_beyond_the_bound_loses_its_middle(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "LONGEST", 10_000)
    monkeypatch.setattr(recorder, "LONGEST_TEXT", 1_000)
    kept.call(
        UserTurn("a" * 20_000),
        AssistantTurn(tool_calls=(ToolCall(id="1", name="t", arguments={"x": "y" * 20_000}),)),
        ToolTurn(call="1", name="t", content="z" * 20_000),
        AssistantTurn(tool_calls=tuple(ToolCall(id=str(n), name="t", arguments={"x": "y" * 900}) for n in range(50))),
        reply="r" * 20_000,
    )
    call = read_call(kept.directory, 1)
    assert call is not None
    assert call.reply is not None
    texts = [call.request.messages[0]["content"], call.request.messages[2]["content"], call.reply.text]
    texts.append(call.request.messages[1]["tool_calls"][0]["arguments"]["x"])
    for text in texts:
        assert len(text) < 1_100
        assert has_message(text, "work.models.recorder._cut", half_2="…19,000")
    assert has_message(call.request.messages[3]["content"], "work.models.recorder")
    assert kept.size < 10_000


def test_of_a_request_that_adds_too_much_the_newest_turns_are_kept(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MOST_OF_CALL", 250_000)
    kept.call(*(said(number) for number in range(10)))
    call = read_call(kept.directory, 1)
    assert call is not None
    assert [message["content"][:9] for message in call.request.messages][6:] == [
        "[omitted:",
        "7 xxxxxxx",
        "8 xxxxxxx",
        "9 xxxxxxx",
    ]
    assert len(call.request.messages) == 10
    assert kept.size < 310_000


def test_a_run_keeps_two_files_and_each_can_be_read_alone(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MOST_OF_FILE", 300_000)
    for number in range(40):
        kept.call(said(number), UserTurn("and now"), system="always")
    assert kept.size < 900_000
    found = read_calls(kept.directory)
    assert len(found) < 10
    assert found[-1].number == 40
    for info in found:
        call = read_call(kept.directory, info.number)
        assert call is not None
        assert (call.request.messages[0]["content"][:2].strip(), call.request.system) == (
            f"{info.number - 1}",
            "always",
        )
    assert read_call(kept.directory, 1) is None


def test_secrets_are_taken_out_before_anything_is_written(kept: Kept) -> None:
    kept.call(UserTurn("it is s3same"), system="s3same", reply="s3same!")
    kept.recorder.asked("x", "/run-1/a", "fake:m", ChatRequest(messages=()), stream=False)
    kept.recorder.made_again("x", UpstreamError("bad key s3same"), 1.0)
    kept.recorder.failed("x", "s3same")
    assert b"s3same" not in kept.path.read_bytes()
    call = read_call(kept.directory, 2)
    assert call is not None
    assert (call.error, call.failures[0].error, call.tries) == ("[redacted]", "bad key [redacted]", 2)


TORN = '[{"kid":"A"},{"k":"torn-secret"}]'


@pytest.fixture
def torn(kept: Kept) -> Kept:
    """Knows a secret that looks like a place where bodies are parted."""
    quoted = json.dumps(TORN)[1:-1].encode()

    def redact(line: bytes) -> bytes:
        return line.replace(quoted, b"[redacted]").replace(TORN.encode(), b"[redacted]")

    kept.recorder = Recorder(kept._open, redact)  # its own file
    return kept


def test_a_secret_that_is_parted_in_a_body_is_taken_out_as_a_whole(torn: Kept) -> None:
    torn.recorder.asked("1", "/a", "m", ChatRequest(messages=()), stream=False)
    torn.recorder.sent("1", msgspec.json.encode({"messages": [{"role": "user", "content": f"key {TORN}"}]}))
    assert read_body(torn.directory, 1) == '{"messages":[{"role":"user","content":"key [redacted]"}]}'


@pytest.mark.parametrize("before", range(0, 40, 3))
def test_a_secret_where_a_long_text_is_cut_is_taken_out_before(
    torn: Kept, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    monkeypatch.setattr(recorder, "LONGEST", 10_000)
    monkeypatch.setattr(recorder, "LONGEST_TEXT", 1_000)
    text = "x" * (500 - before) + TORN + "y" * 19_000 + TORN + "z" * (500 - before)
    torn.call(UserTurn(text), ToolTurn(call="1", name="t", content=text), reply=text)
    torn.call(UserTurn((ImagePart(url="https://x.test/".ljust(200 - before, "a") + TORN),)))
    written = torn.path.read_text()
    assert "kid" not in written
    assert "torn-secret" not in written
    call = read_call(torn.directory, 1)
    assert call is not None
    assert has_message(call.request.messages[0]["content"], "work.models.recorder._cut")


def test_half_a_character_is_no_reason_to_keep_nothing(kept: Kept) -> None:
    kept.call(UserTurn("half \ud83d"), reply="\ud83d")
    call = read_call(kept.directory, 1)
    assert call is not None
    assert call.reply is not None
    assert (call.request.messages, call.reply.text) == ([{"role": "user", "content": "half ?"}], "?")


def test_lines_that_are_torn_or_lost_do_not_hide_the_others(kept: Kept) -> None:
    kept.call(said(1, 10), system="s")
    kept.call(said(1, 10), said(2, 10), system="s")
    lines = kept.path.read_bytes().splitlines(keepends=True)
    kept.path.write_bytes(b"".join(lines[1:])[:-10] + b"\n\xff{\n[]\n" + lines[-1][:20])
    calls = read_calls(kept.directory)
    assert [(call.number, call.status) for call in calls] == [(1, "answered"), (2, "asked")]
    call = read_call(kept.directory, 2)
    assert call is not None
    assert call.request.system == "[not recorded: it could not be written to disk]"
    assert [message["content"][:2].strip() for message in call.request.messages] == ["1", "2"]


def test_nothing_is_opened_before_there_is_something_to_keep(kept: Kept) -> None:
    kept.recorder.end()
    assert (kept.ended, list(kept.directory.iterdir())) == (0, [])
    kept.call(UserTurn("x"))
    kept.recorder.end()
    assert kept.ended == 1


def test_ends_of_calls_that_were_never_asked_are_ignored(kept: Kept) -> None:
    kept.recorder.answered("none", ChatReply(text="?"))
    kept.recorder.failed("none", "?")
    kept.recorder.made_again("none", UpstreamError("?"), 0)
    assert list(kept.directory.iterdir()) == []


def test_numbers_are_told_as_ranges() -> None:
    assert ranges([]) == []
    assert ranges([1, 2, 3, 7, 8, 5]) == [(1, 3), (7, 8), (5, 5)]


def body_of(turns: list[Turn], mark: str = "") -> bytes:
    return b'{"model":"m","messages":%b,"tools":[{"name":"t"},{"name":"u"}]%b}' % (
        msgspec.json.encode(turns),
        mark.encode(),
    )


def test_the_body_as_it_was_sent_is_kept_and_grows_with_what_is_new(kept: Kept) -> None:
    turns: list[Turn] = []
    for number in range(30):
        turns.append(said(number, 10_000))
        kept.recorder.asked(str(number), "/a", "m", ChatRequest(messages=()), stream=False)
        kept.recorder.sent(str(number), body_of(turns))
        kept.recorder.sent(str(number), b"the next try")
        turns.append(AssistantTurn(f"answer {number}"))
    kept.recorder.sent("none", b"{}")
    assert kept.size < 1.1 * 30 * 10_000
    assert read_body(kept.directory, 30) == body_of(turns[:-1]).decode()
    assert read_body(kept.directory, 1) == body_of(turns[:1]).decode()
    assert read_body(kept.directory, 31) is None
    assert len(read_calls(kept.directory)) == 30


def test_secrets_of_a_body_are_taken_out_and_one_that_is_too_long_is_not_kept(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.recorder.asked("1", "/a", "m", ChatRequest(messages=()), stream=False)
    kept.recorder.sent("1", b'{"x":"s3same"},{"y":"s3same"}')
    assert b"s3same" not in kept.path.read_bytes()
    assert read_body(kept.directory, 1) == '{"x":"[redacted]"},{"y":"[redacted]"}'
    monkeypatch.setattr(recorder, "MOST_OF_BODY", 10)
    kept.recorder.asked("2", "/a", "m", ChatRequest(messages=()), stream=False)
    kept.recorder.sent("2", b'{"x":"longer than ten"}')
    assert read_body(kept.directory, 2) is None


TURNS: list[Turn] = [UserTurn(f"user {number}") for number in range(6)]
TURNS += [
    AssistantTurn(f"said {number}", (ToolCall(id="1", name="t", arguments={"n": number}),)) for number in range(4)
]
TURNS += [ToolTurn(call="1", name="t", content=f"result {number}") for number in range(4)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["/r/a", "/r/b", "/r/b/c"]),
            st.lists(st.integers(0, len(TURNS) - 1), max_size=8),
            st.sampled_from(["", "be brief", "be long"]),
            st.booleans(),
        ),
        max_size=25,
    )
)
def test_whatever_is_asked_in_whatever_order_is_read_back_as_it_was(
    calls: list[tuple[str, list[int], str, bool]],
) -> None:
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "MOST_OF_FILE", 2_000)
        kept = Kept(Path(place))
        asked = []
        for actor, numbers, system, copied in calls:
            turns = [msgspec.structs.replace(TURNS[n]) if copied else TURNS[n] for n in numbers]
            asked.append((actor, turns, system))
            kept.call(*turns, actor=actor, system=system)
        found = read_calls(kept.directory)
        assert [call.number for call in found] == list(range(len(calls) + 1 - len(found), len(calls) + 1))
        for info in found:
            call = read_call(kept.directory, info.number)
            assert call is not None
            actor, turns, system = asked[info.number - 1]
            assert (call.actor, call.request.system) == (actor, system)
            assert msgspec.convert(call.request.messages, list[Turn]) == turns


@given(st.binary().map(lambda data: data.replace(b"\0", b"")) | st.text('{}[],"a', max_size=200).map(str.encode))
def test_a_body_that_is_parted_can_be_put_together_again(body: bytes) -> None:
    assert b"".join(parted(body)) == body
