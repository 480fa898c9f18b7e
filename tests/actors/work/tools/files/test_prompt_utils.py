"""The helpers of `prompt-utils.sh`, under Callboard and without it."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.messages import has_message
from support.tool_bench import Bench

from callboard.actors.work.tools.files.environment import PROMPT_UTILS
from callboard.protocol.errors import ToolFailed


async def helped(bench: Bench, body: str, *answers: Any, **changes: Any) -> Any:
    """Call a tool whose `main` has this body and the helpers."""
    bench.answers = list(answers)
    file = bench.write("tools.sh", f'source "$LLM_PROMPT_UTILS_FILE"\nmain() {{\n{body}\n}}\n')
    return await bench.call(bench.declare(file), home=bench.at_home(**changes))


async def test_text_password_and_editor_ask_for_text(bench: Bench) -> None:
    body = """
        a=$(input "Name?" Bob); b=$(password "Pass:"); c=$(editor "Say it")
        printf '%s|%s|%s' "$a" "$b" "$c" >> "$LLM_OUTPUT"
    """
    assert await helped(bench, body, "Ada L.", "s3cret", "two\nlines") == {"output": "Ada L.|s3cret|two\nlines"}
    assert [question.text for question in bench.questions] == ["Name?", "Pass:", "Say it"]
    assert [question.secret for question in bench.questions] == [False, True, False]
    assert bench.questions[0].default == "Bob"


async def test_confirm_prints_1_or_0(bench: Bench) -> None:
    body = 'printf "%s%s" "$(confirm "A?")" "$(confirm "B?")" >> "$LLM_OUTPUT"'
    assert await helped(bench, body, "yes", "no") == {"output": "10"}
    assert {question.kind for question in bench.questions} == {"confirm"}


async def test_lists_print_the_index_of_what_was_chosen(bench: Bench) -> None:
    body = """
        options=("one" "two words" "-n")
        choice=$(list "Which?" "${options[@]}")
        checked=$(checkbox "Which ones?" "${options[@]}")
        printf '%s|%s' "${options[$choice]}" "$checked" >> "$LLM_OUTPUT"
    """
    assert await helped(bench, body, "two words", ["-n", "one"]) == {"output": "two words|0 2"}
    assert [question.options for question in bench.questions] == [("one", "two words", "-n")] * 2
    assert [question.kind for question in bench.questions] == ["choice", "checkbox"]
    assert await helped(bench, 'x=$(checkbox "None?" a b) && printf "<$x>" >> "$LLM_OUTPUT"', []) == {"output": "<>"}


async def test_the_idiom_with_dev_tty_works_without_a_terminal(bench: Bench) -> None:
    body = """
        text=$(with_validation 'input "Something:"' validate_present 2>/dev/tty)
        echo "to the terminal" > /dev/tty
        read -r -p "Directly? " word < /dev/tty
        printf '%s|%s' "$text" "$word" >> "$LLM_OUTPUT"
    """
    assert await helped(bench, body, "  ", "there", "here") == {"output": "there|here"}
    assert any("Please enter something." in line for line in bench.printed)
    assert "to the terminal" in bench.printed
    with pytest.raises(ToolFailed) as failed:
        await helped(bench, 'x=$(input "Anybody?" 2>/dev/tty) || exit 3')
    assert has_message(failed.value.stderr, "supervisors.escalation._nobody", text="Anybody?")


async def test_with_validate_asks_until_the_validator_agrees(bench: Bench) -> None:
    body = """
        long() { if [[ ${#1} -lt 4 ]]; then echo "too short"; exit 1; fi; }
        printf %s "$(with_validate 'password "Pass:"' long)" >> "$LLM_OUTPUT"
    """
    assert await helped(bench, body, "abc", "abcd") == {"output": "abcd"}
    assert any("too short" in line for line in bench.printed)


@pytest.mark.parametrize("guard", ['guard_operation "Really?"', 'guard_path /etc/passwd "Really?"'])
async def test_guards_go_on_only_with_a_yes(bench: Bench, guard: str) -> None:
    body = f'{guard}\nprintf done >> "$LLM_OUTPUT"'
    assert await helped(bench, body, "yes") == {"output": "done"}
    assert [question.text for question in bench.questions] == ["Really?"]
    assert bench.questions[0].people
    with pytest.raises(ToolFailed) as refused:
        await helped(bench, body, "no")
    assert "the person said no to: Really?" in refused.value.stderr
    with pytest.raises(ToolFailed) as nobody:
        await helped(bench, body)
    assert has_message(nobody.value.stderr, "supervisors.escalation._nobody")
    bench.questions.clear()
    assert await helped(bench, body, auto_confirm=True) == {"output": "done"}
    assert bench.questions == []


async def test_guard_path_asks_about_what_lies_outside_only(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bench.directory)
    body = """
        guard_path ./new/file
        guard_path "$PWD"
        (guard_path ../elsewhere 2>/dev/null) || printf 'asked,' >> "$LLM_OUTPUT"
        ln -s / root
        (guard_path root/etc 2>/dev/null) || printf 'asked' >> "$LLM_OUTPUT"
    """
    assert await helped(bench, body) == {"output": "asked,asked"}


async def test_patch_file_prints_the_new_contents_and_changes_nothing(bench: Bench) -> None:
    target, patch = bench.directory / "a.txt", bench.directory / "a.patch"
    target.write_text("one\ntwo\nthree\n")
    patch.write_text("--- a/../../x\n+++ b/../../x\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n")
    body = f'patch_file "{target}" "{patch}" >> "$LLM_OUTPUT"'
    assert await helped(bench, body) == {"output": "one\n2\nthree\n"}
    assert target.read_text() == "one\ntwo\nthree\n"
    assert "+2" in bench.printed
    patch.write_text("@@ -1,2 +1,2 @@\n uno\n-two\n+2\n")
    with pytest.raises(ToolFailed) as failed:
        await helped(bench, body)
    assert "the diff does not fit" in failed.value.stderr


TEXT = "one\ntwo\nthree\nfour\ntwo\nfive\n"


@pytest.mark.parametrize(
    ("text", "diff", "becomes"),
    [
        (TEXT, "@@ ... @@\n two\n-three\n+3\n", "one\ntwo\n3\nfour\ntwo\nfive\n"),
        (TEXT, "@@\n-two\n+first\n@@\n-two\n+second\n", "one\nfirst\nthree\nfour\nsecond\nfive\n"),
        (TEXT, "@@ -5,1 +5,1 @@\n-two\n+second\n", "one\ntwo\nthree\nfour\nsecond\nfive\n"),
        (TEXT, "@@ -99 +99 @@\n-five\n+5\n\n", "one\ntwo\nthree\nfour\ntwo\n5\n"),
        (TEXT, "Here it is:\n```diff\n--- a\n+++ b\n@@ -1 +1 @@\n-one\n+1\n```\n", "1\ntwo\nthree\nfour\ntwo\nfive\n"),
        (TEXT, "@@ -6,0 +7,1 @@\n+six\n", TEXT + "six\n"),
        ("one\n-- two\n", "@@\n one\n--- two\n+++ 2\n", "one\n++ 2\n"),
        ("a\n\nb\n", "@@\n a\n\n-b\n+c\n", "a\n\nc\n"),
        ("one\ntwo", "@@ -1,2 +1,2 @@\n-one\n+1\n two\n", "1\ntwo"),
        ("one\ntwo", "@@\n one\n-two\n\\ No newline at end of file\n+2\n", "one\n2\n"),
        ("one\ntwo\n", "@@\n one\n-two\n+2\n\\ No newline at end of file\n", "one\n2"),
        ("", "@@ -0,0 +1,2 @@\n+one\n+two\n", "one\ntwo\n"),
        ("one\n", "@@\n-one\n", ""),
    ],
)
@pytest.mark.sample(4)
async def test_a_patch_may_come_through_a_pipe_and_goes_where_its_lines_stand(
    bench: Bench, text: str, diff: str, becomes: str
) -> None:
    (bench.directory / "a.txt").write_text(text)
    (bench.directory / "diff").write_text(diff)
    body = f"""
        new=$(patch_file "{bench.directory}/a.txt" <(cat "{bench.directory}/diff") && printf x)
        printf %s "${{new%x}}" > "{bench.directory}/b.txt"
    """
    assert await helped(bench, body) == "DONE"
    assert (bench.directory / "b.txt").read_text() == becomes


@pytest.mark.parametrize(
    ("diff", "why"),
    [
        ("no diff at all\n", "there is no hunk in the diff"),
        ("@@\n-one\n+1\n@@\n-one\n+1\n", "hunk 2 of 2"),
        ("@@\n+new\n", "hunk 1 only adds lines and does not say where"),
        ("@@ -9,0 +9 @@\n+new\n", "hunk 1 adds lines where the file has none"),
        ("@@\n one\n*two\n", "line 3 of the diff begins with none of"),
    ],
)
async def test_a_diff_that_does_not_fit_says_why(bench: Bench, diff: str, why: str) -> None:
    (bench.directory / "a.txt").write_text(TEXT)
    (bench.directory / "diff").write_text(diff)
    with pytest.raises(ToolFailed) as failed:
        await helped(bench, f'cd "{bench.directory}"; patch_file a.txt diff >> "$LLM_OUTPUT"')
    assert why in failed.value.stderr
    assert "the diff does not fit 'a.txt'" in failed.value.stderr
    assert failed.value.output == ""


async def test_a_range_asks_for_a_number_between_its_ends(bench: Bench) -> None:
    body = 'printf "%s" "$(range "How many?" -5 3 10)" >> "$LLM_OUTPUT"'
    assert await helped(bench, body, "eleven", "11", "-6", "007") == {"output": "7"}
    assert [question.text for question in bench.questions] == ["How many? (-5 to 10)"] * 4
    assert bench.questions[0].default == "3"
    assert any("'11' is no whole number from -5 to 10" in line for line in bench.printed)
    with pytest.raises(ToolFailed) as failed:
        await helped(bench, 'range "How many?" 1 "a[\\$(touch pwned)]" 10')
    assert not Path("pwned").exists()
    assert "range needs three whole numbers" in failed.value.stderr


async def test_messages_go_where_the_tool_sends_them_and_else_to_stderr(bench: Bench) -> None:
    body = """
        info "to the result" >> "$LLM_OUTPUT"
        { success "in a group"; error "too"; } >> "$LLM_OUTPUT"
        text=$(warn "as a text"); printf '<%s>\\n' "$text" >> "$LLM_OUTPUT"
        debug "through a pipe" | cat >> "$LLM_OUTPUT"
        info "left alone"
        show_error "no"; show_success "yes"
        exit 1
    """
    with pytest.raises(ToolFailed) as failed:
        await helped(bench, body)
    assert failed.value.output.splitlines() == [
        "INFO: to the result",
        "SUCCESS: in a group",
        "ERROR: too",
        "<WARN: as a text>",
        "DEBUG: through a pipe",
    ]
    assert failed.value.stderr.splitlines() == ["INFO: left alone", "✘ no", "✔ yes"]


async def test_colours_are_variables_too(bench: Bench) -> None:
    body = 'printf "%s" "${red}${bold}no${default}" >> "$LLM_OUTPUT"'
    assert await helped(bench, body) == {"output": "no"}
    forced = await helped(bench, body, environ={**bench.home.environ, "CLICOLOR_FORCE": "1"})
    assert forced == {"output": "\033[31m\033[1mno\033[0m"}


async def test_messages_and_colours(bench: Bench) -> None:
    body = """
        error e; warn w; info i; debug d; trace t
        for colour in red green gold yellow blue magenta cyan white; do $colour "in $colour" >> "$LLM_OUTPUT"; done
        printf '%s %s' "$(detect_os)" "$(get_opener)" >> "$LLM_OUTPUT"
    """
    said = (await helped(bench, body))["output"]
    assert said.startswith("in red\nin green\n")
    assert said.endswith("linux xdg-open")
    forced = await helped(bench, body, environ={**bench.home.environ, "CLICOLOR_FORCE": "1"})
    assert "\033[31min red\033[0m\n" in forced["output"]
    for line in ("ERROR: e", "WARN: w", "INFO: i", "DEBUG: d", "TRACE: t"):
        assert any(line in printed for printed in bench.printed)


def test_without_callboard_they_ask_on_the_terminal(tmp_path: Path) -> None:
    script = f"""
        source {PROMPT_UTILS}
        printf '[%s]' "$(input "Name?")" "$(confirm "Sure?")" "$(list "Which?" a b)" "$(checkbox "Which?" a b c)"
    """
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"Ada L.\ny\n7\n2\n1 3\n")
        environ = {name: value for name, value in os.environ.items() if name != "CALLBOARD_ASK_FD"}
        take_it = f'exec 9<>{os.ttyname(theirs)}; exec bash -c "$0"'
        done = subprocess.run(
            ["bash", "-c", take_it, script], env=environ, capture_output=True, timeout=60, start_new_session=True
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout == b"[Ada L.][1][1][0 2]"


def test_without_callboard_and_without_a_terminal_they_say_so() -> None:
    environ = {name: value for name, value in os.environ.items() if name != "CALLBOARD_ASK_FD"}
    script = f'source {PROMPT_UTILS}; input "Name?"; echo "status $?"'
    done = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, timeout=60, start_new_session=True)
    assert done.stdout == b"status 1\n"
    assert b"nobody is there to answer: Name?" in done.stderr
