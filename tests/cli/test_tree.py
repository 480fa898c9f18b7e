"""The live tree shows what runs right now, and leaves only the story behind."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable

import pytest
import trio

from callboard.actors.views.run_view import Activity, RunView
from callboard.cli.frame import choose_display
from callboard.cli.render.brief import TAIL, detail, lanes, title
from callboard.cli.render.progress import PlainLines, ProgressDisplay
from callboard.cli.render.tree import LiveTree
from callboard.protocol import events as ev

MakeEvent = Callable[..., ev.Event]


def labels(view: RunView) -> list[object]:
    def walk(activities: Iterable[Activity]) -> list[object]:
        shown = [(title(each), walk(each.below.values())) for each in lanes(activities)]
        return [(name, below) if below else name for name, below in shown]

    return walk(view.roots.values())


def test_lanes_hang_below_their_ancestors_and_close_with_them(event: MakeEvent) -> None:
    view = RunView(text=TAIL)
    call = "/run-1/call"
    view.see(event(ev.NodeEntered(node="call", type="agent"), call))
    view.see(event(ev.GraphStarted(graph="inner", start="a", depth=1), f"{call}/inner"))
    view.see(event(ev.NodeEntered(node="a", type="llm"), f"{call}/inner/a"))
    view.see(event(ev.ToolStarted(tool="search"), f"{call}/inner/a", id="t1"))
    view.see(event(ev.NodeEntered(node="other", type="script"), "/run-1/other"))
    inner = ("inner (graph)", [("a (llm)", ["search"])])
    assert labels(view) == [("call (agent)", [inner]), "other (script)"]
    view.see(event(ev.ToolFinished(tool="search", seconds=1.0), f"{call}/inner/a", id="t1"))
    view.see(event(ev.NodeExited(node="call", seconds=1.0), call))
    assert labels(view) == ["other (script)"]
    view.see(event(ev.NodeExited(node="a", seconds=1.0), f"{call}/inner/a"))
    view.see(event(ev.RunFailed(outcome={})))
    assert labels(view) == []


def test_children_hang_below_their_parent_with_turns_and_calls(event: MakeEvent) -> None:
    view = RunView(text=TAIL)
    boss, kid = "/run-1/boss", "/run-1/boss/children/agent_kid_1/kid"
    view.see(event(ev.AgentStarted(agent="boss"), boss))
    for attempt in (1, 1, 2):
        view.see(event(ev.LlmRequest(model="m", messages=1, attempt=attempt), boss))
    view.see(event(ev.ToolStarted(tool="agent__collect", arguments='{"id":"agent_kid_1"}'), f"{boss}/c", id="c"))
    view.see(event(ev.AgentStarted(agent="kid", depth=1, child="agent_kid_1"), kid))
    view.see(event(ev.ToolStarted(tool="fs_read", arguments='{"path":"src/a.py"}'), f"{kid}/fs_read", id="d"))
    graph = "/run-1/boss/children/agent_coder_2/coder"
    view.see(event(ev.GraphStarted(graph="coder", start="a", depth=1), graph))
    assert labels(view) == [
        (
            "boss (agent), 2 turns",
            [
                "agent__collect id=agent_kid_1",
                ("agent_kid_1 (agent)", ["fs_read path=src/a.py"]),
                "agent_coder_2 (graph)",
            ],
        )
    ]
    view.see(event(ev.ToolFinished(tool="agent__collect", seconds=1.0), f"{boss}/c", id="c"))
    view.see(event(ev.AgentFinished(agent="kid", seconds=1.0, turns=1, tool_calls=1, depth=1), kid))
    view.see(event(ev.GraphFinished(graph="coder", seconds=1.0, depth=1), graph))
    assert labels(view) == ["boss (agent), 2 turns"]


def test_a_lane_tells_what_it_is_at(event: MakeEvent) -> None:
    view = RunView(text=TAIL)
    actor = "/run-1/a"
    view.see(event(ev.NodeEntered(node="a", type="llm"), actor))
    (lane,) = view.roots.values()
    seen = []
    for data in (
        ev.LlmRequest(model="m", messages=1),
        ev.LlmReasoning(text="a secret thought"),
        ev.LlmDelta(text="first\nsec"),
        ev.LlmDelta(text="ond \x1b[31m"),
        ev.LlmRetry(model="m", attempt=1, wait=1.0, error="429"),
        ev.LlmResponse(model="m", seconds=1.0),
        ev.ActorWaiting(on="question"),
        ev.ToolProgress(tool="t", progress=1, total=4, message="rea\x1bding"),
    ):
        view.see(event(data, actor))
        seen.append(detail(lane))
    assert seen == [
        "m",
        "thinking",
        "sec",
        "second \\x1b[31m",
        "retries in 1.0s -- 429",
        "",
        "waits for question",
        "25% rea\\x1bding",
    ]


def test_a_server_that_starts_has_a_lane_until_it_has(event: MakeEvent) -> None:
    view = RunView(text=TAIL)
    actor = "/run-1/boss"
    view.see(event(ev.McpServerStarting(server="time"), actor))
    view.see(event(ev.McpServerStarting(server="old"), actor))
    assert labels(view) == ["MCP server time starts", "MCP server old starts"]
    view.see(event(ev.McpServerStarted(server="time", version="1", protocol="x", seconds=1.0, tools=1), actor))
    view.see(event(ev.McpServerFailed(server="old", error="it died"), actor))
    assert labels(view) == []


@pytest.mark.usefixtures("autojump_clock")
async def test_the_tree_shows_running_nodes_with_their_time(event: MakeEvent, terminal: io.StringIO) -> None:
    with LiveTree(terminal) as tree:
        tree.on_event(event(ev.NodeEntered(node="plan", type="llm"), "/run-1/plan"))
        await animated(tree)
    seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert re.search(r"plan \(llm\)  \d\.\ds", seen)
    assert seen.count("plan (llm) start") == 1
    assert "in all" not in seen


@pytest.mark.usefixtures("autojump_clock")
async def test_the_time_of_a_run_says_what_it_is(event: MakeEvent, terminal: io.StringIO) -> None:
    with LiveTree(terminal) as tree:
        tree.on_event(event(ev.RunStarted(target="x", name="x", dialect="graph")))
        tree.on_event(event(ev.NodeEntered(node="plan", type="llm"), "/run-1/plan"))
        await animated(tree)
    assert re.search(r"\d\.\ds in all", terminal.getvalue())


@pytest.mark.usefixtures("autojump_clock")
async def test_a_prompt_has_the_screen_for_itself_and_lines_wait(event: MakeEvent, terminal: io.StringIO) -> None:
    with LiveTree(terminal) as tree:
        tree.on_event(event(ev.NodeEntered(node="plan", type="llm"), "/run-1/plan"))
        with tree.aside():
            before = terminal.getvalue()
            tree.on_event(event(ev.NodeExited(node="plan", seconds=1.0, next=["b"]), "/run-1/plan"))
            await animated(tree)
            assert terminal.getvalue() == before
        assert "plan done in 1.00s -> b" in terminal.getvalue()


@pytest.mark.usefixtures("autojump_clock")
async def test_more_than_fits_is_counted(
    event: MakeEvent, terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", "20")
    with LiveTree(terminal) as tree:
        for item in range(1000):
            tree.on_event(event(ev.NodeEntered(node="m", type="llm", item=item), f"/run-1/map/m#{item}"))
        await animated(tree)
    assert "990 more running" in terminal.getvalue()


async def animated(tree: LiveTree) -> None:
    """Lets the tree draw itself a few times."""
    with trio.move_on_after(0.25):
        await tree.animate()


def test_the_way_of_showing_fits_the_stream(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(choose_display(terminal, quiet=True, verbose=False)) is ProgressDisplay
    assert isinstance(choose_display(terminal, quiet=False, verbose=False), LiveTree)
    assert isinstance(choose_display(terminal, quiet=False, verbose=False, shared=True), PlainLines)
    assert isinstance(choose_display(io.StringIO(), quiet=False, verbose=False), PlainLines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(choose_display(terminal, quiet=False, verbose=False), PlainLines)
