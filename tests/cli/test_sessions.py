"""`callboard sessions`, and `-s` of `run` and `ask`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.fake_models import FakeModels, Reply
from support.messages import fragment, has_message

from callboard.actors.runs.sessions.store import SessionStore

Callboard = Callable[..., "tuple[int, str, str]"]


@pytest.fixture
def home(models: FakeModels) -> Path:
    """The configuration directory, whose models answer."""
    return Path(os.environ["CALLBOARD_CONFIG_DIR"])


def agent(home: Path, text: str, name: str = "clerk") -> None:
    """Write an agent."""
    folder = home / "agents" / name
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"name: {name}\n{text}\n")


def roles(models: FakeModels) -> list[str]:
    """Who has said what the last request holds."""
    return [message["role"] for message in models.requests[-1].json["messages"]]


def test_a_conversation_goes_on_by_its_name_or_its_id(callboard: Callboard, models: FakeModels, home: Path) -> None:
    assert callboard("ask", "-q", "-s", "bridges", "one", "--system", "Be brief.") == (0, "ok\n", "")
    (listed,) = json.loads(callboard("sessions", "-o", "json")[1])
    assert (listed["alias"], listed["title"], listed["owner"]) == ("bridges", "one", "local")
    assert callboard("ask", "-q", "-s", listed["id"], "two") == (0, "ok\n", "")
    assert [role for role in roles(models) if role != "system"] == ["user", "assistant", "user"]
    assert len(json.loads(callboard("sessions", "list", "-o", "json")[1])) == 1


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, which is full."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = os.getuid() == 0 and shutil.which("mount") is not None
    if not mounted or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=False).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        with (disk / "filling").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_new_session_on_a_full_disk_is_an_error_that_says_so_and_leaves_nothing(
    callboard: Callboard, models: FakeModels, home: Path, full_disk: Path
) -> None:
    (full_disk / "sessions").mkdir(mode=0o700)
    (home / "sessions").symlink_to(full_disk / "sessions")
    code, out, err = callboard("ask", "-q", "-s", "new", "one")
    assert (code, out) == (1, "")
    assert has_message(err, "runs.sessions.files.disk_errors_named.2")
    assert "No space left on device; free some space there" in err
    assert not list((full_disk / "sessions" / "by-id").iterdir())
    (full_disk / "filling").unlink()
    assert callboard("ask", "-q", "-s", "new", "one") == (0, "ok\n", "")


def test_help_says_that_a_uuid_is_an_id(callboard: Callboard) -> None:
    for command in ("run", "ask"):
        assert has_message(" ".join(callboard(command, "--help")[1].split()), "cli.options.38")


def test_the_session_that_an_agents_file_names_is_used_unless_another_is_given(
    callboard: Callboard, models: FakeModels, home: Path
) -> None:
    agent(home, "agent_session: diary")
    assert callboard("run", "-q", "clerk", "one")[0] == 0
    assert callboard("run", "-q", "clerk", "two")[0] == 0
    assert roles(models)[-3:] == ["user", "assistant", "user"]
    assert callboard("run", "-q", "clerk", "-s", "other", "three")[0] == 0
    assert roles(models).count("user") == 1
    found = json.loads(callboard("sessions", "-a", "clerk", "-o", "json")[1])
    assert {(each["alias"], each["agent"]) for each in found} == {("diary", "clerk"), ("other", "clerk")}


def test_temp_is_not_kept_unless_somebody_wants_it_then_a_model_names_it(
    callboard: Callboard, models: FakeModels, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent(home, "agent_session: temp")
    assert callboard("run", "-q", "clerk", "one")[0] == 0
    assert callboard("ask", "-q", "-s", "temp", "one")[0] == 0
    assert json.loads(callboard("sessions", "-o", "json")[1]) == []
    models.script("Arches.", "What holds arches up?")
    code, _, err = callboard("ask", "-s", "temp", "--save-session", "tell me")
    assert code == 0
    (listed,) = json.loads(callboard("sessions", "-o", "json")[1])
    assert listed["is_autoname"]
    assert listed["alias"].endswith("-what-holds-arches-up")
    assert listed["alias"] in err
    monkeypatch.setenv("CALLBOARD_SAVE_SESSION", "true")
    assert callboard("ask", "-q", "-s", "temp", "more")[0] == 0
    assert len(json.loads(callboard("sessions", "-o", "json")[1])) == 2


def test_no_save_session_leaves_it_as_it_is(callboard: Callboard, models: FakeModels, home: Path) -> None:
    callboard("ask", "-q", "-s", "x", "one")
    callboard("ask", "-q", "-s", "x", "two", "--no-save-session")
    assert roles(models) == ["user", "assistant", "user"]
    assert "two" not in callboard("sessions", "show", "x")[1]
    callboard("ask", "-q", "-s", "y", "two", "--no-save-session")
    assert len(json.loads(callboard("sessions", "-o", "json")[1])) == 1


def test_one_can_be_read_exported_renamed_emptied_and_deleted(
    callboard: Callboard, models: FakeModels, home: Path, tmp_path: Path
) -> None:
    models.script(Reply(calls=[("get_current_time", {})]), "noon")
    callboard("ask", "-q", "-s", "x", "when?", "--tool", "get_current_time")
    shown = callboard("sessions", "show", "x")[1]
    assert shown.startswith("# when?\n")
    assert "Calls `get_current_time`" in shown
    assert shown.endswith("## Agent\n\nnoon\n")
    target = tmp_path / "out.json"
    assert callboard("sessions", "export", "x", str(target)) == (0, "", "")
    assert [each["role"] for each in json.loads(target.read_text())["messages"]] == ["user", "tool", "assistant"]
    path = Path(callboard("sessions", "path", "x")[1].strip())
    assert path.is_file()
    assert callboard("sessions", "rename", "x", "y") == (0, "", "callboard: session x is now called y\n")
    assert callboard("sessions", "compress", "y") == (0, "", "callboard: session y is compressed\n")
    assert callboard("sessions", "empty", "y") == (0, "", fragment("cli.actions.sessions.empty_session", label="y"))
    assert "messages: []" in path.read_text()
    assert callboard("sessions", "delete", "y") == (0, "", fragment("cli.actions.sessions.delete_sessions", name="y"))
    assert not path.exists()
    assert callboard("sessions")[1].startswith("no sessions yet")


def test_lokis_sessions_are_there(callboard: Callboard, models: FakeModels, home: Path) -> None:
    (home / "sessions").mkdir()
    (home / "sessions" / "old.yaml").write_text(
        "messages:\n- {role: user, content: a}\n- {role: assistant, content: b}\n"
    )
    assert callboard("sessions")[1].split()[0] == "old"
    callboard("ask", "-q", "-s", "old", "c")
    assert roles(models) == ["user", "assistant", "user"]


def test_a_session_in_use_by_another_process_is_told(
    callboard: Callboard, models: FakeModels, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from callboard.cli.actions import run as run_action

    monkeypatch.setattr(run_action, "WAIT", 0.1)
    store = SessionStore(home)
    made = store.create(alias="x")
    lock = store.try_hold(made.id)
    assert lock is not None
    code, out, err = callboard("ask", "-s", "x", "hi")
    assert (code, out) == (2, "")
    in_use, by = "runs.sessions.store.SessionStore.in_use", f"process {os.getpid()}…"
    assert has_message(err.splitlines()[-1], in_use, label="x", by=by)
    assert "waiting" in err.splitlines()[0]
    assert callboard("sessions", "delete", "x")[0] == 2
    lock.release()
    assert callboard("ask", "-q", "-s", "x", "hi")[0] == 0


@pytest.mark.parametrize("name", ["../x", "a/b", ".x", " "])
def test_a_name_that_is_a_path_is_wrong_usage(callboard: Callboard, models: FakeModels, home: Path, name: str) -> None:
    assert callboard("ask", "-s", name, "hi")[0] == 2
    assert models.requests == []
    assert not (home / "sessions").exists()


def test_s_with_nothing_behind_it_is_a_session_that_is_not_kept(
    callboard: Callboard, models: FakeModels, home: Path
) -> None:
    assert callboard("ask", "-q", "one", "-s") == (0, "ok\n", "")
    assert callboard("ask", "-q", "one", "--session") == (0, "ok\n", "")
    assert json.loads(callboard("sessions", "-o", "json")[1]) == []


def test_cmd_prelude_names_the_session_of_ask(
    callboard: Callboard, models: FakeModels, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for prelude in ("session:daily", "daily:code"):
        monkeypatch.setenv("CALLBOARD_CMD_PRELUDE", prelude)
        assert callboard("ask", "-q", "one")[0] == 0
    assert roles(models) == ["user", "assistant", "user"]  # the role is for a session in which nothing was said
    assert callboard("ask", "-q", "one", "-s", "other")[0] == 0
    assert roles(models) == ["user"]
    monkeypatch.setenv("CALLBOARD_CMD_PRELUDE", "role:shell")
    assert callboard("ask", "-q", "one")[0] == 0
    assert roles(models) == ["system", "user"]
    assert callboard("ask", "-q", "one", "--prompt", "")[0] == 0
    assert roles(models) == ["user"]
    monkeypatch.setenv("CALLBOARD_CMD_PRELUDE", "new:code")
    for _ in range(2):
        assert callboard("ask", "-q", "one")[0] == 0
    assert roles(models) == ["system", *("user", "assistant") * 2, "user"]
    monkeypatch.setenv("CALLBOARD_CMD_PRELUDE", "role:coder")
    assert "Unknown role `coder`; did you mean 'code'?" in callboard("ask", "-q", "one")[2]
    monkeypatch.setenv("CALLBOARD_CMD_PRELUDE", "daily")
    code, _, err = callboard("ask", "-q", "one")
    assert code == 3
    assert has_message(err, "protocol.settings.model.prelude_of", key="cmd_prelude", text="daily")
    found = json.loads(callboard("sessions", "-o", "json")[1])
    assert {each["alias"] for each in found} == {"daily", "new", "other"}


@pytest.mark.parametrize("setting", ["AGENT_SESSION", "AGENT_PRELUDE"])  # the latter is aichat's name for it
def test_agent_session_of_the_settings_holds_for_all_llm_agents_and_for_no_graph(
    callboard: Callboard, models: FakeModels, home: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    agent(home, "")
    graph = home / "agents" / "drawn"
    graph.mkdir()
    (graph / "graph.yaml").write_text("name: drawn\nstart: a\nnodes:\n  a: {type: end, output: hi}\n")
    monkeypatch.setenv(f"CALLBOARD_{setting}", "default")
    for target in ("clerk", "drawn"):
        assert callboard("run", "-q", target, "one")[0] == 0
    assert callboard("ask", "-q", "one")[0] == 0
    found = json.loads(callboard("sessions", "-o", "json")[1])
    assert [(each["alias"], each["agent"]) for each in found] == [("default", "clerk")]


def test_a_session_that_can_not_be_read_is_told_by_its_file_and_can_be_removed(
    callboard: Callboard, models: FakeModels, home: Path
) -> None:
    callboard("ask", "-q", "-s", "x", "one")
    path = Path(callboard("sessions", "path", "x")[1].strip())
    path.write_text("messages: [")
    for command in (("ask", "-s", "x", "two"), ("sessions", "show", "x")):
        code, out, err = callboard(*command)
        assert (code, out) == (2, "")
        assert f"{path} is no YAML" in err
    assert Path(callboard("sessions", "path", "x")[1].strip()) == path
    assert callboard("sessions", "delete", "x") == (0, "", fragment("cli.actions.sessions.delete_sessions", name="x"))
    assert not path.exists()


def test_an_answer_that_can_not_be_kept_is_printed_and_the_reason_told(
    callboard: Callboard, models: FakeModels, home: Path
) -> None:
    callboard("ask", "-q", "-s", "x", "one")
    path = Path(callboard("sessions", "path", "x")[1].strip())

    def vanish(_: object) -> str:
        path.unlink()
        return "forty-two"

    models.answer_with(vanish)
    code, out, err = callboard("ask", "-q", "-s", "x", "two")
    assert (code, out) == (1, "forty-two\n")
    assert err.splitlines()[-1] == (
        "callboard: the answer could not be saved in session 'x': session 'x' was deleted meanwhile"
    )


def test_a_list_of_nothing_says_how_to_begin(callboard: Callboard, home: Path) -> None:
    assert has_message(callboard("sessions")[1], "cli.actions.sessions.list_sessions.2")
    assert has_message(
        callboard("sessions", "-a", "clerk")[1], "cli.actions.sessions.list_sessions", agent="clerk", agent_2="clerk"
    )
