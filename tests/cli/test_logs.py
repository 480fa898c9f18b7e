"""`callboard logs` and `callboard runs`: what runs have left, with a server and without."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
from support.control_server import ControlServer, open_control_server
from support.fake_models import FakeModels, Reply
from support.messages import has_message
from support.starter import CALLBOARD
from support.waiting import PATIENCE, until

from callboard.protocol.control.caller import LOCAL

Callboard = Callable[..., "tuple[int, str, str]"]

TALK = """
start: say
nodes:
  say: {type: llm, prompt: "{{initial_prompt}}", state_updates: {said: "{{output}}"}, next: end}
  end: {type: end, output: "{{said}}"}
"""


def played(control_server: ControlServer, *replies: Reply | str, prompt: str = "go") -> str:
    """A run that is over: its id."""
    control_server.agent("talk", TALK)
    control_server.models.script(*replies)
    return control_server.ended(control_server.start("talk", prompt).run).run


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """A run that is done and one that failed; their server has ended."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("CALLBOARD_SANDBOX")
    with open_control_server(tmp_path) as control_server:
        return played(control_server, "hello"), played(
            control_server, Reply(status=401, error="bad \x1b key"), prompt="p\x1b[2J"
        )


# --- logs --------------------------------------------------------------------------------------------------


def test_a_run_is_told_from_its_log_without_a_server(callboard: Callboard, left: tuple[str, str]) -> None:
    code, out, err = callboard("logs", left[0])
    assert (code, err) == (0, "")
    assert "graph: talk (start: say)" in out.splitlines()[0]
    assert "say done in" in out
    assert callboard("logs", "-f", left[0])[1] == out
    assert len(callboard("logs", "-v", left[0])[1]) > len(out)


def test_stream_json_is_the_log_line_by_line(callboard: Callboard, left: tuple[str, str]) -> None:
    log = Path(os.environ["XDG_STATE_HOME"]) / "callboard" / "runs" / left[0] / "events.jsonl"
    assert callboard("logs", left[0], "-o", "stream-json") == (0, log.read_text(), "")
    lines = callboard("logs", left[0], "-o", "stream-json", "--after", "3")[1].splitlines()
    assert json.loads(lines[0])["seq"] == 4


async def test_a_run_of_another_terminal_is_followed_without_a_server(fake_model: FakeModels, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "CALLBOARD_CONFIG_DIR": str(fake_model.config_dir(tmp_path / "config")),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    environment.pop("CALLBOARD_URL", None)
    program = CALLBOARD
    hold = trio.Event()
    fake_model.script(Reply("hello", hold=hold))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    follows = (("logs", "-f"), ("--tail-logs", "--disable-log-colors"))
    begun: list[tuple[str, ...]] = []
    followed: dict[tuple[str, ...], tuple[int | None, bytes, bytes]] = {}

    async def follow(flags: tuple[str, ...], *words: str) -> None:
        process = await trio.lowlevel.open_process(
            [*program, *flags, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stderr is not None
        out = await process.stdout.receive_some()
        begun.append(flags)
        out += b"".join([piece async for piece in process.stdout])
        err = b"".join([piece async for piece in process.stderr])
        followed[flags] = await process.wait(), out, err

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(trio.run_process, [*program, "ask", "--keep-requests", "hi"], **quiet))
            await fake_model.arrived(1)
            runs = tmp_path / "state" / "callboard" / "runs"
            await until(lambda: list(runs.glob("run-*/events.jsonl")))
            (run,) = (path.name for path in runs.glob("run-*"))
            nursery.start_soon(follow, follows[0], run)
            nursery.start_soon(follow, follows[1])
            await until(lambda: len(begun) == len(follows))
            hold.set()
    for code, out, _ in followed.values():
        assert code == 0
        assert b"agent done in" in out.splitlines()[-1]
    assert followed[follows[1]][2].decode() == f"callboard: the newest run: {run}\n"


def test_a_server_that_is_named_tells_the_same_as_the_log(callboard: Callboard, control_server: ControlServer) -> None:
    run = played(control_server, "hello")
    told = callboard("logs", run, "-o", "stream-json", "--url", control_server.url)
    end = time.monotonic() + PATIENCE  # the file may be written a moment after the run is over
    while (local := callboard("logs", run, "-o", "stream-json")) != told and time.monotonic() < end:
        told = callboard("logs", run, "-o", "stream-json", "--url", control_server.url)
    assert local[0] == 0
    assert told == local
    assert callboard("logs", run, "-f", "-o", "stream-json", "--url", control_server.url) == local


def test_a_run_under_way_is_told_as_far_as_it_is(callboard: Callboard, control_server: ControlServer) -> None:
    control_server.agent(
        "gate", "start: gate\nnodes:\n  gate: {type: input, question: Go, next: end}\n  end: {type: end}\n"
    )
    run = control_server.start("gate").run
    control_server.asked(run)
    code, out, _err = callboard("logs", run, "--url", control_server.url)
    assert code == 0
    assert out.splitlines()[-1].endswith("gate asks: Go")


def test_a_run_that_nobody_knows_is_refused(callboard: Callboard, control_server: ControlServer) -> None:
    for arguments in (["logs", "run-zz"], ["logs", "-f", "run-zz"], ["runs", "show", "run-zz"]):
        assert callboard(*arguments)[0] == 2, arguments


# --- runs --------------------------------------------------------------------------------------------------


def test_runs_lists_the_newest_first(callboard: Callboard, left: tuple[str, str]) -> None:
    code, out, _err = callboard("runs")
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["RUN", "STATUS", "TARGET", "STARTED", "TOOK", "TOKENS", "COST", "PROMPT"]
    assert [row[:2] for row in rows[1:]] == [[left[1], "failed"], [left[0], "done"]]
    assert "\x1b" not in out
    assert [run["run"] for run in json.loads(callboard("runs", "-o", "json")[1])["runs"]] == [left[1], left[0]]
    _code, out, err = callboard("runs", "list", "--limit", "1")
    assert (len(out.splitlines()), err) == (2, "1 older: --limit 2 shows them all\n")
    assert callboard("runs", "list", "--status", "done")[1].splitlines()[1].startswith(left[0])


def test_a_run_is_shown_with_its_end(callboard: Callboard, left: tuple[str, str]) -> None:
    out = callboard("runs", "show", left[0])[1]
    assert out.splitlines()[0] == left[0]
    assert "  status     done (exit code 0)" in out
    assert out.endswith("\n\nhello\n")
    failed = callboard("runs", "show", left[1][4:])[1]
    assert "  prompt     p\\x1b[2J" in failed
    assert "credentials: node 'say': " in failed
    assert "\x1b" not in failed
    assert json.loads(callboard("runs", "show", left[0], "-o", "json")[1])["run"]["output"] == "hello"


def test_runs_are_deleted_by_name_number_and_age(callboard: Callboard, left: tuple[str, str]) -> None:
    assert callboard("runs", "delete", "run-zz", left[0])[0] == 2
    assert len(callboard("runs")[1].splitlines()) == 3
    assert callboard("runs", "delete", left[0]) == (0, "1 run deleted\n", "")
    assert callboard("runs", "prune", "--older", "1") == (0, "0 runs deleted\n", "")
    assert callboard("runs", "prune")[0] == 2
    out = callboard("runs", "prune", "--keep", "0", "-o", "json")[1]
    assert json.loads(out) == {"schema_version": 1, "deleted": [left[1]]}
    assert callboard("runs")[1].startswith("no run yet")


def test_a_run_under_way_is_not_deleted(callboard: Callboard, control_server: ControlServer) -> None:
    control_server.agent("talk", TALK)
    control_server.models.script(Reply("late", delay=60))
    run = control_server.start("talk").run

    async def kept() -> None:
        await control_server.models.arrived(1)
        await control_server.hub.logs.flush()

    control_server.call(kept)
    code, _out, err = callboard("runs", "delete", run)
    assert (code, has_message(err, "cli.control.commands.stored_runs.delete_runs")) == (2, True)
    assert callboard("runs", "prune", "--keep", "0")[1] == "0 runs deleted\n"
    assert control_server.call(control_server.hub.cancel, LOCAL, run)
