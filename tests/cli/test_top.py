"""`callboard top`: what is shown of many actors, what keys do, and the program at a real terminal."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from support.control_server import ControlServer
from support.cpu_time import slowness
from support.fake_models import Reply
from support.messages import fragment
from support.screen import Screen
from support.starter import CALLBOARD
from support.waiting import PATIENCE

from callboard.cli.control.commands.actor_table import SORTS, ActorTable, ScreenRow, about, below
from callboard.cli.control.commands.top import KeyReader
from callboard.cli.control.commands.top import Screen as Drawn
from callboard.protocol.control.resources import ActorDetail, ActorInfo

Callboard = Callable[..., "tuple[int, str, str]"]

COMMAND = CALLBOARD
NOW = datetime(2026, 11, 3, 12, 0, 0, tzinfo=UTC)

GATE = """
start: gate
nodes:
  gate:
    type: approval
    question: "{{initial_prompt}}?"
    options: ["yes", "no"]
    routes: {"yes": end, "no": end}
    on_other: end
    state_updates: {choice: "{{choice}}"}
  end: {type: end, output: "said {{choice}}"}
"""


TALK = """
start: one
nodes:
  one: {type: llm, prompt: "{{initial_prompt}}", next: two}
  two: {type: llm, prompt: "{{initial_prompt}}", next: end}
  end: {type: end}
"""


WORK = """
start: work
nodes:
  work: {type: script, script: work.sh, timeout: 600, next: end}
  end: {type: end}
"""


def actor(path: str, **more: Any) -> ActorInfo:
    above, _, name = path.rpartition("/")
    return ActorInfo(path=path, parent=above, name=name, **{"run": "run-1"} | more)


def table(*actors: ActorInfo) -> ActorTable:
    table = ActorTable()
    table.take({each.path: each for each in actors})
    return table


def paths(rows: list[ActorInfo]) -> list[str]:
    return [row.path for row in rows]


# --- the table ---------------------------------------------------------------------------------------------


def test_a_row_tells_what_an_actor_does_and_for_how_long() -> None:
    one = actor(
        "/run-1/plan",
        state="waiting",
        mailbox=3,
        received=7,
        sent=9,
        turns=2,
        input_tokens=12_000,
        output_tokens=345,
        cost=0.0123,
        memory=12_345_678,
        restarts=1,
        kind="agent",
        events=1200,
        last_event="llm.request",
        doing="fake:model",
        doing_since="2026-11-03T11:59:18Z",
    )
    shown = table(one)
    assert shown.head(160).split() == [
        "PATH",
        "STATE",
        "KIND",
        "MAIL",
        "IN",
        "OUT",
        "TURNS",
        "TOKENS",
        "COST",
        "MEM",
        "RST",
        "EVTS",
        "LAST",
        "DOING",
    ]
    (row,) = shown.body(160, 10, NOW)
    assert row.text.split() == [
        ">",
        "/run-1/plan",
        "waiting",
        "agent",
        "3",
        "7",
        "9",
        "2",
        "12.3k",
        "$0.0123",
        "12.3M",
        "1",
        "1.2k",
        "llm.request",
        "42s",
        "fake:model",
    ]


@given(
    st.text(max_size=60),
    st.text(max_size=60),
    st.integers(10, 200),
)
def test_a_row_is_as_wide_as_the_screen_whatever_is_in_it(name: str, doing: str, width: int) -> None:
    (row,) = table(actor(f"/run-1/{name}", doing=doing, last_event=name)).body(width, 5, NOW)
    assert cell_len(row.text) == width
    assert row.text.isprintable() or not {char for char in row.text if ord(char) < 32 or 127 <= ord(char) < 160}


def test_columns_go_one_by_one_when_there_is_less_room_and_path_state_and_doing_stay() -> None:
    shown = table(actor("/run-1/a"))
    heads = [shown.head(width).split() for width in range(140, 45, -1)]
    assert heads[0] != heads[-1]
    assert heads[-1] == ["PATH", "STATE", "DOING"]
    for wide, narrow in itertools.pairwise(heads):
        assert set(narrow) <= set(wide)


def test_a_long_path_shows_its_end() -> None:
    (row,) = table(actor("/run-1/" + "deep/" * 40 + "leaf")).body(80, 5, NOW)
    assert re.search(r"> …\S*/leaf +running", row.text)


def test_the_tree_is_sorted_so_that_children_follow_their_parents() -> None:
    shown = table(actor("/a-b"), actor("/a/c"), actor("/a"), actor("/a/b/x"))
    assert paths(shown.rows) == ["/a", "/a/b/x", "/a/c", "/a-b"]


def test_every_order_shows_every_actor_and_the_most_first() -> None:
    actors = [
        actor("/a", mailbox=1, cost=3.0, doing_since="2026-01-02", input_tokens=2),
        actor("/b", mailbox=2, cost=1.0, doing_since="2026-01-01", input_tokens=3, restarts=1),
        actor("/c", events=7),
    ]
    shown = table(*actors)
    first = {}
    for _ in SORTS:
        assert len(shown.rows) == 3
        first[shown.sort] = shown.rows[0].path
        shown.next_sort()
    assert first == {"path": "/a", "time": "/b", "mail": "/b", "tokens": "/b", "cost": "/a", "restarts": "/b"} | {
        "events": "/c"
    }
    assert shown.sort == "path"
    shown.next_sort(-1)
    assert shown.sort == "events"


def test_the_cursor_stays_with_its_actor_and_moves_on_when_that_is_gone() -> None:
    shown = table(*(actor(f"/{name}") for name in "abcd"))
    shown.move(2)
    shown.take({path: actor(path) for path in ("/0", "/c", "/d")})
    assert shown.chosen is not None
    assert shown.chosen.path == "/c"
    shown.take({path: actor(path) for path in ("/0", "/d")})
    assert shown.chosen.path == "/d"
    shown.take({})
    assert shown.chosen is None
    assert shown.body(80, 5) == []


def test_a_filter_looks_at_path_state_and_doing_in_any_case() -> None:
    shown = table(actor("/Plan"), actor("/b", doing="plan it"), actor("/c", paused=True))
    shown.narrow("PLAN")
    assert paths(shown.rows) == ["/Plan", "/b"]
    shown.narrow("paused")
    assert paths(shown.rows) == ["/c"]


def test_own_actors_are_hidden_until_they_are_wanted_and_then_stand_below_those_of_runs() -> None:
    shown = table(actor("/control", run=""), actor("/run-1"), actor("/mcp/time", run=""), actor("/run-1/a"))
    assert paths(shown.rows) == ["/run-1", "/run-1/a"]
    shown.turn_plumbing()
    assert paths(shown.rows) == ["/run-1", "/run-1/a", "/control", "/mcp/time"]
    shown.turn_plumbing()
    assert paths(shown.rows) == ["/run-1", "/run-1/a"]


def test_all_actors_below_one_are_counted_at_any_depth() -> None:
    there = ["/run-1", "/run-1/a", "/run-1/a/b/c", "/run-10", "/run-1/ab"]
    assert [below(path, there) for path in ("/run-1", "/run-1/a", "/run-10")] == [3, 1, 0]


@given(st.lists(st.integers(-7, 7), max_size=30), st.integers(1, 9), st.integers(0, 20))
def test_the_cursor_is_always_on_the_screen(moves: list[int], height: int, many: int) -> None:
    shown = table(*(actor(f"/{number:02}") for number in range(many)))
    for by in moves:
        shown.move(by)
        marked = [row for row in shown.body(80, height, NOW) if row.text.startswith(">")]
        assert len(marked) == min(many, 1)


def test_a_thousand_actors_cost_little_to_draw() -> None:
    shown = table(*(actor(f"/run-1/map/item[{n}]", doing="x", doing_since="2026-11-03T11:00:00Z") for n in range(1000)))
    shown.body(160, 50, NOW)
    begun = time.process_time()
    for _ in range(20):
        shown.take(dict(shown._actors))  # as after a change
        shown.body(160, 50, NOW)
    assert (time.process_time() - begun) / 20 < 0.1 * slowness()  # measured: 4 ms


def test_one_actor_is_shown_with_its_events_and_its_stack_and_nothing_is_sent_raw() -> None:
    event = {"ts": "2026-11-03T12:00:00Z", "kind": "node.entered", "data": {"node": "\x1b[2J"}}
    detail = ActorDetail(
        path="/a\x1b[2J",
        parent="",
        name="a",
        doing="x",
        recent=[msgspec.Raw(msgspec.json.encode(event)), msgspec.Raw(b"{}")],
        stack="  File x\n    await \x9bsleep()\n",
    )
    text = "\n".join(row.text for row in about(detail))
    assert "path      /a\\x1b[2J" in text
    assert "node.entered" in text
    assert "    await \\x9bsleep()" in text
    assert not set(text) & {"\x1b", "\x9b"}


# --- keys --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("\x1b[A\x1b[Bjk", ["up", "down", "j", "k"]),
        ("\x1bOA\x1b[5~\x1b[6~\x1b[H\x1b[4~", ["up", "pgup", "pgdn", "home", "end"]),
        ("\r\n\x7f\x04", ["enter", "enter", "backspace", "eof"]),
        ("\x1b[1;5Cx\x1b[24~y", ["x", "y"]),
        ("é漢", ["é", "漢"]),
        ("\x1bq", ["esc", "q"]),
        ("\x01\x02a", ["a"]),
    ],
)
async def test_keys_go_by_their_names(typed: str, keys: list[str]) -> None:
    reader, writer = os.pipe()
    try:
        for byte in typed.encode():  # as slowly as a terminal may send them
            os.write(writer, bytes([byte]))
        source = KeyReader(reader)
        with trio.fail_after(PATIENCE):
            assert [await source.get() for _ in keys] == keys
    finally:
        os.close(reader)
        os.close(writer)


async def test_an_escape_alone_is_a_key_after_a_moment_and_an_end_is_one_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"\x1b")
    keys = KeyReader(reader)
    assert await keys.get() == "esc"
    os.close(writer)
    assert await keys.get() == "eof"
    os.close(reader)


# --- drawing -----------------------------------------------------------------------------------------------


def test_only_rows_that_differ_are_drawn() -> None:
    reader, writer = os.pipe()
    drawn = Drawn(reader, writer, coloured=False)
    drawn.show([ScreenRow("one"), ScreenRow("two", "here"), ScreenRow("wide" * 30)])
    first = os.read(reader, 65536).decode()
    assert "\x1b[1;1H\x1b[2Kone" in first
    assert "\x1b[2;1H\x1b[2K\x1b[7mtwo\x1b[0m" in first
    assert "wide" * 20 in first
    assert "wide" * 21 not in first
    drawn.show([ScreenRow("one"), ScreenRow("TWO"), ScreenRow("wide" * 30)])
    assert os.read(reader, 65536).decode() == "\x1b[2;1H\x1b[2KTWO"
    os.close(reader)
    os.close(writer)


# --- without a terminal ------------------------------------------------------------------------------------


def test_where_there_is_no_terminal_it_prints_what_is_there_once(
    callboard: Callboard, control_server: ControlServer
) -> None:
    control_server.agent("gate", GATE)
    run = control_server.start("gate", "Go").run
    control_server.asked(run)
    code, out, _err = callboard("top")
    rows = [line.split() for line in out.splitlines()]
    assert code == 0
    assert rows[0] == [
        "PATH",
        "STATE",
        "KIND",
        "MAIL",
        "IN",
        "OUT",
        "TURNS",
        "TOKENS",
        "COST",
        "MEM",
        "RST",
        "EVTS",
        "LAST",
        "DOING",
    ]
    assert f"/{run}" in [row[0] for row in rows]
    whole = json.loads(callboard("top", run, "-o", "json")[1])
    assert whole["schema_version"] == 1
    assert {each["run"] for each in whole["actors"]} == {run}
    assert callboard("top", "run-zz")[0] == 2


def test_processes_of_a_run_are_listed_with_the_memory_that_they_take(
    callboard: Callboard, control_server: ControlServer
) -> None:
    control_server.agent("work", WORK)
    (control_server.config_dir / "agents" / "work" / "work.sh").write_text("sleep 600\n")
    run = control_server.start("work", "").run
    deadline = time.monotonic() + PATIENCE
    found: list[Any] = []
    while not any(each["memory"] > 500_000 for each in found if "work.sh" in each["path"]):  # its shell's resident set
        assert time.monotonic() < deadline, found
        whole = json.loads(callboard("top", run, "-o", "json")[1])
        found = whole["actors"]
    assert whole["memory"] > 10_000_000
    assert all(0 < each["memory"] < 100_000 for each in found if each["kind"] in ("run", "graph")), found
    assert re.search(r"/work/.*work.sh.* \d+\.\dM ", callboard("top", run, "-o", "text")[1])


# --- at a terminal -----------------------------------------------------------------------------------------


async def begun(control_server: ControlServer, screen: Screen, nursery: trio.Nursery) -> tuple[str, trio.Process]:
    """A run that has asked, and `top` on the screen, showing it."""

    def begin() -> str:
        control_server.agent("gate", GATE)
        run = control_server.start("gate", "Go").run
        control_server.asked(run)
        return run

    run = await trio.to_thread.run_sync(begin)
    process = await opened(screen, nursery)
    await sees(screen, rf"1 open question[\s\S]*PATH[\s\S]*\? /{run}/gate/gate +waiting")
    return run, process


async def opened(screen: Screen, nursery: trio.Nursery) -> trio.Process:
    """`top` on the screen."""
    process: trio.Process = await nursery.start(
        lambda task_status: trio.run_process(
            [*COMMAND, "top"],
            stdin=screen.slave,
            stdout=screen.slave,
            stderr=subprocess.PIPE,
            env={**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"},
            check=False,
            task_status=task_status,
        )
    )
    return process


def picture(text: str) -> str:
    """What the last of the pictures drawn looks like: row by row, of what was written to the alternate screen."""
    rows: dict[int, str] = {}
    for number, row in re.findall(
        r"\x1b\[(\d+);1H\x1b\[2K([^\x1b]*(?:\x1b\[[\d;]*m[^\x1b]*)*)", text.rpartition("\x1b[?1049h")[2]
    ):
        rows[int(number)] = re.sub(r"\x1b\[[\d;]*m", "", row).rstrip()
    return "\n".join(rows[number] for number in sorted(rows))


async def sees(screen: Screen, pattern: str) -> None:
    """Wait until the picture has this in it."""
    try:
        with trio.fail_after(PATIENCE):
            while not re.search(pattern, picture(screen.text)):
                await trio.lowlevel.wait_readable(screen.master)
                screen.text += os.read(screen.master, 65536).decode()
    except trio.TooSlowError:
        raise AssertionError(f"never seen: {pattern}\n{picture(screen.text)}") from None


async def press(screen: Screen, keys: str, pattern: str) -> None:
    """Press, and wait for it to show in the picture."""
    screen.press(keys)
    await sees(screen, pattern)


@pytest.mark.usefixtures("control_server")
async def test_where_nothing_is_at_work_it_says_how_a_run_begins(screen: Screen, nursery: trio.Nursery) -> None:
    process = await opened(screen, nursery)
    await sees(screen, r"no run is under way\s+to start one: callboard run AGENT PROMPT --on http")
    screen.press("q")
    assert await process.wait() == 0


async def test_keys_move_look_closer_filter_sort_and_quit_and_the_terminal_is_as_before(
    control_server: ControlServer, screen: Screen, nursery: trio.Nursery
) -> None:
    before = screen.modes()
    run, process = await begun(control_server, screen, nursery)
    assert screen.text.startswith("\x1b[?1049h")
    assert screen.modes() != before
    await press(screen, "/gate/gate", r"1 of \d+ actors with 'gate/gate'")
    await press(screen, "\r", rf"> /{run}/gate/gate ")
    await press(screen, "\r", rf"path      /{run}/gate/gate[\s\S]*last events[\s\S]*question\.asked")
    await press(screen, "q", r"by path")
    await press(screen, "\x1b", rf"> /{run} ")
    await press(screen, "s", r"by time")
    await press(screen, "k", r"> /")
    screen.press("q")
    assert await process.wait() == 0
    await screen.shows(r"\x1b\[\?1049l")
    assert screen.modes() == before


async def test_a_question_is_answered_from_the_table(
    control_server: ControlServer, screen: Screen, nursery: trio.Nursery
) -> None:
    run, process = await begun(control_server, screen, nursery)
    screen.press("a")
    await screen.shows(r"\x1b\[\?1049l[\s\S]*\? gate asks\s+Go\?[\s\S]*then enter")
    screen.press("\x1b[B")
    await screen.shows(r"> 2\. no")
    await press(screen, "\r", r"q1 answered")
    assert (await trio.to_thread.run_sync(control_server.ended, run)).output == "said no"
    await press(screen, "a", r"no question is open")
    await sees(screen, r"no run is under way[\s\S]*callboard run AGENT PROMPT --on http://")
    await press(screen, "/nowhere", r"no actor matches the filter")
    await press(screen, "\x1b", r"by path")
    screen.press("q")
    assert await process.wait() == 0


async def test_a_question_that_another_answers_is_withdrawn_from_the_screen(
    control_server: ControlServer, screen: Screen, nursery: trio.Nursery
) -> None:
    run, process = await begun(control_server, screen, nursery)
    screen.press("a")
    await screen.shows(r"\? gate asks[\s\S]*then enter")
    await trio.to_thread.run_sync(lambda: control_server.answer(control_server.asked(run), "yes"))
    await sees(screen, "was not answered")
    screen.press("q")
    assert await process.wait() == 0


async def test_pause_and_cancel_ask_before_anything_is_lost(
    control_server: ControlServer, screen: Screen, nursery: trio.Nursery
) -> None:
    run, process = await begun(control_server, screen, nursery)
    await press(screen, f"/{run}/gate/gate\r", rf"> /{run}/gate/gate")
    await press(screen, "p", r"starts no new work[\s\S]*")
    await press(screen, "p", r"goes on")
    await press(screen, "c", rf"cancel /{run}/gate/gate\? y: yes")
    await press(screen, "n", fragment("cli.control.commands.top.Top._cancel.3"))
    assert (await trio.to_thread.run_sync(control_server.get, run)).status == "waiting"
    await press(screen, "c", r"y: yes")
    await press(screen, "y", r"asked to end")
    assert (await trio.to_thread.run_sync(control_server.ended, run)).status in ("cancelled", "failed")
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 130
    await screen.shows(r"\x1b\[\?1049l")


async def test_what_a_run_has_used_is_shown_while_it_goes_on(
    control_server: ControlServer, screen: Screen, nursery: trio.Nursery
) -> None:
    _, process = await begun(control_server, screen, nursery)
    go = trio.Event()

    def begin() -> str:
        control_server.agent("talk", TALK)
        control_server.models.script("one", Reply("two", hold=go))
        return control_server.start("talk", "Hi").run

    run = await trio.to_thread.run_sync(begin)
    await sees(screen, rf"15 tokens[\s\S]*/{run} +running +15")
    await sees(screen, r"\d+ MB of memory")
    await sees(screen, rf"/{run} +running[^\n]*unpriced")
    await trio.to_thread.run_sync(control_server.call, go.set)
    await sees(screen, r"1 run\b")
    screen.press("q")
    assert await process.wait() == 0


async def test_cancelling_a_run_counts_all_that_ends_with_it(
    control_server: ControlServer, screen: Screen, nursery: trio.Nursery
) -> None:
    run, process = await begun(control_server, screen, nursery)
    await press(screen, f"/{run}\r", rf"> /{run} ")
    await press(screen, "c", rf"cancel /{run} and the 2 actors below it\? y: yes")
    await press(screen, "n", fragment("cli.control.commands.top.Top._cancel.3"))
    await press(screen, "\x1bo", r"  /control ")
    screen.press("q")
    assert await process.wait() == 0


async def test_keys_mean_the_actor_that_is_looked_at_closely(
    control_server: ControlServer, screen: Screen, nursery: trio.Nursery
) -> None:
    run, process = await begun(control_server, screen, nursery)
    await press(screen, "/gate/gate\r\r", rf"path      /{run}/gate/gate")
    await press(screen, "p", r"starts no new work[\s\S]*")
    await press(screen, "p", r"goes on")
    await press(screen, "c", rf"cancel /{run}/gate/gate\? y: yes")
    await press(screen, "y", r"asked to end|or it has ended")  # the next look finds it gone
    assert (await trio.to_thread.run_sync(control_server.ended, run)).over
    await press(screen, "q", r"by path")
    screen.press("q")
    assert await process.wait() == 0


async def test_after_a_cut_it_shows_what_has_come_meanwhile(
    control_server: ControlServer, screen: Screen, nursery: trio.Nursery
) -> None:
    run, process = await begun(control_server, screen, nursery)
    await trio.to_thread.run_sync(control_server.drop)
    another = (await trio.to_thread.run_sync(control_server.start, "gate", "More")).run
    await sees(screen, rf"2 open questions[\s\S]*/{another}/gate/gate +waiting")
    assert run != another
    screen.press("q")
    assert await process.wait() == 0
