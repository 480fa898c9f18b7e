"""`callboard ps`, `stop` and `answer` against a real server with real runs."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
from support.control_server import ControlServer
from support.messages import fragment, has_message
from support.screen import Screen
from support.starter import CALLBOARD
from support.waiting import PATIENCE

from callboard.cli.control import connection
from callboard.cli.control.commands import answering
from callboard.cli.control.commands.answering import value_of
from callboard.cli.stdin import piped_text
from callboard.protocol.control.caller import LOCAL
from callboard.protocol.control.resources import RunInfo
from callboard.protocol.errors import UsageError
from callboard.protocol.kernel.questions import Question

Callboard = Callable[..., "tuple[int, str, str]"]

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


def asking(control_server: ControlServer, prompt: str = "Go") -> tuple[str, str]:
    """A run that has asked: its id, and the question's."""
    control_server.agent("gate", GATE)
    run = control_server.start("gate", prompt).run
    return run, control_server.asked(run)


# --- finding a server --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["ps"], ["top"], ["answer"], ["stop", "x"], ["attach", "x"], ["logs", "-f", "x"]])
def test_without_a_server_every_command_says_how_to_start_one(
    callboard: Callboard, monkeypatch: pytest.MonkeyPatch, tmp_path: object, command: list[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    code, out, err = callboard(*command)
    assert (code, out) == (3, "")
    assert (
        err == "callboard: no server is running on this machine: start one with `callboard "
        "serve`, or name one with --url\n"
    )


def test_nobody_at_the_url_is_told_as_json_too(callboard: Callboard, control_server: ControlServer) -> None:
    code, out, err = callboard("ps", "-o", "json", "--url", "http://127.0.0.1:1")
    assert (code, json.loads(out)["error"]["code"]) == (3, "no_server")
    assert err == "callboard: no server answers at http://127.0.0.1:1: Connection refused\n"


def test_a_server_without_tls_that_is_asked_for_it_is_told_from_one_that_is_gone(
    callboard: Callboard, control_server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "WITHIN", 0.2)
    code, _out, err = callboard("ps", "--url", control_server.url.replace("http:", "https:"))
    assert code in (3, 6)  # it says nothing, or nothing that TLS knows
    assert "http://" in err or "is not a Callboard server" in err


def test_a_token_that_is_not_right_is_refused(callboard: Callboard, control_server: ControlServer) -> None:
    code, _out, err = callboard("ps", "--url", control_server.url, "--token", "wrong")
    assert (code, err) == (3, f"callboard: the server at {control_server.url} requires a token: the token is wrong\n")


# --- ps ----------------------------------------------------------------------------------------------------


def test_ps_shows_a_run_that_waits(callboard: Callboard, control_server: ControlServer) -> None:
    assert callboard("ps") == (0, fragment("cli.control.commands.listing.list_runs.2"), "")
    run, _ = asking(control_server)
    code, out, err = callboard("ps")
    assert (code, err) == (0, "")
    head, row = out.splitlines()
    assert head.split() == ["RUN", "STATUS", "TARGET", "SINCE", "ASKS", "TOKENS", "COST", "DOING"]
    assert row.split()[:3] == [run, "waiting", "gate"]
    assert row.split()[4:6] == ["1", "gate"]


def test_ps_shows_past_runs_when_asked_for(callboard: Callboard, control_server: ControlServer) -> None:
    run, question = asking(control_server)
    control_server.answer(question, "yes")
    control_server.ended(run)
    assert callboard("ps")[1].startswith(fragment("cli.control.commands.listing.list_runs.2"))
    assert callboard("ps", "-a")[1].splitlines()[1].split()[:3] == [run, "done", "gate"]
    (shown,) = json.loads(callboard("ps", "-a", "-o", "json")[1])["runs"]
    assert (shown["run"], shown["status"], shown["output"]) == (run, "done", "said yes")


def test_json_of_ps_has_what_each_run_does(callboard: Callboard, control_server: ControlServer) -> None:
    run, _ = asking(control_server)
    whole = json.loads(callboard("ps", "-o", "json")[1])
    assert (whole["schema_version"], whole["server"]) == (1, control_server.url)
    assert [each["run"] for each in whole["runs"]] == [run]
    assert whole["runs"][0]["doing"].startswith("gate")


def test_a_title_that_is_hostile_is_shown_as_what_it_is(callboard: Callboard, control_server: ControlServer) -> None:
    control_server.agent("gate", GATE)
    control_server.asked(control_server.start("gate", title="\x1b[2J\u202eevil").run)
    out = callboard("ps")[1]
    assert "\\x1b[2J\\u202eevil" in out
    assert "\x1b" not in out


# --- stop --------------------------------------------------------------------------------------------------


def test_stop_ends_a_run_and_waits_for_its_end(callboard: Callboard, control_server: ControlServer) -> None:
    run, _ = asking(control_server)
    assert callboard("stop", run[4:8]) == (0, f"{run}: cancelled\n", "")
    assert control_server.get(run).status == "cancelled"
    assert callboard("stop", run) == (0, f"{run}: had ended before (cancelled)\n", "")


def test_stop_ends_an_actor_by_its_path(callboard: Callboard, control_server: ControlServer) -> None:
    run, _ = asking(control_server)
    path = next(
        actor.path for actor in control_server.call(control_server.hub.actors.tree, LOCAL, run) if actor.name == "gate"
    )
    code, out, _err = callboard("stop", path, "-o", "json")
    assert code == 0
    assert json.loads(out)["stopped"] == [{"target": path, "status": "cancelled", "changed": True}]
    assert control_server.ended(run).status in ("failed", "cancelled")


def test_stop_refuses_what_is_not_there(callboard: Callboard, control_server: ControlServer) -> None:
    asking(control_server)
    assert callboard("stop", "run-zz") == (
        2,
        "",
        "callboard: there is no run 'run-zz' (to list all runs: callboard ps -a)\n",
    )
    assert callboard("stop", "/run-zz/a")[0] == 2
    assert has_message(callboard("stop", "run-zz/a")[2], "front.control.actors.HubActors._actor", path="/run-zz/a")


def test_who_names_what_runs_is_told_its_runs(callboard: Callboard, control_server: ControlServer) -> None:
    run, _ = asking(control_server)
    assert callboard("attach", "gate")[2] == f"callboard: there is no run 'gate' (runs of that name: {run})\n"


# --- answer ------------------------------------------------------------------------------------------------


def test_open_questions_are_listed_with_what_may_be_said(callboard: Callboard, control_server: ControlServer) -> None:
    assert callboard("answer") == (0, "no question is open\n", "")
    run, question = asking(control_server, "Go\x1b[2J")
    out = callboard("answer")[1]
    assert out.splitlines() == [
        f"{question}  {run}  gate asks",
        "    Go\\x1b[2J?",
        "    (one of: yes | no; or any other text)",
    ]
    (shown,) = json.loads(callboard("answer", "-o", "json")[1])["questions"]
    assert (shown["id"], shown["options"]) == (question, ["yes", "no"])


def test_an_answer_is_taken_once(callboard: Callboard, control_server: ControlServer) -> None:
    run, question = asking(control_server)
    assert callboard("answer", question, "Y") == (0, f"{question} answered ({run})\n", "")
    assert control_server.ended(run).output == "said yes"
    code, out, err = callboard("answer", question, "no", "-o", "json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "not_found")
    assert err == (
        f"callboard: no question '{question}' is open: it was answered or withdrawn, or never asked; none is open now\n"
    )


def test_a_run_that_asks_one_question_stands_for_it(callboard: Callboard, control_server: ControlServer) -> None:
    run, question = asking(control_server)
    code, _, err = callboard("answer", "q-none", "yes")
    assert code == 2
    assert err.endswith(f"or never asked; there are: {question}\n")
    assert callboard("answer", run[4:], "yes") == (0, f"{question} answered ({run})\n", "")
    assert control_server.ended(run).output == "said yes"


def test_an_answer_can_be_piped_in(
    callboard: Callboard, control_server: ControlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, question = asking(control_server)
    (tmp_path / "text").write_text("two\nlines\n")
    with (tmp_path / "text").open("rb") as text, monkeypatch.context() as patch:
        patch.setattr(answering, "piped_text", partial(piped_text, fd=text.fileno()))
        assert callboard("answer", question, "-")[0] == 0
    assert control_server.ended(run).output == "said two\nlines"


def test_without_a_text_and_a_terminal_there_is_nothing_to_answer_with(
    callboard: Callboard, control_server: ControlServer
) -> None:
    _, question = asking(control_server)
    code, _out, err = callboard("answer", question)
    assert (code, err) == (2, f"callboard: TEXT is missing: the answer to question {question}\n")


@pytest.mark.parametrize(
    ("kind", "options", "free", "texts", "value"),
    [
        ("choice", ("Yes", "no"), True, ["y"], "Yes"),
        ("choice", ("Yes", "no"), True, ["maybe later"], "maybe later"),
        ("choice", ("red", "blue"), False, ["BLUE"], "blue"),
        ("choice", ("red", "blue"), False, ["green"], None),
        ("confirm", (), True, ["TRUE"], "yes"),
        ("confirm", (), True, ["perhaps"], None),
        ("checkbox", ("a", "b", "c"), False, ["C", "a"], ["c", "a"]),
        ("checkbox", ("a", "b", "c"), False, [""], []),
        ("checkbox", ("a", "b"), True, ["x"], None),
        ("text", (), True, ["a  b"], "a  b"),
        ("text", (), True, ["a", "b"], None),
    ],
)
def test_words_mean_an_answer_that_fits_the_question_or_are_refused(
    kind: str, options: tuple[str, ...], free: bool, texts: list[str], value: str | list[str] | None
) -> None:
    question = Question(id="q1", actor="/r/a", text="?", kind=kind, options=options, free=free)
    if value is None:
        with pytest.raises(UsageError, match="question q1"):
            value_of(question, texts)
    else:
        assert value_of(question, texts) == value


# --- runs of other programs ---------------------------------------------------------------------------------


async def plain_run(nursery: trio.Nursery, tmp_path: Path, screen: Screen) -> trio.Process:
    """`callboard run` at another terminal, which has asked and waits."""
    (tmp_path / "gate.yaml").write_text(f"name: gate\n{GATE}")
    process: trio.Process = await nursery.start(
        lambda task_status: trio.run_process(
            [*CALLBOARD, "run", str(tmp_path / "gate.yaml"), "Go"],
            stdin=screen.slave,
            stdout=subprocess.DEVNULL,
            stderr=screen.slave,
            check=False,
            task_status=task_status,
        )
    )
    await screen.shows(r"then enter")
    return process


async def listed(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [*CALLBOARD, "ps", *arguments]
    return await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)


async def test_a_plain_run_of_another_process_is_listed_without_a_server_until_it_ends(
    nursery: trio.Nursery, tmp_path: Path, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    process = await plain_run(nursery, tmp_path, screen)
    ended = await listed()
    assert ended.returncode == 0
    (_, row) = ended.stdout.decode().splitlines()
    assert re.fullmatch(rf"run-\w+ +running +gate +\d+s +in process {process.pid}", row.strip())
    whole = json.loads((await listed("-o", "json")).stdout)
    assert (whole["server"], [run["status"] for run in whole["runs"]]) == (None, ["running"])
    screen.press("\r")
    assert await process.wait() == 0
    ended = await listed()
    assert (ended.returncode, ended.stdout) == (3, b"")
    assert list((tmp_path / "state" / "callboard" / "present").iterdir()) == []


async def test_what_a_run_that_was_killed_has_left_is_not_listed(
    nursery: trio.Nursery, tmp_path: Path, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    process = await plain_run(nursery, tmp_path, screen)
    process.kill()
    await process.wait()
    assert list((tmp_path / "state" / "callboard" / "present").iterdir()) != []
    assert (await listed()).returncode == 3
    assert list((tmp_path / "state" / "callboard" / "present").iterdir()) == []


async def test_a_plain_run_stands_below_those_of_the_server(
    control_server: ControlServer, nursery: trio.Nursery, tmp_path: Path, screen: Screen
) -> None:
    def begin() -> str:
        control_server.agent("gate", GATE)
        run = control_server.start("gate", "Go").run
        control_server.asked(run)
        return run

    def all_runs() -> list[RunInfo]:
        return list(control_server.call(control_server.hub.list, LOCAL))

    run = await trio.to_thread.run_sync(begin)
    process = await plain_run(nursery, tmp_path, screen)
    for known in (1, 2):  # the server notices the other one soon, since it is kept
        rows = (await listed()).stdout.decode().splitlines()[1:]
        assert len(rows) == 2
        assert rows[0].startswith(run)
        assert f"in process {process.pid}" in rows[1]
        with trio.fail_after(PATIENCE):
            while known == 1 and len(await trio.to_thread.run_sync(all_runs)) < 2:
                await trio.sleep(0.05)
    screen.press("\r")
    assert await process.wait() == 0
