"""`callboard [FLAGS] TEXT` and `callboard loki [FLAGS] TEXT`, against a scripted model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.fake_models import FakeModels, Reply
from support.messages import has_message

from callboard.cli.chat import program
from callboard.cli.loki import play

from ..conftest import Ended

Callboard = Callable[..., Ended]


@pytest.mark.parametrize("line", [["What is 2+2?"], ["--", "What", "is 2+2?"]], ids=str)
@pytest.mark.parametrize("loki", [False, True])
def test_a_text_is_asked_and_answered(callboard: Callboard, models: FakeModels, line: list[str], loki: bool) -> None:
    models.script("4")
    assert callboard(*(["loki"] if loki else []), *line)[:2] == (0, "4\n")
    assert models.requests[0].prompt == "What is 2+2?"


def test_loki_and_ask_take_every_text_and_callboard_alone_refuses_a_slip(
    callboard: Callboard, models: FakeModels
) -> None:
    assert callboard("What", "is", "2+2?").code == 2  # nearly `chat`
    assert callboard("rnu", "coder").code == 2
    assert models.requests == []
    for line in (["loki", "What", "is", "2+2?"], ["loki", "rnu", "coder"], ["loki", "rnu"], ["ask", "rnu", "coder"]):
        assert callboard(*line).code == 0
    prompts = ["What is 2+2?", "rnu coder", "rnu", "rnu coder"]
    assert [request.prompt for request in models.requests] == prompts


def test_what_stands_behind_the_text_belongs_to_it(callboard: Callboard, models: FakeModels) -> None:
    _code, _out, err = callboard("explain", "tar", "-x", "-m", "--", "more")
    assert models.requests[0].prompt == "explain tar -x -m -- more"
    assert has_message(err, "cli.loki.flags._warn_of_late_flags", late="-m")
    assert "behind the text" not in callboard("loki", "explain", "tar", "-x", "-m").err


def test_a_single_word_is_a_prompt_for_loki_alone(callboard: Callboard, models: FakeModels) -> None:
    assert callboard("hello").code == 2
    assert callboard("loki", "hello").code == 0
    assert [request.prompt for request in models.requests] == ["hello"]


def test_a_slip_says_how_it_is_meant_as_a_prompt(callboard: Callboard, models: FakeModels) -> None:
    code, _out, err = callboard("rules", "of", "chess")
    assert code == 2
    assert "did you mean 'roles'? As a prompt: callboard -- rules ..." in err
    assert models.requests == []
    assert callboard("--", "rules", "of", "chess").code == 0


def test_role_prompt_and_model(callboard: Callboard, models: FakeModels) -> None:
    callboard("-m", "fake:other", "--prompt", "you are a pirate", "hello", "there")
    callboard("--role", "explain-shell", "tar xzf a.tgz")
    pirate, shell = models.requests
    assert (pirate.json["model"], pirate.system, pirate.prompt) == ("other", "you are a pirate", "hello there")
    assert shell.system.startswith("Explain the ")


def test_a_session_goes_on_is_emptied_and_kept(callboard: Callboard, models: FakeModels) -> None:
    callboard("-s", "test", "one and two")
    callboard("-s", "test", "what did I say?")
    callboard("-s", "test", "--empty-session", "and now?")
    turns = [
        [each["content"] for each in request.json["messages"] if each["role"] == "user"] for request in models.requests
    ]
    assert turns == [["one and two"], ["one and two", "what did I say?"], ["and now?"]]
    assert callboard("-s", "new", "--empty-session", "hello there").code == 0


def test_a_dry_run_changes_no_session(callboard: Callboard, models: FakeModels) -> None:
    callboard("-s", "test", "one and two")
    code, _out, err = callboard("-s", "test", "--empty-session", "--dry-run", "and now?")
    assert (
        code,
        has_message(err, "cli.loki.play.play.2", what="the session"),
        has_message(err, "cli.actions.sessions.empty_session"),
    ) == (
        0,
        True,
        False,
    )
    callboard("-s", "test", "what did I say?")
    turns = [each["content"] for each in models.requests[-1].json["messages"] if each["role"] == "user"]
    assert turns == ["one and two", "what did I say?"]
    assert callboard("--rag", "none", "--rebuild-rag", "--dry-run").code == 0


def test_a_session_without_a_name_is_kept_if_that_is_wanted(callboard: Callboard, models: FakeModels) -> None:
    models.script("yes", "A title")
    code, _out, err = callboard("-s", "--save-session", "hello there")
    assert code == 0
    assert "session: " in err


def test_the_next_word_is_the_sessions_name_as_in_loki(callboard: Callboard, models: FakeModels) -> None:
    callboard("-s", "hello", "you", "there")
    assert models.requests[0].prompt == "you there"
    assert callboard("--list-sessions").out == "hello\n"


def test_files_go_with_the_text_or_alone(callboard: Callboard, models: FakeModels, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(f"contents of {name}")
    callboard("-f", str(tmp_path / "a"), "-f", str(tmp_path / "b"), "compare them")
    callboard("-f", str(tmp_path / "a"))
    both, alone = (request.prompt for request in models.requests)
    assert all(part in both for part in ("compare them", "contents of a", "contents of b"))
    assert "contents of a" in alone


def test_what_is_piped_in_stands_behind_the_text(process: Callboard, models: FakeModels) -> None:
    assert process("summarize", "this", text="hello\n").code == 0
    assert process(text="hello\n").code == 0
    assert process("loki", "summarize", text="hello\n").code == 0
    assert [request.prompt for request in models.requests] == ["summarize this\nhello", "hello", "summarize\nhello"]


def test_an_agent_with_its_variables_answers(callboard: Callboard, models: FakeModels) -> None:
    home = Path(callboard("--info").out.split("agents_dir")[1].split()[0]) / "mine"
    home.mkdir(parents=True)
    about = {"name": "mine", "instructions": "For {{who}}.", "variables": [{"name": "who", "description": "w"}]}
    (home / "config.yaml").write_text(json.dumps(about))
    assert callboard("-a", "mine", "--agent-variable", "who", "Ann", "hello there").code == 0
    assert "For Ann." in models.requests[0].system
    code, _out, err = callboard("-a", "mine", "hello there")
    assert (code, "who" in err) == (2, True)


def test_a_macro_gets_the_words_as_its_arguments(callboard: Callboard, models: FakeModels, tmp_path: Path) -> None:
    macros = tmp_path / "config" / "macros"
    macros.mkdir()
    macro = {"variables": [{"name": "a"}, {"name": "b", "rest": True}], "steps": ["say {{a}} and {{b}}"]}
    (macros / "say.yaml").write_text(json.dumps(macro))
    assert callboard("--macro", "say", "one", "two", "three").code == 0
    assert models.requests[0].prompt == "say one and two three"
    assert callboard("--macro", "say", "--dry-run", "one", "two").code == 0
    told = callboard("--macro", "say", "-r", "shell", "-f", "x", "--dry-run", "one", "two").err
    assert has_message(told, "cli.loki.play._macro", said="--role, --file")


def test_a_dry_run_shows_what_would_be_sent(callboard: Callboard, models: FakeModels) -> None:
    code, out, _err = callboard("--dry-run", "hello there")
    assert (code, "user:\nhello there" in out) == (0, True)
    assert models.requests == []


def test_code_alone(callboard: Callboard, models: FakeModels) -> None:
    models.script("Sure!\n\n```python\nprint(1)\n```\nThat prints 1.")
    code, out, _err = callboard("-c", "print one in python")
    assert (code, out) == (0, "print(1)\n")
    assert models.requests[0].system.startswith("You write programs.")
    assert "system:\nYou write programs." in callboard("-c", "--dry-run", "print one").out


def test_a_failure_has_the_exit_code_that_it_has_elsewhere(callboard: Callboard, models: FakeModels) -> None:
    models.script(Reply(status=400, error="no"), Reply(status=400, error="no"))
    code, out, err = callboard("-c", "hello there")
    assert (code, out) == callboard("ask", "hello there")[:2]
    assert code not in (0, 2)
    assert "callboard: " in err
    assert callboard("-r", "no-such-role", "hello there").code == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["-a", "demo", "-r", "code", "x y"], "--agent and --role exclude each other"),
        (["-e", "-c", "x y"], "--execute and --code exclude each other"),
        (["--empty-session", "x y"], "--empty-session needs the session"),
        (["--agent-variable", "a", "b", "x y"], "--agent-variable needs the agent"),
        (["--rebuild-rag", "x y"], "--rebuild-rag needs the knowledge base"),
        (["-e"], "--execute needs a TEXT"),
        (["--no-such-flag", "x y"], "--no-such-flag"),
    ],
    ids=str,
)
def test_flags_that_make_no_sense_are_wrong_usage(
    callboard: Callboard, models: FakeModels, line: list[str], said: str
) -> None:
    for first in ([], ["loki"]):
        code, out, err = callboard(*first, *line)
        assert (code, out, said in err) == (2, "", True)
    assert models.requests == []


@pytest.mark.parametrize("line", [["-m", "fake:x"], ["-r", "code"], ["loki"], ["--"]], ids=str)
def test_without_text_and_terminal_there_is_no_chat(callboard: Callboard, config: Path, line: list[str]) -> None:
    code, out, err = callboard(*line)
    assert (code, out) == (2, "")
    assert has_message(err, "cli.loki.play._without_text")


@pytest.mark.parametrize(
    "line",
    [
        ["--continue", "what now?"],
        ["--continue", "--resume"],
        ["--resume", "-s", "one"],
        ["--continue", "-a", "demo"],
        ["chat", "--continue", "--resume"],
        ["chat", "demo", "--continue"],
        ["chat", "--resume", "-s", "one"],
        ["loki", "--continue"],
        ["-c"],
    ],
    ids=" ".join,
)
def test_a_chat_that_is_continued_takes_nothing_else(callboard: Callboard, config: Path, line: list[str]) -> None:
    assert callboard(*line).code == 2


def test_loki_is_obeyed_while_its_line_is_at_work(
    callboard: Callboard, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []

    def open_chat(*_: Any, **__: Any) -> int:
        seen.append(os.environ.get("CALLBOARD_COMPAT"))
        return 0

    monkeypatch.delenv("CALLBOARD_COMPAT", raising=False)
    monkeypatch.setattr(play, "_at_terminal", lambda: True)
    monkeypatch.setattr(program, "open_chat", open_chat)
    assert callboard("loki").code == 0
    assert callboard().code == 0
    assert seen == ["loki", None]


def test_at_a_terminal_without_text_the_chat_begins_with_what_the_flags_say(
    callboard: Callboard, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def open_chat(opening: dict[str, Any], **options: Any) -> int:
        opened.append((opening, options))
        return 7

    monkeypatch.setattr(play, "_at_terminal", lambda: True)
    monkeypatch.setattr(program, "open_chat", open_chat)
    assert callboard().code == 7
    assert callboard("--no-tools").code == 7
    assert callboard("--continue").code == 7
    assert callboard("--resume").code == 7
    assert callboard("-r", "code", "-s", "-m", "fake:x", "--save-session").code == 7
    assert callboard("loki", "-C", "there", "-a", "demo", "-s", "one", "--agent-variable", "a", "b", "-S").code == 7
    assert [opening for opening, _ in opened] == [
        {"default_agent": True, "store": True},
        {"store": True},
        {"store": True, "default_agent": True, "reopen": "last"},
        {"store": True, "default_agent": True, "reopen": "choose"},
        {
            "role": "code",
            "session": "",
            "model": "fake:x",
            "save_session": True,
            "default_agent": True,
            "store": True,
        },
        {"agent": "demo", "session": "one", "variables": {"a": "b"}, "default_agent": True, "store": True},
    ]
    assert [options for _, options in opened] == [
        *[{"config_dir": None, "streams": True}] * 5,
        {"config_dir": "there", "streams": False},
    ]


def test_the_directory_in_front_of_a_command_counts_for_it_alone(
    callboard: Callboard, config: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    assert callboard("-C", str(other), "agents", "path").out == f"{other / 'agents'}\n"
    assert callboard("agents", "path").out == f"{config / 'agents'}\n"
    assert callboard("-C", str(other), "--info").out.split("agents_dir")[1].split()[0] == str(other / "agents")
    assert callboard("loki", "-C", str(other), "--info").out.split("roles_dir")[1].split()[0] == str(other / "roles")


def test_loki_reads_the_directory_that_its_variable_names(
    callboard: Callboard, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOKI_CONFIG_DIR", str(tmp_path / "theirs"))
    assert callboard("loki", "--info").out.split("config_dir")[1].split()[0] == str(tmp_path / "theirs")
    assert callboard("--info").out.split("config_dir")[1].split()[0] == str(config)


@pytest.mark.parametrize("first", [[], ["loki"]], ids=str)
def test_the_env_file_of_the_directory_counts(process: Callboard, config: Path, first: list[str]) -> None:
    (config / ".env").write_text("CALLBOARD_MODEL=claude:from-the-file\n")
    assert has_message(process(*first, "--dry-run", "hello there").out, "work.models.gateway.as_text")
    (config / ".env").unlink()
    other = config.parent / "other"
    other.mkdir()
    (other / ".env").write_text("CALLBOARD_MODEL=claude:from-another\n")
    assert has_message(
        process(*first, "-C", str(other), "--dry-run", "hello there").out,
        "work.models.gateway.as_text",
        model="claude:from-another",
    )
    theirs = {"LOKI_CONFIG_DIR": str(other), "CALLBOARD_CONFIG_DIR": str(config)}
    shown = process("loki", "--dry-run", "hello there", **theirs)
    assert has_message(shown.out, "work.models.gateway.as_text", model="claude:from-another")


@pytest.mark.parametrize("line", [["-e"], ["--no-such-flag", "hello"], ["-r", "a", "-a", "b", "hello"]], ids=str)
def test_wrong_usage_names_the_help_that_has_these_flags(callboard: Callboard, line: list[str]) -> None:
    code, _out, err = callboard(*line)
    assert code == 2
    assert err.startswith("callboard: ")
    assert "callboard loki --help lists the flags" in err
    assert "Try 'callboard --help'" not in err


def test_what_is_asked_and_answered_is_kept_where_the_settings_say_so(
    callboard: Callboard, models: FakeModels, tmp_path: Path
) -> None:
    home = models.config_dir(tmp_path / "saving")
    settings = json.loads((home / "config.yaml").read_text())
    (home / "config.yaml").write_text(json.dumps({**settings, "save": True}))
    models.answer_with(lambda request: f"so it is: {request.prompt}")
    callboard("-C", str(home), "what is it")
    callboard("ask", "-C", str(home), "-r", "explain-shell", "ls -l")
    callboard("-C", str(home), "-s", "kept", "in", "a", "session")
    callboard("-C", str(home), "--dry-run", "not", "sent")
    kept = (home / "messages.md").read_text()
    assert kept.count("# CHAT: ") == 2
    assert "# CHAT: fake:model [" in kept
    assert "# CHAT: explain-shell [" in kept
    assert "what is it\n\n--------\n\nso it is: what is it\n" in kept
    assert (home / "messages.md").stat().st_mode & 0o777 == 0o600
