"""`callboard run` as a process: on a real terminal, under real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.messages import fragment
from support.screen import Screen
from support.starter import CALLBOARD

COMMAND = CALLBOARD

ASK = """
name: ask
start: gate
nodes:
  gate:
    type: approval
    question: Go?
    options: ["yes", "no"]
    routes: {"yes": end, "no": end}
    on_other: end
    state_updates: {choice: "{{choice}}"}
  end: {type: end, output: "{{choice}}"}
"""

TALK = """
name: talk
start: say
nodes:
  say: {type: llm, prompt: "{{initial_prompt}}", next: end}
  end: {type: end}
"""


async def started(
    nursery: trio.Nursery,
    arguments: list[str],
    environment: dict[str, str],
    screen: Screen | None = None,
    out: Screen | None = None,
) -> trio.Process:
    end = screen.slave if screen else None
    return await nursery.start(
        lambda task_status: trio.run_process(
            [*COMMAND, *arguments],
            stdin=end if end is not None else subprocess.DEVNULL,
            stderr=end if end is not None else subprocess.PIPE,
            stdout=out.slave if out else subprocess.PIPE,
            env={**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1", **environment},
            check=False,
            task_status=task_status,
        )
    )


@pytest.mark.parametrize(
    ("keys", "code", "out"),
    [
        ("\r", 0, b"yes\n"),
        ("\x1b[B\r", 0, b"no\n"),
        ("3\rmaybe\r", 0, b"maybe\n"),
        ("\x03", 130, b""),
        ("\x04", 5, b""),
    ],
    ids=["enter", "down", "other", "ctrl-c", "ctrl-d"],
)
async def test_a_person_answers_at_the_terminal_and_gets_it_back(
    nursery: trio.Nursery, screen: Screen, tmp_path: Path, keys: str, code: int, out: bytes
) -> None:
    (tmp_path / "graph.yaml").write_text(ASK)
    before = screen.modes()
    process = await started(nursery, ["run", str(tmp_path)], {}, screen)
    await screen.shows(r"then enter")
    assert screen.modes() != before
    for key in re.findall(r"\x1b\[.|[^\x1b]", keys) if len(keys) > 3 else [keys]:
        screen.press(key)
    assert process.stdout is not None
    assert await _all(process.stdout) == out
    assert await process.wait() == code
    assert screen.modes() == before


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=lambda value: str(value),
)
async def test_a_signal_ends_the_run_with_a_line_how_it_goes_on_and_its_code(
    nursery: trio.Nursery, fake_model: FakeModels, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    (tmp_path / "graph.yaml").write_text(TALK)
    fake_model.script(Reply("never", delay=60))
    home = fake_model.config_dir(tmp_path / "config")
    process = await started(nursery, ["run", str(tmp_path), "-o", "json", "x"], {"CALLBOARD_CONFIG_DIR": str(home)})
    await fake_model.arrived(1)
    process.send_signal(number)
    assert process.stderr is not None
    assert process.stdout is not None
    told = (await _all(process.stderr)).decode().splitlines()
    assert await process.wait() == code
    assert [line for line in told if "stopping" in line] == told[-2:-1]
    assert told[-1].startswith("callboard: to continue this run: callboard resume run-")
    assert b'"status": "cancelled"' in await _all(process.stdout)


BOUND = """
name: bound
start: end
variables: [{name: project, description: Which project}]
nodes: {end: {type: end, output: "for {{initial_prompt}}"}}
"""


@pytest.mark.parametrize(("keys", "code", "out"), [("x\r", 0, b"for me\n"), ("\x04", 2, b"")])
async def test_a_variable_without_a_value_is_asked_for_before_the_run(
    nursery: trio.Nursery, screen: Screen, tmp_path: Path, keys: str, code: int, out: bytes
) -> None:
    (tmp_path / "graph.yaml").write_text(BOUND)
    process = await started(nursery, ["run", str(tmp_path), "me"], {}, screen)
    await screen.shows(r"\? bound asks\s+project: Which")
    await screen.shows(r"\)\r\n[\s\S]*  >")
    assert "graph:" not in screen.text
    screen.press(keys)
    assert process.stdout is not None
    assert await _all(process.stdout) == out
    assert await process.wait() == code
    if code == 2:
        await screen.shows(fragment("front.chat.commands.agent._with_missing"))


NEEDS_PROMPT = """
name: greeter
start: say
nodes:
  say: {type: llm, prompt: "Greet {{initial_prompt}}", state_updates: {said: "{{output}}"}, next: end}
  end: {type: end, output: "{{said}}"}
"""


async def test_a_prompt_that_is_missing_is_asked_for_before_the_run(
    nursery: trio.Nursery, screen: Screen, fake_model: FakeModels, tmp_path: Path
) -> None:
    (tmp_path / "graph.yaml").write_text(NEEDS_PROMPT)
    config = fake_model.config_dir(tmp_path / "config")
    process = await started(nursery, ["run", str(tmp_path)], {"CALLBOARD_CONFIG_DIR": str(config)}, screen)
    await screen.shows(r"\? greeter asks\s+What should greeter do\?[\s\S]*  >")
    assert fake_model.requests == []
    screen.press("Ada\r")
    assert process.stdout is not None
    assert await _all(process.stdout) == b"ok\n"
    assert await process.wait() == 0
    assert [request.prompt for request in fake_model.requests] == ["Greet Ada"]


@pytest.mark.parametrize(
    ("keys", "code"),
    [(["1", "\r"], 0), (["\r"], 1), (list("always wrong, no\r"), 1)],
    ids=["yes", "enter alone", "text"],
)
async def test_a_tool_called_by_hand_asks_before_it_writes(
    nursery: trio.Nursery, screen: Screen, tmp_path: Path, keys: list[str], code: int
) -> None:
    made = tmp_path / "made"
    call = ["tools", "call", "fs_mkdir", "--root", str(tmp_path), "--json", f'{{"path": "{made}"}}']
    process = await started(nursery, call, {"CALLBOARD_CONFIG_DIR": str(tmp_path)}, screen)
    await screen.shows(r"Allow fs_mkdir\?\s+path:[\s\S]*then Enter")
    for key in keys:
        screen.press(key)
    assert await process.wait() == code
    assert made.is_dir() == (code == 0)


async def test_json_lines_on_the_terminal_are_left_whole(
    nursery: trio.Nursery, screen: Screen, fake_model: FakeModels, tmp_path: Path
) -> None:
    (tmp_path / "graph.yaml").write_text(TALK)
    fake_model.script(Reply("hello", delay=0.3))
    environment = {"CALLBOARD_CONFIG_DIR": str(fake_model.config_dir(tmp_path / "config"))}
    process = await started(nursery, ["run", str(tmp_path), "x", "-o", "stream-json"], environment, screen, out=screen)
    await screen.shows(r'"run.finished".*\n')
    assert await process.wait() == 0
    assert "\x1b" not in screen.text
    lines = screen.text.splitlines()
    assert {line[0] for line in lines} == {"{", "▸"}
    numbers = [json.loads(line)["seq"] for line in lines if line[0] == "{"]
    assert numbers == list(range(1, len(numbers) + 1))


async def _all(stream: trio.abc.ReceiveStream) -> bytes:
    return b"".join([piece async for piece in stream])


async def test_the_cursor_is_back_with_the_first_interrupt_whatever_the_next_cut_short(
    nursery: trio.Nursery, screen: Screen, fake_model: FakeModels, tmp_path: Path
) -> None:
    (tmp_path / "graph.yaml").write_text(TALK)
    fake_model.script(Reply("never", delay=60))
    home = fake_model.config_dir(tmp_path / "config")
    process = await started(nursery, ["run", str(tmp_path), "x"], {"CALLBOARD_CONFIG_DIR": str(home)}, screen)
    await screen.shows(r"\x1b\[\?25l")
    await fake_model.arrived(1)
    process.send_signal(signal.SIGINT)
    await screen.shows(r"\x1b\[\?25h[^l]*?callboard: Ctrl-C, stopping")
    assert await process.wait() == 130
