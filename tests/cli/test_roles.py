"""`callboard ask --role`, `--prompt`, and `callboard roles`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fake_models import FakeModels
from support.messages import has_message

from callboard.cli.main import cli

Callboard = Callable[..., "tuple[int, str, str]"]


@pytest.fixture
def home(models: FakeModels, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A configuration directory with roles."""
    home = models.config_dir(tmp_path / "config")
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(home))
    return home


def put(home: Path, name: str, text: str) -> Path:
    file = home / "roles" / f"{name}.md"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def sent(models: FakeModels) -> list[tuple[str, str]]:
    """What the last request was: roles and texts."""
    return [(each["role"], each["content"]) for each in models.requests[-1].json["messages"]]


def test_a_role_answers_with_its_prompt_its_model_and_its_tools(
    callboard: Callboard, models: FakeModels, home: Path
) -> None:
    put(home, "clerk", "---\ntemperature: 0.25\nenabled_tools: get_current_time\n---\nYou serve on {{__os__}}.")
    assert callboard("ask", "-q", "-r", "clerk", "hi") == (0, "ok\n", "")
    assert sent(models) == [("system", f"You serve on {sys.platform}."), ("user", "hi")]
    assert models.requests[-1].json["temperature"] == 0.25
    assert models.requests[-1].offered == ["get_current_time"]


def test_the_settings_name_the_tools_of_a_role_that_names_none_and_a_flag_goes_before_both(
    callboard: Callboard, models: FakeModels, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBOARD_ENABLED_TOOLS", "fs_ls")
    put(home, "open", "x")
    put(home, "clerk", "---\nenabled_tools: get_current_time\n---\nx")
    put(home, "bare", "---\nenabled_tools: []\n---\nx")
    for flags in (["open"], ["clerk"], ["bare"], ["clerk", "--tool", "fs_cat"]):
        assert callboard("ask", "-q", "hi", "-r", *flags)[0] == 0
    assert [request.offered for request in models.requests] == [["fs_ls"], ["get_current_time"], [], ["fs_cat"]]


def test_an_embedded_prompt_goes_around_what_is_said(callboard: Callboard, models: FakeModels, home: Path) -> None:
    put(home, "to", "---\nprompt: convert __INPUT__ to __ARG1__\n---\nCode only.")
    assert callboard("ask", "-q", "--role", "to#TOML", '{"a": 1}')[0] == 0
    assert sent(models) == [("system", "Code only."), ("user", 'convert {"a": 1} to TOML')]
    code, _, err = callboard("ask", "-q", "--role", "to", "x")
    assert (code, err) == (2, "callboard: role 'to' takes 1 argument, not 0: write it as to#ARG1\n")


def test_examples_are_turns_before_the_prompt(callboard: Callboard, models: FakeModels, home: Path) -> None:
    assert callboard("ask", "-q", "--prompt", "Sum.\n### INPUT:\n1+1\n### OUTPUT:\n2", "2+2")[0] == 0
    assert sent(models) == [("system", "Sum."), ("user", "1+1"), ("assistant", "2"), ("user", "2+2")]


def test_a_session_keeps_its_role_and_takes_another(callboard: Callboard, models: FakeModels, home: Path) -> None:
    put(home, "one", "You are one.\n### INPUT:\na\n### OUTPUT:\nb")
    put(home, "two", "You are two.")
    for flags in (["-r", "one"], [], ["-r", "two"], ["--prompt", "<__INPUT__>"], []):
        assert callboard("ask", "-q", "hi", "-s", "talk", *flags)[0] == 0
    said = [
        [(each["role"], each["content"]) for each in request.json["messages"] if each["role"] != "assistant"]
        for request in models.requests
    ]
    assert said[0] == [("system", "You are one."), ("user", "a"), ("user", "hi")]
    assert said[1] == [*said[0], ("user", "hi")]
    assert said[2] == [("system", "You are two."), *said[1][1:], ("user", "hi")]
    assert said[3] == [*said[2][1:], ("user", "<hi>")]
    assert said[4] == [*said[3], ("user", "<hi>")]
    (session,) = json.loads(callboard("sessions", "-o", "json")[1])
    assert session["title"] == "hi"


def test_a_session_of_a_role_that_loki_kept_goes_on(callboard: Callboard, models: FakeModels, home: Path) -> None:
    file = home / "sessions" / "old.yaml"
    file.parent.mkdir()
    file.write_text("role_name: temp\nmessages:\n- {role: system, content: Be old.}\n- {role: user, content: a}\n")
    assert callboard("ask", "-q", "hi", "-s", "old")[0] == 0
    assert sent(models)[0] == ("system", "Be old.")
    assert callboard("ask", "-q", "hi", "-s", "old", "--prompt", "Be new.")[0] == 0
    assert sent(models)[0] == ("system", "Be new.")


def test_a_role_that_is_not_there_is_not_kept(callboard: Callboard, models: FakeModels, home: Path) -> None:
    assert callboard("ask", "-q", "one", "-s", "talk", "-r", "shell")[0] == 0
    for flags in (["-r", "nope"], ["-r", "shell#x"]):
        assert callboard("ask", "-q", "two", "-s", "talk", *flags)[0] == 2
    assert callboard("ask", "-q", "-s", "talk", "three")[0] == 0
    assert sent(models)[0][1].startswith("You turn what the user wants")
    assert len(sent(models)) == 4


def test_a_temporary_session_that_is_kept_keeps_its_role(callboard: Callboard, models: FakeModels, home: Path) -> None:
    assert callboard("ask", "-q", "-s", "temp", "--save-session", "-r", "shell", "hi")[0] == 0
    (session,) = json.loads(callboard("sessions", "-o", "json")[1])
    assert callboard("ask", "-q", "-s", session["id"], "again")[0] == 0
    assert sent(models)[0][1].startswith("You turn what the user wants")
    assert [role for role, _ in sent(models)] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["-r", "nope"], 2, "Unknown role `nope`"),
        (["-r", "list"], 2, "the front matter holds a list"),
        (["-r", "code", "--system", "x"], 2, "--role and --system contradict each other"),
        (["-r", "code", "--prompt", "x"], 2, "--role and --prompt contradict each other"),
    ],
)
def test_what_is_no_role_is_wrong_usage(
    callboard: Callboard, models: FakeModels, home: Path, flags: list[str], code: int, words: str
) -> None:
    put(home, "list", "---\n- a\n---\n")
    ended, _, err = callboard("ask", "hi", *flags)
    assert ended == code
    assert words in err
    assert models.requests == []


def test_warnings_of_a_role_name_its_file(callboard: Callboard, models: FakeModels, home: Path) -> None:
    file = put(home, "odd", "---\ntop_k: 3\nenabled_tools: get_current_tim\n---\nx")
    code, _, err = callboard("ask", "hi", "-r", "odd")
    assert code == 0
    assert f"{file}:2:1: warning: unknown key `top_k` in a role" in err
    assert f"{file}: warning: its list of tools has 'get_current_tim'" in err


def test_a_role_that_wants_mcp_where_it_is_turned_off_answers_without_and_it_is_told(
    callboard: Callboard, models: FakeModels, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBOARD_MCP_SERVER_SUPPORT", "false")
    code, _, err = callboard("ask", "hi", "-r", "github")
    assert code == 0
    assert "warning: role 'github' uses MCP servers, but MCP is turned off: the role answers without them" in err
    assert models.requests[-1].offered == []
    assert "MCP" not in callboard("ask", "hi", "-r", "shell")[2]


# --- callboard roles ------------------------------------------------------------------------------------------


def test_roles_are_listed_with_what_is_wrong(callboard: Callboard, home: Path) -> None:
    put(home, "broken", "---\ntop_p: x\n---\n")
    put(home, "tr", "---\ndescription: Translates.\nmodel: fake:model\n---\n__ARG1__")
    code, out, _ = callboard("roles")
    assert code == 0
    assert has_message(out, "cli.actions.roles._why_not", name="broken")
    assert "  tr#ARG1  Translates. [fake:model]\n" in out
    assert "Explains a command of the shell." in out
    listed = json.loads(callboard("roles", "-o", "json")[1])["roles"]
    assert {each["name"]: each["origin"] for each in listed}["shell"] == "built in"


def test_a_role_is_shown_with_its_arguments_put_in(callboard: Callboard, home: Path) -> None:
    put(home, "tr", "---\nenabled_tools: fs_cat\ntop_k: 1\n---\nInto __ARG1__: __INPUT__")
    out = callboard("roles", "show", "tr#it")[1]
    assert "tr (embedded prompt, yours)" in out
    assert "Into it: __INPUT__" in out
    assert "enabled tools  fs_cat" in out
    assert "unknown key `top_k`" in out
    shown = json.loads(callboard("roles", "show", "code", "-o", "json")[1])
    assert shown["examples"][0]["input"] == "read a JSON file in python"
    assert callboard("roles", "show", "nope")[0] == 2


def test_a_role_is_saved_from_standard_input_and_deleted(
    callboard: Callboard, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(text: bytes, *more: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": __import__("io").BytesIO(text)})())
        return callboard("roles", "save", "code", *more)

    code, out, _ = save(b"Be brief.\n")
    assert code == 0
    assert has_message(out, "cli.actions.roles._hides", name="code")
    assert has_message(save(b"Other.")[2], "cli.actions.roles.save_role.2")
    assert save(b"Other.", "--force")[0] == 0
    assert has_message(save(b"\xff")[2], "cli.actions.roles.save_role")
    assert callboard("roles", "path", "code")[1] == f"{home}/roles/code.md\n"
    assert callboard("roles", "path")[1] == f"{home}/roles\n"
    assert callboard("roles", "delete", "code")[1] == f"deleted {home}/roles/code.md\n"
    assert has_message(callboard("roles", "delete", "code")[2], "io.named_files.NamedFiles.delete")


def test_a_role_is_edited(callboard: Callboard, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "true")
    assert has_message(callboard("roles", "edit", "new")[1], "cli.actions.roles.edit_role", name="new")
    assert not (home / "roles" / "new.md").exists()
    monkeypatch.setenv("EDITOR", "sh -c 'echo Be brief >> \"$0\"'")
    assert "callboard ask -r new PROMPT" in callboard("roles", "edit", "new")[1]
    assert has_message(callboard("roles", "edit", "shell")[1], "cli.actions.roles._hides")
    assert (home / "roles" / "shell.md").read_text().endswith("no full stop.\nBe brief\n") is False
    assert (home / "roles" / "shell.md").read_text().endswith("harm.\nBe brief\n")
    monkeypatch.setenv("EDITOR", 'sh -c \'printf -- "---\\ntop_p: x\\n---\\n" > "$0"\'')
    code, _, err = callboard("roles", "edit", "new")
    assert code == 2
    assert "`top_p` is the text 'x'" in err
    monkeypatch.setenv("EDITOR", "no-such-editor-at-all")
    assert has_message(callboard("roles", "edit", "new")[2], "cli.desktop.edit_file")
    assert has_message(callboard("roles", "edit", "code")[2], "cli.desktop.edit_file")
    assert not (home / "roles" / "code.md").exists()
    assert has_message(callboard("roles", "edit", "../x")[2], "io.named_files.NamedFiles.place_for", kind="role")


def test_names_of_roles_are_completed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.shell_completion import ShellComplete

    put(home, "coach", "x")
    complete = ShellComplete(cli, {}, "callboard", "_X")
    for words in (["ask", "-r"], ["roles", "show"]):
        assert [each.value for each in complete.get_completions(words, "co")] == ["coach", "code"]
