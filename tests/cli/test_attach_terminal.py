"""`callboard attach` as processes at real terminals: prompts, keys, signals, servers that die."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from support.control_server import ControlServer
from support.fake_models import FakeModels, Reply
from support.screen import Screen
from support.starter import CALLBOARD
from support.waiting import PATIENCE, until

from callboard.actors.front.server.token_file import read_servers
from callboard.cli.control.client import open_client
from callboard.cli.control.servers import Where, find_server
from callboard.protocol.control import method_structs
from callboard.protocol.control.caller import LOCAL

COMMAND = CALLBOARD

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
start: say
nodes:
  say: {type: llm, prompt: "{{initial_prompt}}", state_updates: {said: "{{output}}"}, next: end}
  end: {type: end, output: "{{said}}"}
"""


@pytest.fixture
def second() -> Iterator[Screen]:
    """Another terminal."""
    screen = Screen()
    yield screen
    screen.close()


async def started(nursery: trio.Nursery, *arguments: str, screen: Screen | None = None, **more: str) -> trio.Process:
    end = screen.slave if screen else None
    return await nursery.start(
        lambda task_status: trio.run_process(
            [*COMMAND, *arguments],
            stdin=end if end is not None else subprocess.DEVNULL,
            stderr=end if end is not None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1", **more},
            check=False,
            task_status=task_status,
        )
    )


async def everything(stream: trio.abc.ReceiveStream | None) -> bytes:
    assert stream is not None
    return b"".join([piece async for piece in stream])


async def until_told(stream: trio.abc.ReceiveStream | None, pattern: str) -> str:
    assert stream is not None
    text = ""
    with trio.fail_after(PATIENCE):
        while not re.search(pattern, text):
            piece = await stream.receive_some()
            assert piece, text
            text += bytes(piece).decode()
    return text


async def begun(control_server: ControlServer, prompt: str = "Go") -> tuple[str, str]:
    """A run that has asked: its id, and the question's. Called in a thread: the server has one of its own."""

    def begin() -> tuple[str, str]:
        control_server.agent("gate", GATE)
        run = control_server.start("gate", prompt).run
        return run, control_server.asked(run)

    return await trio.to_thread.run_sync(begin)


async def test_a_person_answers_at_the_terminal(
    control_server: ControlServer, screen: Screen, nursery: trio.Nursery
) -> None:
    run, _ = await begun(control_server)
    before = screen.modes()
    process = await started(nursery, "attach", run, screen=screen)
    await screen.shows(r"gate \(approval\) start[\s\S]*\? gate asks\s+Go\?[\s\S]*then enter")
    screen.press("\r")
    assert await everything(process.stdout) == b"said yes\n"
    assert await process.wait() == 0
    await screen.shows(r"= yes")
    assert "answered by" not in screen.text
    assert screen.modes() == before


async def test_of_two_attached_terminals_one_answers_and_the_other_is_told(
    control_server: ControlServer, screen: Screen, second: Screen, nursery: trio.Nursery
) -> None:
    run, _ = await begun(control_server)
    processes = [await started(nursery, "attach", run, screen=each) for each in (screen, second)]
    for each in (screen, second):
        await each.shows(r"\? gate asks\s+Go\?[\s\S]*then enter")
    second.press("\x1b[B")
    second.press("\r")
    for process in processes:
        assert await everything(process.stdout) == b"said no\n"
        assert await process.wait() == 0
    await screen.shows("gate asks: Go\\?[\\s\\S]*answered by local: no")
    await second.shows("= no")
    assert "answered by" not in second.text


@pytest.mark.parametrize("how", ["key", "signal"])
async def test_ctrl_c_detaches_and_the_run_goes_on(
    control_server: ControlServer, screen: Screen, nursery: trio.Nursery, how: str
) -> None:
    run, question = await begun(control_server)
    before = screen.modes()
    process = await started(nursery, "attach", run, screen=screen)
    await screen.shows(r"then enter")
    if how == "key":
        screen.press("\x03")
    else:
        process.send_signal(signal.SIGINT)
    assert await process.wait() == 130
    await screen.shows(rf"callboard: detached; {run} continues \(callboard attach {run}")
    assert screen.modes() == before

    def check() -> None:
        assert control_server.get(run).status == "waiting"
        assert control_server.answer(question, "yes")
        assert control_server.ended(run).status == "done"

    await trio.to_thread.run_sync(check)


async def test_without_a_person_it_says_how_to_answer_and_a_signal_says_as_json_that_it_is_detached(
    control_server: ControlServer, nursery: trio.Nursery
) -> None:
    run, question = await begun(control_server)
    process = await started(nursery, "attach", run, "-o", "json")
    await until_told(process.stderr, rf"to answer it: callboard answer {question} TEXT")
    process.send_signal(signal.SIGTERM)
    out = json.loads(await everything(process.stdout))
    assert (await process.wait(), out) == (143, {"schema_version": 1, "run_id": run, "detached": True})


async def test_a_reader_that_leaves_ends_the_looking_quietly_and_not_the_run(
    control_server: ControlServer, nursery: trio.Nursery
) -> None:
    run, question = await begun(control_server)
    process = await started(nursery, "attach", run, "-o", "stream-json", "-q")
    await until_told(process.stdout, "question.asked")
    assert process.stdout is not None
    await process.stdout.aclose()
    await trio.to_thread.run_sync(control_server.answer, question, "yes")
    assert await everything(process.stderr) == b""
    assert await process.wait() == 141
    assert (await trio.to_thread.run_sync(control_server.ended, run)).status == "done"


async def test_a_connection_that_is_cut_costs_no_event_and_nothing_comes_twice(
    control_server: ControlServer, nursery: trio.Nursery
) -> None:
    run, question = await begun(control_server)
    process = await started(nursery, "attach", run, "-o", "stream-json")
    out = await until_told(process.stdout, "question.asked.*\n")
    await trio.to_thread.run_sync(control_server.drop)
    await trio.to_thread.run_sync(control_server.answer, question, "no")
    events = [json.loads(line) for line in (out + (await everything(process.stdout)).decode()).splitlines()]
    assert await process.wait() == 0
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["data"]["outcome"]["output"] == "said no"


async def test_a_client_that_stood_still_has_every_event_in_the_end(
    control_server: ControlServer, nursery: trio.Nursery
) -> None:
    go = trio.Event()

    def begin() -> str:
        control_server.agent("talk", TALK)
        control_server.models.script(Reply("word " * 1600, piece=4, hold=go))
        return control_server.start("talk").run

    run = await trio.to_thread.run_sync(begin)
    process = await started(nursery, "attach", run, "-o", "stream-json", "-q")
    await until_told(process.stdout, "llm.request")
    process.send_signal(signal.SIGSTOP)
    await trio.to_thread.run_sync(control_server.call, go.set)
    await trio.to_thread.run_sync(control_server.ended, run)
    process.send_signal(signal.SIGCONT)
    rest = await everything(process.stdout)
    assert await process.wait() == 0
    last = json.loads(rest.splitlines()[-1])
    assert last["kind"] == "run.finished"
    logged = await trio.to_thread.run_sync(control_server.call, control_server.hub.get, LOCAL, run)
    assert last["seq"] == logged.seq
    numbers = [json.loads(line)["seq"] for line in rest.splitlines()[1:]]
    assert numbers == list(range(numbers[0], last["seq"] + 1))


async def test_a_server_that_dies_in_the_middle_is_told_with_what_to_do(
    tmp_path: Path, fake_model: FakeModels, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    config = fake_model.config_dir(tmp_path / "config")
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(config))
    agent = config / "agents" / "gate"
    agent.mkdir(parents=True)
    (agent / "graph.yaml").write_text(f"name: gate\n{GATE}")
    server = await started(nursery, "serve", "--port", "0")
    await until_told(server.stderr, "serving at")
    begun = await started(nursery, "ps", "-o", "json")
    url = json.loads(await everything(begun.stdout))["server"]
    (found,) = read_servers(os.environ)
    assert found.url == url
    run = await start_at(found.url, found.token, nursery)
    attached = await started(nursery, "attach", run)
    await until_told(attached.stderr, "gate asks: Go")
    await until((tmp_path / "state" / "callboard" / "runs" / run / "run.json").exists)  # what a kill leaves
    server.kill()
    told = (await everything(attached.stderr)).decode()
    assert await attached.wait() == 6
    assert re.search(rf"callboard: the server at {url} has ended \(process {server.pid}\); .* runs show {run}", told)
    gone = await started(nursery, "runs", "show", run)
    said = await everything(gone.stdout)
    assert b"interrupted" in said, await everything(gone.stderr)


async def start_at(url: str, token: str, nursery: trio.Nursery) -> str:
    """Start a run of `gate` at a server that is another process."""
    server = find_server(Where(url=url, token=token), {})
    async with open_client(server) as client:
        return (await client.ask("_run/start", method_structs.OneRun, target="gate", prompt="Go")).run.run
    raise AssertionError
