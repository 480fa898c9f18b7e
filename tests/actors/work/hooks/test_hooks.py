"""Hooks: commands and functions that have a say in what a run does, in the JSON that Claude Code has for them."""

from __future__ import annotations

import json
import os
import shutil
from functools import partial
from typing import Any

import pytest
import trio
from support.answering_person import Person
from support.fake_models import Reply
from support.messages import has_message
from support.repository import Repository

import callboard
from callboard.actors.work.hooks import of_command, of_json, together
from callboard.protocol.hooks import HookTable, matches, read_hooks
from callboard.protocol.settings.read import read_settings

JQ = pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")


def hooks(event: str, command: str, matcher: str = "", **more: object) -> dict[str, Any]:
    """The value of `hooks` with one command."""
    return {event: [{"matcher": matcher, "hooks": [{"type": "command", "command": command, **more}]}]}


def write(path: str) -> Reply:
    return Reply(calls=[("fs_write", {"path": path, "contents": "x"})])


def run(command: str) -> Reply:
    return Reply(calls=[("execute_command", {"command": command})])


@pytest.fixture
def project(repository: Repository) -> Repository:
    repository.agent("global_tools: [fs_write, fs_cat, execute_command]")
    return repository


# --- before a call ----------------------------------------------------------------------------------------


async def test_a_hook_sees_a_call_as_claude_code_tells_it(project: Repository) -> None:
    project.settings(hooks=hooks("PreToolUse", "cat > seen.json"))
    await project.run(write("a/b.txt"), "over", yes=True)
    seen = json.loads((project.root / "seen.json").read_text())
    assert seen["hook_event_name"] == "PreToolUse"
    assert seen["tool_name"] == "Write"
    assert seen["tool_input"] == {"file_path": str(project.root / "a/b.txt"), "contents": "x"}
    assert seen["cwd"] == str(project.root)
    assert seen["permission_mode"] == "bypassPermissions"
    assert seen["session_id"].startswith("run-")
    assert seen["tool_use_id"]
    assert (project.root / "a/b.txt").exists()


async def test_exit_status_2_refuses_and_the_model_reads_why(project: Repository) -> None:
    project.settings(hooks=hooks("PreToolUse", "echo 'not in here' >&2; exit 2", "Write|Edit"))
    await project.run(write("made"), "over", yes=True)
    assert "not in here" in project.told
    assert not (project.root / "made").exists()
    await project.run(run("echo fine"), "over", yes=True)
    assert "fine" in project.told


@JQ
async def test_json_refuses(project: Repository) -> None:
    script = """jq 'if (.tool_input.command | test("rm -rf")) then {hookSpecificOutput: {hookEventName: "PreToolUse",
    permissionDecision: "deny", permissionDecisionReason: "Destructive."}} else empty end'"""
    project.settings(hooks=hooks("PreToolUse", script, "Bash"))
    (project.root / "kept").touch()
    await project.run(run("rm -rf kept"), "over", yes=True)
    assert "Destructive." in project.told
    assert (project.root / "kept").exists()


async def test_json_changes_the_arguments(project: Repository) -> None:
    answer = {"hookSpecificOutput": {"updatedInput": {"file_path": str(project.root / "other"), "contents": "y"}}}
    project.settings(hooks=hooks("PreToolUse", f"echo '{json.dumps(answer)}'"))
    await project.run(write("made"), "over", yes=True)
    assert not (project.root / "made").exists()
    assert (project.root / "other").read_text() == "y"
    answer["hookSpecificOutput"]["updatedInput"] = {"contents": 3}  # type: ignore[dict-item]
    project.settings(hooks=hooks("PreToolUse", f"echo '{json.dumps(answer)}'"))
    await project.run(write("made"), "over", yes=True)
    assert has_message(project.told, "work.hooks.Hooks.before.2")


async def test_a_hook_allows_what_would_be_asked_and_never_what_is_denied(project: Repository) -> None:
    allow = "echo '" + json.dumps({"hookSpecificOutput": {"permissionDecision": "allow"}}) + "'"
    project.settings(hooks=hooks("PreToolUse", allow), permissions={"execute_command": {"deny": "rm*"}})
    await project.run(write("made"), run("rm made"), "over")
    assert (project.root / "made").exists()
    assert has_message(project.told, "work.tools.permissions.Permissions.admit")


async def test_a_hook_has_a_person_asked_where_nobody_would_be(project: Repository) -> None:
    ask = "echo '" + json.dumps({"hookSpecificOutput": {"permissionDecision": "ask"}}) + "'"
    project.settings(hooks=hooks("PreToolUse", ask))
    project.write("file", "contents")
    await project.run(Reply(calls=[("fs_cat", {"path": "file"})]), "over")
    assert has_message(project.told, "work.tools.permissions.Permissions._ask")


async def test_a_refusal_wins_over_an_allowance_whatever_the_order(project: Repository) -> None:
    allow = {"type": "command", "command": "echo '" + json.dumps({"decision": "approve"}) + "'"}
    deny = {"type": "command", "command": "exit 2"}
    for order in ([allow, deny], [deny, allow]):
        project.settings(hooks={"PreToolUse": [{"hooks": order}]})
        await project.run(write("made"), "over", yes=True)
        assert not (project.root / "made").exists()


@pytest.mark.parametrize(
    ("command", "timeout", "told"),
    [
        ("exit 1", 10, "status 1"),
        ("sleep 60", 0.2, "did not end within"),
        ("kill -9 $$", 10, "status"),
        ("echo '{'", 10, "no JSON"),
        ('echo \'{"decision": "maybe"}\'', 10, "maybe"),
        ("yes | head -c 3000000", 10, ""),
    ],
)
@pytest.mark.sample(3)
async def test_a_hook_that_fails_costs_itself(project: Repository, command: str, timeout: float, told: str) -> None:
    project.settings(hooks=hooks("PreToolUse", command, timeout=timeout))
    await project.run(write("made"), "over", yes=True)
    assert (project.root / "made").exists()
    assert any(told in warning for warning in project.warnings) or not told
    (project.root / "made").unlink()
    project.settings(hooks=hooks("PreToolUse", command, timeout=timeout, on_error="deny"))
    await project.run(write("made"), "over", yes=True)
    assert (project.root / "made").exists() == (not told)


async def test_hooks_of_one_event_are_asked_at_the_same_time(project: Repository) -> None:
    meet = "touch {0}; for i in $(seq 6000); do [ -e {1} ] && exit 0; sleep 0.02; done; exit 2"
    both = [
        {"type": "command", "command": meet.format("one", "two")},
        {"type": "command", "command": meet.format("two", "one")},
    ]
    project.settings(hooks={"PreToolUse": [{"hooks": both}]})
    await project.run(write("made"), "over", yes=True)
    assert (project.root / "made").exists()


async def test_an_if_is_compared_with_the_call(project: Repository) -> None:
    project.settings(hooks=hooks("PreToolUse", "exit 2", "Bash", **{"if": "Bash(git *)"}))
    await project.run(run("git status"), "over", yes=True)
    assert has_message(project.told, "work.hooks.Hooks.before")
    await project.run(run("echo x; sudo git status"), "over", yes=True)
    assert has_message(project.told, "work.hooks.Hooks.before")
    await project.run(run("echo fine 'git x'"), "over", yes=True)
    assert "fine" in project.told


# --- after a call -----------------------------------------------------------------------------------------


@JQ
async def test_a_hook_works_on_the_file_that_was_written(project: Repository) -> None:
    script = "jq -r .tool_input.file_path | xargs -I F sh -c 'echo more >> F'"
    project.settings(hooks=hooks("PostToolUse", script, "Write"))
    await project.run(write("made"), "over", yes=True)
    assert (project.root / "made").read_text() == "xmore\n"


async def test_what_it_says_stands_behind_the_result(project: Repository) -> None:
    project.settings(hooks=hooks("PostToolUse", "echo 'line 3 is too long' >&2; exit 2"))
    await project.run(write("made"), "over", yes=True)
    assert project.told.endswith("[A hook says:]\nline 3 is too long")
    added = {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "Also read b."}}
    project.settings(hooks=hooks("PostToolUse", f"echo '{json.dumps(added)}'"))
    await project.run(write("made"), "over", yes=True)
    assert project.told.endswith("[A hook says:]\nAlso read b.")


# --- around a run -----------------------------------------------------------------------------------------


async def test_what_is_printed_at_a_prompt_is_told_to_the_model(project: Repository) -> None:
    both = {**hooks("SessionStart", "echo 'Today is a holiday.'"), **hooks("UserPromptSubmit", "date +%Y; cat >seen")}
    project.settings(hooks=both)
    await project.run("over")
    prompt = project.models.requests[-1].prompt
    assert prompt.startswith("go\n\n[Added by a hook:]\nToday is a holiday.\n\n[Added by a hook:]\n2")
    assert json.loads((project.root / "seen").read_text())["prompt"] == "go"


async def test_a_refused_prompt_reaches_no_model(project: Repository) -> None:
    project.settings(hooks=hooks("UserPromptSubmit", "echo 'no secrets in prompts' >&2; exit 2"))
    outcome = await project.run()
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert (outcome.error.code, outcome.exit_code) == ("hook_refused", 1)
    assert "no secrets in prompts" in outcome.error.message
    assert project.models.requests == []


async def test_a_stop_hook_has_the_agent_go_on_until_it_is_content(project: Repository) -> None:
    script = 'cat > last.json; [ -e done ] || { touch done; echo "Run the tests first." >&2; exit 2; }'
    project.settings(hooks=hooks("Stop", script))
    outcome = await project.run("I am done.", "Now they pass.")
    assert outcome.output == "I am done.\nNow they pass." or outcome.output.endswith("Now they pass.")
    assert project.models.requests[-1].prompt == "Run the tests first."
    assert json.loads((project.root / "last.json").read_text())["stop_hook_active"] is True


async def test_a_stop_hook_that_is_never_content_does_not_keep_a_run_for_ever(project: Repository) -> None:
    project.settings(hooks=hooks("Stop", "exit 2"))
    outcome = await project.run(*["again"] * 11)
    assert outcome.status == "done"
    assert len(project.models.requests) == 11


async def test_a_hook_ends_the_run(project: Repository) -> None:
    answer = json.dumps({"continue": False, "stopReason": "Out of hours."})
    project.settings(hooks=hooks("PreToolUse", f"echo '{answer}'"))
    outcome = await project.run(write("made"), yes=True)
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert "Out of hours." in outcome.error.message
    assert not (project.root / "made").exists()


async def test_the_end_of_a_conversation_is_told_once(project: Repository) -> None:
    project.settings(hooks=hooks("SessionEnd", "echo . >> ends"))
    await project.run("over")
    assert (project.root / "ends").read_text() == ".\n"
    await project.run("over", on_history=lambda turns: None)  # it goes on elsewhere
    assert (project.root / "ends").read_text() == ".\n"


async def test_hooks_hear_that_a_person_is_needed(project: Repository) -> None:
    project.settings(hooks=hooks("Notification", "cat > note.json", "permission_prompt"))
    note = project.root / "note.json"
    async with callboard.Root(config_dir=project.config) as root:
        person = Person(root, lambda question: None)
        with root.questions.attach(person):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(project.run, write("made"), "over", root=root))
                with trio.fail_after(60):
                    while not note.exists() or not note.read_text():
                        await trio.sleep(0.01)
                root.questions.answer(person.asked_for[0].id, "yes", by="person")
    assert (project.root / "made").exists()
    assert json.loads((project.root / "note.json").read_text())["notification_type"] == "permission_prompt"


# --- functions --------------------------------------------------------------------------------------------


async def test_functions_of_a_program_have_the_same_say(project: Repository) -> None:
    seen: list[str] = []

    def before(told: dict[str, Any]) -> dict[str, Any] | None:
        seen.append(told["tool_name"])
        return {"decision": "block", "reason": "No."} if "secret" in told["tool_input"]["file_path"] else None

    async def at_prompt(told: dict[str, Any]) -> dict[str, Any]:
        await trio.sleep(0)
        return {"hookSpecificOutput": {"additionalContext": f"{told['prompt']} on"}}

    def broken(told: dict[str, Any]) -> dict[str, Any]:
        raise KeyError("x")

    given = {"PreToolUse": [("Write", before), ("Bash", broken)], "UserPromptSubmit": [at_prompt]}
    await project.run(write("secret"), write("made"), run("echo fine"), "over", yes=True, hooks=given)
    assert seen == ["Write", "Write"]
    assert not (project.root / "secret").exists()
    assert (project.root / "made").exists()
    assert "fine" in project.told
    assert any("'x'" in warning for warning in project.warnings)
    assert "go on" in project.models.requests[0].prompt


@pytest.mark.parametrize("error", [SystemExit(2), KeyboardInterrupt(), GeneratorExit()], ids=repr)
async def test_a_function_that_raises_a_base_exception_costs_itself(project: Repository, error: BaseException) -> None:
    def broken(_told: dict[str, Any]) -> dict[str, Any]:
        raise error

    async def broken_later(_told: dict[str, Any]) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        raise error

    hooks = {"PreToolUse": [("Write", broken)], "UserPromptSubmit": [broken_later]}
    await project.run(write("made"), "over", yes=True, hooks=hooks)
    assert (project.root / "made").exists()
    assert sum(type(error).__name__ in warning for warning in project.warnings) == 2


# --- files ------------------------------------------------------------------------------------------------


async def test_hooks_of_a_workspace_are_run_after_trust_and_as_they_were(project: Repository) -> None:
    script = project.write(".claude/hooks/check.sh", "#!/bin/sh\ntouch $CLAUDE_PROJECT_DIR/ran\n", executable=True)
    line = '"$CLAUDE_PROJECT_DIR"/.claude/hooks/check.sh'
    project.write(".claude/settings.json", json.dumps({"model": "opus", "hooks": hooks("PreToolUse", line)}))
    await project.run(write("made"), "over", yes=True)
    assert not (project.root / "ran").exists()
    project.trust()
    await project.run(write("made"), "over", yes=True)
    assert (project.root / "ran").exists()
    (project.root / "ran").unlink()
    script.write_text("#!/bin/sh\ntouch $CLAUDE_PROJECT_DIR/ran\n# more\n")
    await project.run(write("made"), "over", yes=True)
    assert not (project.root / "ran").exists()
    assert "check.sh" in project.warnings[-1]


async def test_a_hook_is_in_the_sandbox_of_the_run(project: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    from support.sandbox_surroundings import need

    need("landlock", monkeypatch)
    project.settings(hooks=hooks("PreToolUse", f"touch {project.home}/made; touch inside"))
    await project.run(write("made"), "over", yes=True, sandbox="workspace")
    assert not (project.home / "made").exists()
    assert (project.root / "inside").exists()


FAILED_DOWNLOAD = """#!/bin/sh
python3 - <<'END'
import urllib.request
try:
    urllib.request.urlopen("https://packages.example/simple/", timeout=20)
except OSError:
    pass
END
echo "error: Failed to fetch: https://packages.example/simple/iniconfig/" >&2
exit 2
"""
"""What uv does when it can't fetch what a hook's script needs: status 2, by which a hook refuses."""


@pytest.mark.parametrize("event", ["UserPromptSubmit", "PreToolUse"])
@pytest.mark.parametrize(
    ("how", "on_error", "refuses"),
    [
        ("uv run --script h.py", "allow", False),
        ("cd . && ./bin/uv run h.py", "allow", False),
        ("./with_uv", "allow", False),
        ("uv run --script h.py", "deny", True),
        ("./guard", "allow", True),
    ],
)
async def test_a_runner_that_the_sandbox_keeps_from_a_host_refuses_nothing(
    project: Repository, monkeypatch: pytest.MonkeyPatch, event: str, how: str, on_error: str, refuses: bool
) -> None:
    """A guard of the user's own that could not reach a host refuses all the same."""
    from support.sandbox_surroundings import need

    need("bubblewrap", monkeypatch)
    project.write("bin/uv", FAILED_DOWNLOAD, executable=True)
    project.write("guard", FAILED_DOWNLOAD, executable=True)
    project.write("with_uv", f"#!/usr/bin/env -S {project.root}/bin/uv run --script\n", executable=True)
    monkeypatch.setenv("PATH", f"{project.root}/bin:{os.environ['PATH']}")
    project.settings(hooks=hooks(event, how, on_error=on_error))
    outcome = await project.run(write("made"), "over", yes=True, sandbox="workspace")
    assert (project.root / "made").exists() is not refuses
    told = [text for request in project.models.requests for text in request.results]
    said = str([told, *project.warnings, outcome.error])
    assert "--allow host:packages.example" in said


def read(text: str) -> tuple[HookTable, list[str]]:
    table, problems = read_hooks(text, "settings.json")
    return table, [str(problem) for problem in problems]


def test_a_file_of_somebody_elses_is_read_as_far_as_it_is_known() -> None:
    table, problems = read(
        """{
  // a comment
  "permissions": {"allow": ["Bash(ls)"]},
  "hooks": {
    "PreToolUse": [{"matcher": "Bash", "hooks": [
      {"type": "command", "command": "a", "timeout": 5, "statusMessage": "checking", "async": true},
      {"type": "prompt", "prompt": "Is it safe?"},
      {"command": "${CLAUDE_PROJECT_DIR}/x", "args": ["--y"]}
    ]}],
    "PermissionRequest": [{"hooks": [{"type": "command", "command": "b"}]}],
    "Stop": [{"hooks": [{"type": "command", "command": ""}, {"type": "command", "command": "c", "timeout": "x"}]}],
    "SessionEnd": {"hooks": []},
    "SessionStart": [{"matcher": "(", "hooks": []}]
  }
}"""
    )
    assert [(hook.command, hook.args) for hook in table["PreToolUse"]] == [
        ("a", None),
        ("${CLAUDE_PROJECT_DIR}/x", ("--y",)),
    ]
    assert table["Stop"] == ()
    assert len(problems) == 7
    assert any(has_message(each, "protocol.hooks._hook.4", key="async") for each in problems)
    assert any(
        "settings.json:7:" in each and has_message(each, "protocol.hooks._hook", kind="prompt") for each in problems
    )
    assert any(has_message(each, "protocol.hooks._table.2", name="PermissionRequest") for each in problems)
    assert any(has_message(each, "protocol.hooks._group.2") for each in problems)


def test_one_key_turns_all_of_a_file_off() -> None:
    assert read('{"disableAllHooks": true, "hooks": {"Stop": [{"hooks": [{"command": "a"}]}]}}') == ({}, [])
    assert read("[]")[1]
    assert read("{")[1]


def test_settings_name_what_is_wrong_with_their_line() -> None:
    _, problems = read_settings(
        "hooks:\n  PreToolUse:\n    - hooks:\n        - {type: prompt, prompt: x}\n  Never:\n    - hooks: []\n", "c", {}
    )
    assert {problem.line for problem in problems} >= {4}
    assert problems


@pytest.mark.parametrize(
    ("matcher", "name", "fits"),
    [
        ("", "Bash", True),
        ("*", "Bash", True),
        ("Bash", "Bash", True),
        ("Bash", "BashOutput", False),
        ("Edit|Write", "Write", True),
        ("Edit, Write", "Write", True),
        ("mcp__memory__.*", "mcp__memory__create", True),
        ("mcp__.*__write.*", "mcp__fs__write_file", True),
        ("Notebook.*", "Bash", False),
        ("bash", "Bash", False),
        ("[", "Bash", False),
    ],
)
def test_a_matcher_is_a_list_of_names_or_a_regular_expression(matcher: str, name: str, fits: bool) -> None:
    assert matches(matcher, name) == fits


def test_answers_are_put_together_in_their_order() -> None:
    one = of_json("PreToolUse", {"hookSpecificOutput": {"updatedInput": {"a": 1}, "additionalContext": "one"}})
    two = of_json("PreToolUse", {"hookSpecificOutput": {"updatedInput": {"a": 2}, "permissionDecision": "ask"}})
    three = of_command("PreToolUse", 2, "", "three", "x")
    said = together([one, two, three])
    assert (said.refused, said.verdict, said.input, said.context) == ("three", "ask", {"a": 2}, ("one",))
    assert of_command("PreToolUse", 0, "plain words", "", "x") == together([])
    assert of_command("SessionStart", 0, "plain words", "", "x").context == ("plain words",)
    for wrong in ([], {"hookSpecificOutput": 3}, {"hookSpecificOutput": {"updatedInput": 3}}):
        with pytest.raises(ValueError, match="object"):
            of_json("PreToolUse", wrong)
