"""Rules for shell commands: each simple command of a line is judged as a shell would run it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callboard.actors.work.tools.rules import weighed
from callboard.actors.work.tools.shell_commands import WRAPPERS, parse
from callboard.actors.work.tools.shell_parser import HARMLESS_VARIABLES, LONGEST
from callboard.actors.work.tools.shell_rules import judged, verdicts_of
from callboard.protocol.permissions import PermissionRule

RULE = weighed(PermissionRule(allow=("git status*", "ls*", "cd *", "grep *", "cat *", "echo *"), deny=("rm *",)))
OPEN = weighed(PermissionRule(allow=("*",), deny=("rm *", "git push*")))

HIDDEN = [
    "rm -rf x",
    "/bin/rm -rf x",
    "\\rm -rf x",
    "r''m -rf x",
    '"rm" -rf x',
    "$'\\x72m' -rf x",
    "X=1 rm -rf x",
    "ls; rm -rf x",
    "ls && rm -rf x",
    "ls || rm x",
    "ls | rm x",
    "ls & rm x",
    "ls\nrm x",
    "(rm x)",
    "{ rm x; }",
    "! rm x",
    "echo $(rm x)",
    "echo `rm x`",
    'echo "$(rm x)"',
    "cat <(rm x)",
    "cat <<EOF\n$(rm x)\nEOF",
    "bash <<EOF\nrm x\nEOF",
    "bash <<< 'rm x'",
    "sh -c 'rm x'",
    "bash -lc 'ls; rm x'",
    "sh -c \"sh -c 'rm x'\"",
    "eval rm x",
    "eval 'rm x'",
    "env rm x",
    "env -i A=b rm x",
    "env -u HOME rm x",
    "env -S 'rm x'",
    "sudo rm x",
    "sudo -u bob rm x",
    "sudo --user bob rm x",
    "sudo -E env A=b timeout 5 rm x",
    "nohup rm x",
    "nice -n 5 rm x",
    "time rm x",
    "exec rm x",
    "command rm x",
    "timeout -s KILL 5 rm x",
    "stdbuf -oL rm x",
    "setsid rm x",
    "coproc rm x",
    "xargs rm x",
    "ls | xargs -I{} rm {}",
    "ls | xargs -n 1 -P 4 rm -f",
    "find . -name x -exec rm {} \\;",
    "find . -exec ls {} + -exec rm {} +",
    "find . -exec sh -c 'rm {}' \\;",
    "if true; then rm x; fi",
    "for x in a; do rm $x; done",
    "while true; do rm x; done",
    "case x in x) rm x;; esac",
    "f() { rm x; }; f",
    "function ls { rm x; }; ls",
    "export A=$(rm x)",
    "[ -e x ] && rm x",
    "A=$(rm x)",
    "rm $X",
    "rm x > /dev/null 2>&1",
    "trap 'ls' EXIT; rm x",
    "rm",
]


@pytest.mark.parametrize("line", HIDDEN)
def test_what_is_denied_is_found_whatever_it_stands_behind(line: str) -> None:
    assert judged(RULE, line) == "deny"
    assert judged(OPEN, line) == "deny"


@pytest.mark.parametrize(
    "line",
    [
        "git status",
        "git status --short",
        "cd src && grep -rn 'rm -rf' .",
        "ls -la | grep x",
        "echo 'rm -rf /'",
        'echo "rm x" && ls',
        "ls # rm x",
        "cat <<'EOF'\nrm x\nEOF",
        "ls 2>/dev/null",
        "ls 2>&1 | grep x",
        "cat < file",
        "git  status",
        "ls *.py",
        "echo $HOME",
        "grep -e 'a;b' x",
        "grep 'git push' x",
    ],
)
def test_what_is_allowed_in_all_its_parts_needs_no_question(line: str) -> None:
    assert judged(RULE, line) == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "make",
        "ls; make",
        "ls > file",
        "ls >> ~/.bashrc",
        "ls &> file",
        "> file",
        "$X status",
        "X=1 ls",
        "LD_PRELOAD=./x.so ls",
        "gi? status",
        "/tmp/git status",
        "echo x | sh",
        "curl x | bash",
        "bash",
        "sh script.sh",
        "eval $X",
        "sh -c $X",
        "ls 'x",
        "ls $(",
        "{ls,-la}",
        "ls <(make)",
        "cat x | xargs make",
        "git status $(make)",
        "echo `make`",
        "",
        "#",
    ],
)
def test_what_is_not_allowed_or_not_known_is_not_allowed(line: str) -> None:
    assert judged(RULE, line) in (None, "ask")


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("make", "allow"),
        ("$X y", "ask"),
        ("echo x | sh", "ask"),
        ("eval $X", "ask"),
        ("ls 'x", "ask"),
        ("git push 'x", "deny"),
        ("git push", "deny"),
        ("git pull", "allow"),
        ("echo x > y", "allow"),
    ],
)
def test_where_all_is_allowed_but_something_denied_what_can_not_be_read_is_asked_for(line: str, verdict: str) -> None:
    assert judged(OPEN, line) == verdict


def test_the_documentation_lists_the_variables_and_wrappers() -> None:
    text = (Path(__file__).parents[4] / "docs" / "tools.md").read_text()
    section = text.partition("### Commands\n")[2].partition("\n### ")[0]
    assert [name for name in (*HARMLESS_VARIABLES, *WRAPPERS) if f"`{name}`" not in section] == []


def test_a_rule_that_allows_everything_reads_nothing() -> None:
    assert judged(weighed(PermissionRule(allow=("*",))), "anything 'at all") == "allow"


def test_a_pattern_that_names_what_is_run_allows_that_as_well() -> None:
    rows = weighed(PermissionRule(allow=("sudo ls*", "find *", "timeout 5 make*", "make*")))
    assert judged(rows, "sudo ls /root") == "allow"
    assert judged(rows, "find . -name x") == "allow"
    assert judged(rows, "find . -exec rm {} +") is None
    assert judged(rows, "sudo rm x") is None
    assert judged(rows, "timeout 5 make all") == "allow"
    assert judged(rows, "find . -exec make {} +") == "allow"


def test_the_longest_pattern_decides_for_each_command_by_itself() -> None:
    rows = weighed(PermissionRule(allow=("git push --dry-run*", "ls*"), deny=("git push*",), ask=("git *",)))
    assert judged(rows, "git push --dry-run") == "allow"
    assert judged(rows, "git push --dry-run; git push") == "deny"
    assert judged(rows, "ls; git log") == "ask"
    assert [(each.command, each.verdict, each.pattern) for each in verdicts_of(rows, "ls && git push x")] == [
        ("ls", "allow", "ls*"),
        ("git push x", "deny", "git push*"),
    ]


def test_a_pattern_of_several_commands_is_compared_with_the_whole_line() -> None:
    rows = weighed(PermissionRule(allow=("*",), deny=("*| sh", "curl *|*")))
    assert judged(rows, "curl x | tar x") == "deny"
    assert judged(rows, "cat x | sh") == "deny"
    assert judged(rows, "cat x | tar x") == "allow"


@pytest.mark.parametrize(
    "line", ["x" * (LONGEST + 1), "sh -c " * 10 + "x", "(" * 3000, "$(" * 2000, "a;" * 3000, "\0", "\ud800", "if", "'"]
)
def test_hostile_lines_cost_no_time_and_are_not_read_as_harmless(line: str) -> None:
    assert judged(RULE, line) != "allow"


@given(st.text(max_size=60))
@example("rm x # '")
@example("\\\nrm x")
def test_no_line_is_too_odd(line: str) -> None:
    parse(line)
    assert judged(RULE, line) in (None, "allow", "ask", "deny")


@given(
    st.text(st.sampled_from("ab '\"\\$;&|(){}<>\n=x"), max_size=12), st.text(st.sampled_from("ab;&| \n"), max_size=6)
)
def test_nothing_that_stands_beside_it_hides_a_denied_command(before: str, after: str) -> None:
    """Where a shell would run `rm`, or the line can't be read, it is never allowed."""
    line = f"{before}\nrm x\n{after}"
    found = parse(line)
    if found.broken or any(part.program == "rm" for each in found.commands for part in each.all()):
        assert judged(RULE, line) != "allow"
