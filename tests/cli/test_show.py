"""`callboard show`: what is kept of a run's calls, found again and told."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.messages import has_message
from support.screen import Screen
from support.starter import CALLBOARD
from support.waiting import PATIENCE, until

Callboard = Callable[..., "tuple[int, str, str]"]

TALK = """
name: talk
start: plan
nodes:
  plan: {type: llm, instructions: "Plan \x1b well.", prompt: "plan {{initial_prompt}}", temperature: 0.25,
         state_updates: {plan: "{{output}}"}, next: write}
  write: {type: llm, prompt: "write {{plan}}", state_updates: {text: "{{output}}"}, next: end}
  end: {type: end, output: "{{text}}"}
""".replace("\x1b", "\\e")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state directory of the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "callboard"


@pytest.fixture
def talk(tmp_path: Path) -> str:
    file = tmp_path / "graph.yaml"
    file.write_text(TALK)
    return str(file)


@pytest.fixture
def kept(callboard: Callboard, talk: str, models: FakeModels, state: Path) -> str:
    """The id of a run whose calls are kept."""
    models.script("the plan", Reply("the text", reasoning="hm"))
    code, out, err = callboard("run", talk, "tea", "--keep-requests", "-q")
    assert (code, out, err) == (0, "the text\n", "")
    return only_run(state)


def only_run(state: Path) -> str:
    (run,) = [path.name for path in (state / "runs").glob("run-*")]
    return run


def test_without_a_call_they_are_listed(callboard: Callboard, kept: str) -> None:
    code, out, err = callboard("show", kept)
    assert (code, err) == (0, "")
    head, *rows = [line.split() for line in out.splitlines()]
    assert head == ["N", "TIME", "ACTOR", "MODEL", "MESSAGES", "TOKENS", "COST", "MS", "REPLY"]
    assert [(row[0], row[2].rpartition("/")[2], row[3], row[-1]) for row in rows] == [
        ("1", "plan", "fake:model", "end"),
        ("2", "write", "fake:model", "end"),
    ]
    assert callboard("show", "last") == (0, out, "")
    assert callboard("show", kept.removeprefix("run-")[:6]) == (0, out, "")


def test_a_call_is_shown_as_the_model_got_it_with_its_reply(callboard: Callboard, kept: str) -> None:
    code, out, err = callboard("show", kept, "plan")
    assert (code, err) == (0, "")
    head, *rest = out.splitlines()
    assert head.startswith(f"call 1, /{kept}/")
    assert "fake:model" in head
    assert rest[1:3] == ["--- system ---", "Plan \\x1b well."]
    assert rest[4:6] == ["--- user ---", "plan tea"]
    assert rest[7:10] == ["--- parameters ---", "  temperature: 0.25", "  stream: true"]
    assert rest[11:] == ["--- reply (end) ---", "the plan"]
    assert callboard("show", "last", "1") == (0, out, "")
    assert callboard("show", "last", head.split(", ")[1]) == (0, out, "")


def test_the_last_call_and_its_parts(callboard: Callboard, kept: str) -> None:
    code, out, _err = callboard("show", "last", "last")
    assert code == 0
    assert out.startswith("call 2, ")
    assert out.endswith("--- reasoning ---\nhm\n\n--- reply (end) ---\nthe text\n")
    request = callboard("show", "last", "last", "--request")[1]
    assert "--- user ---\nwrite the plan\n" in request
    assert "reply" not in request
    reply = callboard("show", "last", "--reply")[1]
    assert "the text" in reply
    assert "write the plan" not in reply


def test_all_calls_are_shown_one_after_another(callboard: Callboard, kept: str) -> None:
    code, out, _err = callboard("show", "last", "--all", "--reply")
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("the ")] == ["the plan", "the text"]


def test_json_has_what_the_control_channel_tells(callboard: Callboard, kept: str) -> None:
    listed = json.loads(callboard("show", "last", "-o", "json")[1])
    assert (listed["schema_version"], listed["run"]) == (1, kept)
    assert [call["number"] for call in listed["calls"]] == [1, 2]
    call = json.loads(callboard("show", "last", "plan", "-o", "json")[1])["call"]
    assert call["request"]["messages"] == [{"role": "user", "content": "plan tea"}]
    assert call["reply"]["text"] == "the plan"
    reply = json.loads(callboard("show", "last", "plan", "--reply", "-o", "json")[1])["call"]
    assert reply == call["reply"]
    both = json.loads(callboard("show", "last", "--all", "-o", "json")[1])["calls"]
    assert [each["number"] for each in both] == [1, 2]


def test_the_body_is_shown_as_the_provider_got_it(callboard: Callboard, kept: str, models: FakeModels) -> None:
    code, out, err = callboard("show", "last", "plan", "--raw")
    assert (code, err) == (0, "")
    assert out.encode() == models.requests[0].body + b"\n"
    bodies = callboard("show", "last", "--raw", "--all")[1].splitlines()
    assert [line.encode() for line in bodies] == [request.body for request in models.requests]
    code, _out, err = callboard("show", "last", "--raw", "--reply")
    assert code == 2
    assert has_message(err, "cli.commands.runs.show")


def test_of_an_agent_with_several_calls_the_last_is_shown(
    callboard: Callboard, models: FakeModels, state: Path
) -> None:
    models.script(Reply(text="looking", calls=[("fs_ls", {"path": "/nowhere-at-all"})]), "done")
    code, *_ = callboard("ask", "go", "--tool", "fs_ls", "--yes", "--keep-requests", "-q")
    assert code == 0
    code, out, err = callboard("show", "last", "ask")
    assert has_message(err, "cli.control.commands.calls.show_calls", of="ask", numbers="1, 2")
    assert (
        '--- assistant ---\nlooking\n  calls fs_ls {"path": "/nowhere-at-all"}\n\n--- tool fs_ls (failed) ---\n' in out
    )
    assert "--- tools (1) ---\n  fs_ls(path)  List" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["zz"], "no run 'zz' in "),
        (["last", "9"], "has no call 9; calls 1 to 2 are recorded"),
        (["last", "nobody"], "has no stored request of 'nobody'"),
        (["last", "graph-of-nothing/plan"], "it has those of plan, write"),
    ],
)
def test_what_is_not_there_is_told(callboard: Callboard, kept: str, words: list[str], message: str) -> None:
    code, out, err = callboard("show", *words)
    assert (code, out) == (2, "")
    assert message in err


def test_a_name_of_several_actors_is_told_with_their_numbers(callboard: Callboard, kept: str) -> None:
    code, out, err = callboard("show", "last", f"/{kept}")
    assert (code, out) == (2, "")
    assert has_message(err, "cli.control.commands.calls.matching_calls.2")
    assert "plan (1)" in err
    assert has_message(err, "cli.control.commands.calls.matching_calls.2", more="…write (2)")
    assert callboard("show", "last", f"/{kept}", "--all")[0] == 0


def test_without_anything_kept_it_says_how_to_keep_it(
    callboard: Callboard, talk: str, models: FakeModels, state: Path
) -> None:
    code, _out, err = callboard("show", "last")
    assert code == 2
    assert has_message(err, "cli.control.commands.stored_runs.find_stored_run")
    assert callboard("run", talk, "tea", "-q")[0] == 0  # stderr is no terminal
    assert not (state / "runs").exists()
    assert callboard("run", talk, "tea", "-q", "--no-keep-requests")[0] == 0
    assert not (state / "runs").exists()
    assert callboard("run", talk, "tea", "-q", "--keep-requests", "--dry-run")[0] == 0
    assert not (state / "runs").exists()


def test_a_run_that_asks_no_model_is_kept_and_has_no_calls(callboard: Callboard, tmp_path: Path, state: Path) -> None:
    file = tmp_path / "graph.yaml"
    file.write_text("name: g\nstart: end\nnodes: {end: {type: end, output: hello}}\n")
    assert callboard("run", str(file), "--keep-requests", "-q")[0] == 0
    code, _out, err = callboard("show", "last")
    assert code == 2
    assert f"no model call of {only_run(state)} is recorded: it made none" in err
    assert "keep_requests: true" in err


def test_the_run_is_kept_like_those_of_a_server(callboard: Callboard, kept: str, state: Path) -> None:
    assert "talk" in callboard("runs")[1]
    assert "done" in callboard("runs", "show", kept)[1]
    assert "plan done in" in callboard("logs", kept)[1]
    home = state / "runs" / kept
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()} == {
        "events.jsonl": 0o600,
        "requests.1.jsonl": 0o600,
        "run.json": 0o600,
    }
    assert [path.name for path in (state / "runs").iterdir() if not path.name.startswith(".")] == [kept]
    assert list((state / "runs" / ".alive").iterdir()) == []
    assert callboard("runs", "delete", kept)[0] == 0
    assert not home.exists()


def test_as_many_runs_are_kept_as_a_server_would(
    callboard: Callboard, talk: str, models: FakeModels, state: Path
) -> None:
    config = json.loads((Path(os.environ["CALLBOARD_CONFIG_DIR"]) / "config.yaml").read_text())
    config |= {"keep_requests": True, "api": {"keep_runs": 3}}
    (Path(os.environ["CALLBOARD_CONFIG_DIR"]) / "config.yaml").write_text(json.dumps(config))
    for number in range(6):
        assert callboard("run", talk, str(number), "-q")[0] == 0
    assert len(list((state / "runs").glob("run-*"))) == 3
    assert "plan 5" in callboard("show", "last", "1")[1]


def test_the_environment_and_the_flag_say_whether_it_is_kept(
    callboard: Callboard, talk: str, models: FakeModels, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBOARD_KEEP_REQUESTS", "true")
    assert callboard("run", talk, "tea", "-q", "--no-keep-requests")[0] == 0
    assert not (state / "runs").exists()
    assert callboard("run", talk, "tea", "-q")[0] == 0
    assert callboard("show", "last")[0] == 0


def test_a_state_directory_that_takes_nothing_costs_the_run_nothing(
    callboard: Callboard, talk: str, models: FakeModels, state: Path
) -> None:
    state.mkdir(parents=True)
    (state / "runs").write_text("no directory")
    code, out, err = callboard("run", talk, "tea", "--keep-requests", "--no-input")
    assert (code, out) == (0, "ok\n")
    assert has_message(err, "front.control.runs.running.keep_runs")


async def test_at_a_terminal_requests_are_kept_without_a_word_and_shown_in_colours(
    nursery: trio.Nursery, fake_model: FakeModels, screen: Screen, tmp_path: Path, talk: str, state: Path
) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CLICOLOR_FORCE")},
        "TERM": "xterm-256color",
        "CALLBOARD_CONFIG_DIR": str(fake_model.config_dir(tmp_path / "config")),
    }

    async def drain() -> None:
        while True:
            await trio.lowlevel.wait_readable(screen.master)
            screen.text += os.read(screen.master, 65536).decode()

    async def play(*words: str) -> None:
        command = [*CALLBOARD, *words]
        end = screen.slave
        await trio.run_process(command, stdin=end, stdout=end, stderr=end, env=environment)

    nursery.start_soon(drain)
    with trio.fail_after(PATIENCE):
        await play("run", talk, "tea")
        assert "kept" not in screen.text
        await play("show", "last", "last")
        await until(lambda: "reply" in screen.text)
    assert "\x1b[1m--- user ---\x1b[0m" in screen.text
    assert "write ok" in screen.text


def test_a_state_directory_that_is_none_is_an_error_with_its_name(
    callboard: Callboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    for command in (["show", "last"], ["runs"]):
        code, _out, err = callboard(*command)
        assert code == 3
        assert f"the logs of runs in {tmp_path / 'file'}/callboard/runs can't be read: Not a directory" in err


def test_the_newest_run_is_the_last_one_for_all_that_show_records(callboard: Callboard, kept: str) -> None:
    run = json.loads(callboard("show", "last", "-o", "json")[1])["run"]
    assert callboard("runs", "show", "last")[1].startswith(f"{run}\n")
    assert callboard("logs", "last")[1] == callboard("logs", run)[1]
    assert callboard("runs", "diff", "last")[1].startswith(f"{run} has changed no files")
