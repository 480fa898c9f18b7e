"""The official SDK as a client of `callboard mcp serve`, in both eras, over stdio and HTTP."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trio
from interop.environments import HERE, MODERN, needs
from support.fake_models import FakeModels, Reply
from support.waiting import PATIENCE

from callboard.protocol.mcp.model import HANDSHAKE
from callboard.protocol.mcp.model import MODERN as NEWEST
from callboard.supervisors import Actor
from callboard.supervisors.process import start_process

pytestmark = needs("modern")

CALLBOARD = str(Path(sys.executable).with_name("callboard"))
SIDES = [
    ("stdio", "auto"),
    pytest.param(("http", "legacy"), marks=pytest.mark.soak),
    pytest.param(("stdio", "legacy"), marks=pytest.mark.soak),
    pytest.param(("http", "auto"), marks=pytest.mark.soak),
]
TOKEN = "open-sesame"

GREETER = """
name: greeter
description: Says hello.
initial_state: {mood: cheerful}
start: think
nodes:
  think: {type: script, script: think.sh, next: done}
  done: {type: end, output: "hello {{initial_prompt}}, I am {{mood}}"}
"""
ASKER = """
name: asker
start: choose
nodes:
  choose: {type: approval, question: "Which?", options: [red, blue], routes: {red: name, blue: name}, on_other: name,
           state_updates: {colour: "{{choice}}"}}
  name: {type: input, question: "Your name?", validation: "len(input) >= 2", next: done,
         state_updates: {name: "{{input}}"}}
  done: {type: end, output: "{{name}} chose {{colour}}"}
"""
SLOW = """
name: slow
start: work
nodes:
  work: {type: script, script: work.sh, timeout: 120, next: done}
  done: {type: end, output: done}
"""
LOOK = """
name: look
start: work
nodes:
  work: {type: script, script: look.sh, next: done}
  done: {type: end, output: "it is {{seen}}"}
"""
BROKEN = """
name: broken
start: work
nodes:
  work: {type: input, question: "What is {{nothing}}?", next: done}
  done: {type: end, output: done}
"""
CLERK = """
name: clerk
description: Knows everything.
instructions: You are {{who}}.
variables: [{name: who, description: Whom to play., default: a clerk}]
"""

Play: TypeAlias = Callable[..., Awaitable[dict[str, Any]]]


def write_agents(agents: Path) -> None:
    """What is served. `look` tells whether the process that `slow` has started is still there, or waits for its end."""
    files = {
        "greeter/graph.yaml": GREETER,
        "greeter/think.sh": "echo '{}'\n",
        "asker/graph.yaml": ASKER,
        "slow/graph.yaml": SLOW,
        "slow/work.sh": f"echo $$ > {agents}/new; mv {agents}/new {agents}/pid; sleep 60\n",
        "look/graph.yaml": LOOK,
        "look/look.sh": f"""
            for _ in $(seq 2400); do
                kill -0 "$(cat {agents}/pid)" 2> /dev/null || {{ echo '{{"seen": "gone"}}'; exit; }}
                sleep 0.05
            done
            echo '{{"seen": "there"}}'
        """,
        "broken/graph.yaml": BROKEN,
        "clerk/config.yaml": CLERK,
    }
    for name, text in files.items():
        path = agents / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def config_dir(tmp_path: Path, fake_model: FakeModels) -> Path:
    """A configuration directory with these agents and the scripted model."""
    write_agents(tmp_path / "agents")
    directory = fake_model.config_dir(tmp_path)
    file = directory / "config.yaml"  # the scripts tell each other pids of the machine
    file.write_text(json.dumps({**json.loads(file.read_text()), "sandbox": "off"}))
    return directory


@pytest.fixture(params=SIDES, ids="-".join)
async def play(request: pytest.FixtureRequest, me: Actor, config_dir: Path) -> AsyncIterator[Play]:
    """`await play(step, ..., elicit=...)` is what the client prints (see clients/sdk.py)."""
    transport, mode = request.param
    serve = [CALLBOARD, "mcp", "serve", "--config-dir", str(config_dir)]
    plan: dict[str, Any] = {"mode": mode, "target": serve}
    if transport == "http":
        plan |= {"target": await listening(me, serve, config_dir), "token": TOKEN}

    async def played(*steps: Any, elicit: Any = None) -> dict[str, Any]:
        done = await trio.run_process(
            [str(MODERN / "python"), str(HERE / "clients/sdk.py")],
            stdin=json.dumps({**plan, "elicit": elicit, "steps": steps}).encode(),
            capture_stdout=True,
        )
        seen: dict[str, Any] = json.loads(done.stdout)
        assert (seen["server"], seen["version"]) == ("callboard", NEWEST if mode == "auto" else HANDSHAKE[0])
        return seen

    with trio.fail_after(PATIENCE):
        yield played


async def listening(me: Actor, serve: list[str], directory: Path) -> str:
    """The URL of a server that ends with `me`."""
    (directory / "token").write_text(TOKEN)
    urls, found = trio.open_memory_channel[str](1)

    def on_stderr(line: str) -> None:
        if url := re.search(r"http://\S+", line):
            urls.send_nowait(url[0])

    options = ("--http", "--port", "0", "--token-file", str(directory / "token"))
    await start_process(me, [*serve, *options], stdout="null", on_stderr=on_stderr)
    with trio.fail_after(PATIENCE):
        return await found.receive()


def call(name: str, **arguments: Any) -> list[Any]:
    """A step."""
    return ["call", {"name": name, "arguments": arguments}]


async def test_agents_are_listed_and_called_and_tell_their_progress(play: Play, fake_model: FakeModels) -> None:
    fake_model.script(Reply(text="Certainly."))
    seen = await play(
        ["list", {}],
        call("greeter", prompt="world", state={"mood": "calm"}),
        call("clerk", prompt="hi", variables={"who": "a king"}),
        call("broken"),
        call("nobody"),
    )
    tools, greeter, clerk, broken, nobody = seen["results"]
    assert {tool["name"] for tool in tools} == {"asker", "broken", "clerk", "greeter", "look", "slow"}
    assert greeter["content"][0]["text"] == "hello world, I am calm"
    assert greeter["structuredContent"]["status"] == "done"
    counts = [progress for progress, _total, _message in greeter["progress"]]
    assert counts == sorted(set(counts))
    assert any("think" in message for _progress, _total, message in greeter["progress"])
    assert clerk["content"][0]["text"] == "Certainly."
    assert "You are a king." in json.dumps(fake_model.requests[0].json)
    assert broken["isError"]
    assert "nothing" in broken["content"][0]["text"]
    assert "nobody" in nobody["error"]


async def test_a_cancelled_call_ends_the_run_and_the_server_goes_on(play: Play, config_dir: Path) -> None:
    once = str(config_dir / "agents/pid")
    seen = await play(["cancel", {"name": "slow", "arguments": {}, "once": once}], call("look"))
    assert seen["results"][0] == "given up"
    assert seen["results"][1]["content"][0]["text"] == "it is gone"


async def test_questions_are_put_to_the_clients_user(play: Play) -> None:
    seen = await play(call("asker"), elicit=[{"answer": "blue"}, {"answer": "Ada"}])
    assert seen["results"][0]["content"][0]["text"] == "Ada chose blue"
    assert [question["message"].splitlines()[0] for question in seen["questions"]] == ["Which?", "Your name?"]
    assert "red" in json.dumps(seen["questions"][0]["requestedSchema"])


@pytest.mark.soak
async def test_a_question_that_is_declined_or_finds_nobody_ends_the_run(play: Play) -> None:
    declined = (await play(call("asker"), elicit=[False, False]))["results"][0]
    assert declined["isError"]
    nobody = (await play(call("asker")))["results"][0]
    assert nobody["isError"]
    assert nobody["structuredContent"]["exit_code"] == declined["structuredContent"]["exit_code"] != 0
