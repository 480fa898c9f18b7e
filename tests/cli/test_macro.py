"""`callboard macro` and `callboard macros`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fake_models import FakeModels, Reply
from support.messages import has_message

Callboard = Callable[..., "tuple[int, str, str]"]


@pytest.fixture
def home(models: FakeModels, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A configuration directory, and a working directory with a file."""
    home = models.config_dir(tmp_path / "config")
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(home))
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "notes.txt").write_text("the sky is green")
    monkeypatch.chdir(tmp_path / "here")
    return home


def put(home: Path, name: str, text: str) -> Path:
    file = home / "macros" / f"{name}.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def sent(models: FakeModels, number: int = -1) -> list[tuple[str, str]]:
    return [(each["role"], each["content"]) for each in models.requests[number].json["messages"]]


def steps(*lines: str) -> str:
    return json.dumps({"steps": lines})


def test_steps_are_prompts_and_commands(callboard: Callboard, models: FakeModels, home: Path) -> None:
    text = "variables: [{name: role}, {name: rest, rest: true, default: hi}]\nsteps:\n- .role {{role}}\n- '{{rest}}'\n"
    put(home, "m", text)
    code, out, err = callboard("macro", "m", "shell", "list", "--all", "files")
    assert (code, out) == (0, "ok\n")
    assert [line for line in err.splitlines() if line.startswith(">>")] == [">> .role shell", ">> list --all files"]
    assert sent(models)[1] == ("user", "list --all files")
    assert callboard("macro", "-q", "m", "shell") == (0, "ok\n", "")
    assert sent(models)[1] == ("user", "hi")
    code, _, err = callboard("macro", "m")
    assert code == 2
    assert has_message(err, "protocol.macro.Macro.bound", name="role", usage="m <role> [rest]...")


def test_each_prompt_stands_alone_but_in_a_session_of_the_macros_own(
    callboard: Callboard, models: FakeModels, home: Path
) -> None:
    put(home, "m", steps("one", "two", ".session", "three", "four", ".exit session", "five"))
    assert callboard("macro", "-q", "m")[0] == 0
    assert [len(request.json["messages"]) for request in models.requests] == [1, 1, 1, 3, 1]
    assert json.loads(callboard("sessions", "-o", "json")[1]) == []


def test_a_session_with_a_name_is_kept(callboard: Callboard, models: FakeModels, home: Path) -> None:
    put(home, "m", steps(".session work", "one"))
    assert callboard("macro", "-q", "m")[0] == 0
    assert [each["alias"] for each in json.loads(callboard("sessions", "-o", "json")[1])] == ["work"]


def test_what_the_chat_begins_with_a_macro_does_not(
    callboard: Callboard, models: FakeModels, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBOARD_CMD_PRELUDE", "daily:shell")
    put(home, "m", steps("one"))
    assert callboard("macro", "-q", "m")[0] == 0
    assert sent(models) == [("user", "one")]
    assert json.loads(callboard("sessions", "-o", "json")[1]) == []


def test_files_settings_and_one_shot_roles(callboard: Callboard, models: FakeModels, home: Path) -> None:
    put(
        home,
        "m",
        steps(
            ".set temperature 0.25",
            ".set enabled_tools get_current_time",
            ".prompt Be brief.",
            ".file notes.txt -- what colour?",
            ".role create-title it's green",
            ".exit role",
            ".set temperature null",
            "bare",
            ".exit",
            "never",
        ),
    )
    assert callboard("macro", "-q", "m")[0] == 0
    first, second, third = models.requests
    assert sent(models, 0)[0] == ("system", "Be brief.")
    assert "the sky is green" in first.prompt
    assert first.json["temperature"] == 0.25
    assert first.offered == ["get_current_time"]
    assert sent(models, 1)[-1] == ("user", "it's green")
    assert len(sent(models, 1)) == 4
    assert second.json["temperature"] == 0.25
    assert "temperature" not in third.json
    assert sent(models, 2) == [("user", "bare")]


def test_an_agent_answers_until_it_is_left(callboard: Callboard, models: FakeModels, home: Path) -> None:
    (home / "agents" / "clerk").mkdir(parents=True)
    file = home / "agents" / "clerk" / "config.yaml"
    file.write_text(
        "name: clerk\ninstructions: You serve {{who}}.\ncan_ask_user: false\n"
        "variables: [{name: who}]\nagent_session: always\n"
    )
    put(home, "m", steps(".agent clerk who=Ada", "one", ".exit agent", "two"))
    assert callboard("macro", "-q", "m")[0] == 0
    assert sent(models, 0) == [("system", "You serve Ada."), ("user", "one")]
    assert sent(models, 1) == [("user", "two")]
    put(home, "m", steps(".agent clerk work who=Ada", "one", "two", ".role code"))
    code, _, err = callboard("macro", "m")
    assert code == 2
    assert has_message(err, "front.chat.command_line.7")
    assert len(models.requests[-1].json["messages"]) == 4


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (".edit config", "Cannot perform this operation because you are in a macro: `.edit`"),
        (".role", "Usage: .role <name> [text]"),
        (".role nope", "Unknown role `nope`"),
        (".prompt", "Usage: .prompt <text>"),
        (".file", "Usage: .file"),
        (".set temperature", "Usage: .set <key> <value>. If value is null, unset key."),
        (".set temperature hot", "the value of `.set temperature` must be a number from 0 to 2, or null, not 'hot'"),
        (".set bogus 1", "Unknown key 'bogus'"),
        (".exit now", "Usage: .exit [role|session|agent|rag]"),
        (".agent a b c", "Usage: .agent <name> [session] [key=value]..."),
    ],
)
def test_a_step_that_can_not_be_played_ends_the_macro(
    callboard: Callboard, models: FakeModels, home: Path, step: str, words: str
) -> None:
    put(home, "m", steps(step, "never"))
    code, out, err = callboard("macro", "m")
    assert (code, out) == (2, "")
    assert words in err
    assert models.requests == []


def test_a_prompt_that_fails_ends_the_macro_with_its_code(callboard: Callboard, models: FakeModels, home: Path) -> None:
    models.answer_with(lambda _: Reply(status=400, error="no such thing"))
    put(home, "m", steps("one", "two"))
    assert callboard("macro", "-q", "m")[0] == 1
    assert len(models.requests) == 1


def test_arguments_that_nobody_takes_and_odd_steps_are_told(
    callboard: Callboard, models: FakeModels, home: Path
) -> None:
    file = put(home, "m", "variables: [{name: a}]\nsteps: ['{{a}} {{b}}']\n")
    code, _, err = callboard("macro", "m", "1", "2", "3")
    assert code == 0
    assert f"{file}:2:9: warning: `{{{{b}}}}` is not a variable of this macro, so it is not replaced" in err
    assert has_message(err, "cli.actions.macro._print_warnings", left="2 arguments", usage="m <a>")


def test_macros_are_listed_shown_edited_and_deleted(
    callboard: Callboard, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(home, "broken", "steps: x\n")
    put(home, "m", "description: Mine.\nvariables: [{name: a, default: 1}]\nsteps: [x]\n")
    out = callboard("macros")[1]
    assert "  m [a]   Mine.\n" in out
    assert "invalid: 1 error in" in out
    assert "generate-commit-message" in out
    listed = json.loads(callboard("macros", "-o", "json")[1])["macros"]
    assert [(each["name"], each["usage"]) for each in listed][-1] == ("m", "m [a]")
    assert "callboard macro m [a]" in callboard("macros", "show", "m")[1]
    assert json.loads(callboard("macros", "show", "m", "-o", "json")[1])["steps"] == ["x"]
    assert "`steps` is the text 'x'" in callboard("macros", "show", "broken")[2]
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "true")
    assert has_message(callboard("macros", "edit", "new")[1], "cli.actions.macros.edit_macro", name="new")
    monkeypatch.setenv("EDITOR", 'sh -c \'echo "- again" >> "$0"\'')
    assert callboard("macros", "edit", "m")[0] == 2  # it stands at the wrong place
    monkeypatch.setenv("EDITOR", 'sh -c \'echo "  - again" >> "$0"\'')
    assert "callboard macro new [topic]..." in callboard("macros", "edit", "new")[1]
    assert callboard("macros", "path", "new")[1] == f"{home}/macros/new.yaml\n"
    assert callboard("macros", "path")[1] == f"{home}/macros\n"
    assert callboard("macros", "delete", "new")[1] == f"deleted {home}/macros/new.yaml\n"
    assert has_message(callboard("macros", "delete", "generate-commit-message")[2], "io.named_files.NamedFiles.delete")
