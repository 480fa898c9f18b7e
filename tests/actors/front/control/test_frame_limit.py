"""Frames to clients are bounded; what is shortened says so, and the whole can be fetched."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.control_hub import Client, MadeRun, Served
from support.waiting import until
from trio_websocket import ConnectionRejected

import callboard
from callboard.actors.front.control.hub import Hub
from callboard.actors.front.control.peer import LARGEST, MAX_FRAME, SMALLEST, shortened
from callboard.protocol.control import method_structs
from callboard.protocol.control.resources import ActorInfo
from callboard.protocol.events import LONGEST_PIECE, split_text

VALUES = st.recursive(
    st.none() | st.integers(-(2**53), 2**53) | st.text(max_size=20) | st.integers(1, 400).map(lambda n: "\x01é" * n),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(max_size=5), inner, max_size=40),
    max_leaves=30,
)


def found(value: Any, pointer: str) -> Any:
    """What a JSON pointer leads to."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


@given(st.dictionaries(st.text(max_size=5).filter(lambda key: key != "_meta"), VALUES, max_size=40), st.integers(3, 12))
def test_whatever_is_shortened_fits_and_says_what_was_cut(value: dict[str, Any], kilobytes: int) -> None:
    short = shortened(value, kilobytes * 1024)
    assert len(msgspec.json.encode(short)) <= kilobytes * 1024
    for pointer, length in short["_meta"]["cut"].items():
        assert length == len(found(value, pointer)) > len(found(short, pointer) if pointer else {})


@pytest.mark.parametrize("text", ["", "a", "é" * LONGEST_PIECE, "\x01" * (3 * LONGEST_PIECE + 1)])
def test_the_text_of_a_model_is_split_into_events_that_fit_a_frame(text: str) -> None:
    pieces = list(split_text(text))
    assert "".join(pieces) == text
    assert all(len(msgspec.json.encode(piece)) < MAX_FRAME - 4096 for piece in pieces)


async def whole(client: Client, method: str, /, **params: Any) -> Any:
    """A result, fetched in parts."""
    text, start, etag = "", 0, None
    while start is not None:
        part = await client.result("_result/part", method=method, params=params, etag=etag, **{"from": start})
        text += part["part"]
        start, etag = part["next"], part["etag"]
    assert len(text) == part["length"]
    return msgspec.json.decode(text)


async def test_an_event_beyond_the_limit_is_shortened_and_can_be_fetched(
    root: callboard.Root, hub: Hub, served: Served
) -> None:
    text = "é" * 1_100_000
    run = MadeRun(root, "run-large")
    run.say(text)
    run.say("after")
    run.end()
    await until(lambda: run.id in hub.logs.past)
    async with served.connect(max_message_size=MAX_FRAME) as websocket:
        client = Client(websocket)
        await client.result("_run/subscribe", run=run.id)
        await client.until_told("_run/ended")
        told = [frame["params"] for frame in client.told if frame["method"] == "_run/event"]
        seq, cut = next((each["event"]["seq"], each["_meta"]["cut"]) for each in told if "_meta" in each)
        assert cut == {"/event/data/text": len(text)}
        assert client.seqs() == sorted(set(client.seqs()))
        page = await whole(client, "_run/events", run=run.id, after=seq - 1, limit=1)
        assert page["events"][0]["data"]["text"] == text
        shown = await client.result("_run/events", run=run.id, after=seq - 1, limit=1)
        assert shown["_meta"]["cut"] == {"/events/0/data/text": len(text)}


async def test_a_client_that_sets_no_limit_gets_whole_frames(root: callboard.Root, hub: Hub, served: Served) -> None:
    run = MadeRun(root, "run-whole")
    run.say("x" * 1_500_000)
    run.end()
    await until(lambda: run.id in hub.logs.past)
    async with served.connect(path="/ws?max_frame=0", max_message_size=10_000_000) as websocket:
        client = Client(websocket)
        await client.result("_run/subscribe", run=run.id)
        event = (await client.until(lambda frame: "x" in frame["params"]["event"]["data"].get("text", "")))["params"]
        assert (len(event["event"]["data"]["text"]), "_meta" in event) == (1_500_000, False)


@pytest.mark.parametrize(
    "limit", ["1", str(SMALLEST - 1), str(LARGEST + 1), "-1", "x", "%D9%A3%D9%A0%D9%A0%D9%A0%D9%A0%D9%A0"]
)
async def test_a_limit_that_is_none_is_refused(served: Served, limit: str) -> None:
    with pytest.raises(ConnectionRejected) as refused:
        async with served.connect(path=f"/ws?max_frame={limit}"):
            pytest.fail("connected")
    assert refused.value.status_code == 400


async def test_a_long_output_is_marked_and_read_in_parts(root: callboard.Root, hub: Hub, client: Client) -> None:
    run = MadeRun(root, "run-output")
    output = "".join(f"{number}é\n" for number in range(30_000))
    run.end(output)
    await until(lambda: run.id in hub.logs.past)
    info = (await client.result("_run/get", run=run.id))["run"]
    assert info["cut"] == {"output": len(output)}
    (listed,) = (await client.result("_run/list"))["runs"]
    assert listed["cut"] == {"output": len(output)}
    assert len(listed["output"]) < len(info["output"])
    text, start = "", 0
    while start is not None:
        part = await client.result("_run/output", run=run.id, **{"from": start})
        text, start = text + part["text"], part["next"]
    assert (text, part["length"]) == (output, len(output))


async def test_pages_of_events_are_as_long_as_a_frame_may_be(root: callboard.Root, hub: Hub, served: Served) -> None:
    run = MadeRun(root, "run-pages")
    for _ in range(40):
        run.say("x" * LONGEST_PIECE)
    run.end()
    await until(lambda: run.id in hub.logs.past)
    async with served.connect(max_message_size=MAX_FRAME) as websocket:
        client, seqs, after = Client(websocket), [], 0
        while after is not None:
            page = await client.result("_run/events", run=run.id, after=after)
            assert "_meta" not in page
            seqs += [event["seq"] for event in page["events"]]
            after = page["next"]
    assert seqs == sorted(set(seqs))
    assert len(seqs) >= 42


async def test_a_part_is_only_had_of_what_may_be_shortened(client: Client) -> None:
    assert (await client.error("_result/part", method="_run/cancel", params={"run": "x"}))[0] == -32011
    assert (await client.error("_result/part", method="_result/part", params={"method": "_run/list"}))[0] == -32011
    assert (await client.error("_result/part", method="_run/fork", params={"run": "x"}))[0] == -32011
    assert (await client.error("_result/part", method="_actor/subscribe", params={}))[0] == -32011
    assert (await client.error("_result/part", method="_run/list", **{"from": 10**9}))[0] == -32011
    assert (await client.error("_result/part", method="_run/list", **{"from": -1}))[0] == -32602
    assert (await client.error("_result/part", method="_run/list", etag="of another"))[0] == -32009


def test_a_large_tree_goes_out_in_portions() -> None:
    from callboard.actors.front.control.methods import LONGEST_PORTION, in_portions

    actors = [
        ActorInfo(path=f"/run/{number}-{'x' * 1000}", parent="/run", name="x", kind="agent", run="run", state="running")
        for number in range(3000)
    ]
    portions = in_portions(actors)
    assert [actor for portion in portions for actor in portion] == actors
    assert all(len(msgspec.json.encode(portion)) <= LONGEST_PORTION + 2 for portion in portions)
    assert in_portions([]) == []


async def test_events_beyond_the_log_of_a_killed_process_lead_to_its_end(
    root: callboard.Root, hub: Hub, client: Client
) -> None:
    run = MadeRun(root, "run-over")
    run.end()
    await until(lambda: run.id in hub.logs.past)
    hub.logs.past[run.id].status = "lost"  # as its process had been killed: what it sent last is not in the log
    for after in (hub.logs.past[run.id].seq + 15, 2**40):
        subscribed = await client.result("_run/subscribe", run=run.id, after=after)
        ended = await client.until(
            lambda frame, mine=subscribed["subscription"]: frame["params"]["subscription"] == mine
        )
        assert ended["method"] == "_run/ended"
        assert ended["params"]["status"] == "lost"
        assert (await client.result("_run/events", run=run.id, after=after))["events"] == []


async def test_a_number_beyond_a_run_under_way_here_is_still_wrong_usage(
    root: callboard.Root, hub: Hub, client: Client
) -> None:
    run = MadeRun(root, "run-live")
    await until(lambda: run.id in hub.running.live)
    assert (await client.error("_run/subscribe", run=run.id, after=1000))[0] == -32011
    run.end()


def test_parts_and_outputs_fit_their_own_frames() -> None:
    for kind in (
        method_structs.Part(part="\x01" * 100_000, next=1, length=1, etag="x"),
        method_structs.Output(text="\x01" * 100_000, next=1, length=1),
    ):
        assert len(msgspec.json.encode(kind)) < MAX_FRAME - 4096
