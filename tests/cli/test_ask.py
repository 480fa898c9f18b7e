"""`callboard ask`: an agent without a directory, and what a run may do without asking."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fake_models import FakeModels, Reply
from support.messages import has_message

Callboard = Callable[..., "tuple[int, str, str]"]

WRITE = Reply(calls=[("fs_write", {"path": "new.txt", "contents": "hello"})])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_the_answer_is_on_stdout_and_the_story_on_stderr(
    callboard: Callboard, models: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CALLBOARD_SANDBOX")
    models.script(Reply(calls=[("get_current_time", {})]), "It is noon.")
    code, out, err = callboard("ask", "What time is it?", "--tool", "get_current_time", "--system", "Be brief.")
    assert (code, out) == (0, "It is noon.\n")
    first = models.requests[0]
    assert (first.system, first.prompt, first.offered) == ("Be brief.", "What time is it?", ["get_current_time"])
    story = err.splitlines()
    assert story[0].endswith("agent: ask (1 tool)")
    assert "get_current_time done in" in story[1]
    assert "agent done in" in story[2]
    assert story[2].endswith("2 turns, 1 tool call, 20 tokens in, 10 out, unpriced")


def test_without_tools_it_is_a_plain_question(callboard: Callboard, models: FakeModels) -> None:
    assert callboard("ask", "-q", "hi") == (0, "ok\n", "")
    assert models.requests[0].offered == []


def test_the_settings_name_its_tools_unless_the_command_line_does(
    callboard: Callboard, models: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBOARD_ENABLED_TOOLS", "fs_ls, get_current_time")
    assert callboard("ask", "-q", "hi")[0] == 0
    assert callboard("ask", "-q", "hi", "--tool", "fs_cat.sh")[0] == 0
    assert [request.offered for request in models.requests] == [["fs_ls", "get_current_time"], ["fs_cat"]]


def test_a_tool_that_is_not_there_is_wrong_usage(callboard: Callboard, models: FakeModels) -> None:
    code, out, err = callboard("ask", "hi", "--tool", "get_current_tim")
    assert (code, out) == (2, "")
    assert err == "callboard: there is no tool 'get_current_tim'; did you mean 'get_current_time'?\n"
    assert models.requests == []


def test_nothing_to_ask_is_wrong_usage(callboard: Callboard, models: FakeModels) -> None:
    code, out, err = callboard("ask")
    assert (code, out) == (2, "")
    assert has_message(err, "cli.actions.run._completed")


def test_json_is_the_object_of_a_run_also_when_nothing_ran(callboard: Callboard, models: FakeModels) -> None:
    models.script(Reply(calls=[("get_current_time", {})]), "noon")
    outcome = json.loads(callboard("ask", "-o", "json", "when?", "--tool", "get_current_time")[1])
    assert (outcome["status"], outcome["output"], outcome["turns"], outcome["tool_calls"]) == ("done", "noon", 2, 1)
    assert outcome["children"] == []
    code, out, _err = callboard("ask", "-o", "json", "when?", "--tool", "nothing_like_it")
    assert (code, json.loads(out)["error"]["code"], json.loads(out)["run_id"]) == (2, "usage", "")


def test_limits_hold(callboard: Callboard, models: FakeModels) -> None:
    models.answer_with(lambda _request: Reply(calls=[("get_current_time", {})]))
    code, out, _err = callboard("ask", "-o", "json", "when?", "--tool", "get_current_time", "--max-turns", "1")
    assert (code, json.loads(out)["error"]["code"]) == (4, "max_turns")


def test_a_tool_that_writes_is_refused_where_nobody_can_be_asked(
    callboard: Callboard, models: FakeModels, here: Path
) -> None:
    models.script(WRITE, "I could not.")
    code, out, err = callboard("ask", "write", "--tool", "fs_write", "--no-input")
    assert (code, out) == (0, "I could not.\n")
    assert "FAILED" in err
    assert "--allow fs_write" in models.requests[1].results[0]
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("flags", [["--yes"], ["--allow", "fs_write"]], ids=" ".join)
def test_permission_can_be_given_beforehand(
    callboard: Callboard, models: FakeModels, here: Path, flags: list[str]
) -> None:
    models.script(WRITE, "Done.")
    assert callboard("ask", "-q", "write", "--tool", "fs_write", *flags)[0] == 0
    assert (here / "new.txt").read_text() == "hello"


def test_the_settings_can_still_deny_what_yes_allows(callboard: Callboard, models: FakeModels, here: Path) -> None:
    folder = here.parent / "config"
    config = json.loads((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(json.dumps({**config, "permissions": {"fs_*": "deny"}}))
    models.script(WRITE, "I could not.")
    assert callboard("ask", "-q", "write", "--tool", "fs_write", "--yes")[:2] == (0, "I could not.\n")
    assert list(here.iterdir()) == []


def test_fs_tools_stay_in_the_working_directory_and_the_roots(
    callboard: Callboard, models: FakeModels, here: Path
) -> None:
    other = here.parent / "other"
    other.mkdir()
    (other / "a.txt").write_text("found")
    read = Reply(calls=[("fs_cat", {"path": str(other / "a.txt")})])
    models.script(read, "no", read, "yes")
    assert callboard("ask", "-q", "read", "--tool", "fs_cat")[0] == 0
    assert callboard("ask", "-q", "read", "--tool", "fs_cat", "--root", str(other))[0] == 0
    assert "outside" in models.requests[1].results[0]
    assert "found" in models.requests[3].results[0]
    assert callboard("ask", "-q", "read", "--root", str(other / "none"))[0] == 2


@pytest.mark.parametrize("how", ["--answer", "--answers"])
def test_what_a_tool_asks_is_answered_beforehand(
    callboard: Callboard, models: FakeModels, tmp_path: Path, how: str
) -> None:
    tools = tmp_path / "config" / "functions" / "tools"
    tools.mkdir(parents=True)
    (tools / "greet.py").write_text('def run():\n    """Greet."""\n    return "hello " + input("Who? ")\n')
    (tmp_path / "answers.yaml").write_text("[Ada]")
    models.script(Reply(calls=[("greet", {})]), "done")
    given = "Ada" if how == "--answer" else str(tmp_path / "answers.yaml")
    code, out, err = callboard("ask", "greet her", "--tool", "greet", how, given)
    assert (code, out) == (0, "done\n"), err
    assert models.requests[1].results == ['{"output":"hello Ada"}']
