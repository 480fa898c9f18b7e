"""`callboard tools`: a tool by hand does what it does for a model, and says why when it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.messages import fragment, has_message

from callboard.actors.work.tools.registry import OURS, WITH_ACCOUNTS

Callboard = Callable[..., "tuple[int, str, str]"]

ROLL = """\
#!/usr/bin/env bash
# @describe Roll dice. All of them at once.
# @option --sides=6 <INT> How many sides
main() {
  echo "rolling" >&2
  [[ $argc_sides -gt 1 ]] || { printf '\\033[31mno such die\\033[0m\\n' >&2; exit 3; }
  echo "{\\"sides\\": $argc_sides, \\"who\\": \\"${LLM_AGENT_VAR_WHO:-}\\"}" >> "$LLM_OUTPUT"
}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration directory with one global tool, `roll`; also the working directory."""
    tools = tmp_path / "functions" / "tools"
    tools.mkdir(parents=True)
    (tools / "roll.sh").write_text(ROLL)
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def with_agent(
    home: Path, config: str = "", tools: str = 'def roll(who: str) -> str:\n    """Mine."""\n    return who\n'
) -> None:
    folder = home / "agents" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"name: mine\n{config}")
    (folder / "tools.py").write_text(tools)


def test_yours_come_first_then_the_built_in_ones(callboard: Callboard, home: Path) -> None:
    code, out, err = callboard("tools")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:3] == [f"yours ({home}/functions/tools)", "  roll    Roll dice.", "built in"]
    assert [line.split()[0] for line in lines[3:]] == [*OURS, *WITH_ACCOUNTS]
    assert "  fs_rm                  asks first  Remove a file, or a directory with all that is in it." in lines


def test_the_list_says_so_where_every_built_in_name_is_taken(callboard: Callboard, home: Path) -> None:
    for name in (*OURS, *WITH_ACCOUNTS):
        (home / "functions" / "tools" / f"{name}.py").write_text('def run() -> str:\n    """Mine."""\n    return ""\n')
    lines = callboard("tools")[1].splitlines()
    assert lines[-2:] == ["built in", "  none (`visible_tools` excludes them, or yours hide them)"]


def test_an_agents_own_tools_come_before_all(callboard: Callboard, home: Path) -> None:
    with_agent(home)
    lines = callboard("tools", "--agent", "mine")[1].splitlines()
    assert lines[:2] == [f"of mine ({home}/agents/mine/tools.py)", "  roll    Mine."]
    found = json.loads(callboard("tools", "list", "--agent", "mine", "-o", "json")[1])["tools"]
    assert [tool["source"] for tool in found[:3]] == [
        f"{home}/agents/mine/tools.py",
        f"{home}/functions/tools/roll.sh",
        "built in",
    ]


def test_a_broken_tool_is_told_and_hides_no_other(callboard: Callboard, home: Path) -> None:
    (home / "functions" / "tools" / "bad.py").write_text("def run(*args):\n    pass\n")
    code, out, err = callboard("tools")
    assert code == 2
    assert "bad.py:1" in err
    assert "  roll    Roll dice." in out.splitlines()


def test_a_tool_is_shown_with_its_schema(callboard: Callboard, home: Path) -> None:
    code, out, _err = callboard("tools", "show", "roll.sh")
    head, _, schema = out.partition("\n{")
    assert code == 0
    assert head.splitlines()[0] == "roll"
    assert f"  from    {home}/functions/tools/roll.sh" in head.splitlines()
    assert json.loads("{" + schema)["properties"]["sides"]["type"] == "integer"
    shown = json.loads(callboard("tools", "show", "fs_rm", "-o", "json")[1])
    assert (shown["effect"], shown["permission"], shown["source"]) == ("write", "ask", "built in")
    assert shown["parameters"]["required"] == ["path"]


@pytest.mark.parametrize(
    ("name", "said"), [("fs_red", "did you mean 'fs_read'?"), ("fs", "stands for several tools: fs_cat, ")]
)
@pytest.mark.parametrize("command", ["show", "call"])
def test_a_name_that_means_no_single_tool_is_wrong_usage(
    callboard: Callboard, home: Path, command: str, name: str, said: str
) -> None:
    code, out, err = callboard("tools", command, name)
    assert (code, out) == (2, "")
    assert said in err


def test_the_result_is_on_stdout_and_nothing_on_stderr(callboard: Callboard, home: Path) -> None:
    assert callboard("tools", "call", "roll", "--json", '{"sides": 8}') == (0, '{"sides":8,"who":""}\n', "")


def test_verbose_tells_what_the_tool_prints(callboard: Callboard, home: Path) -> None:
    err = callboard("tools", "call", "roll", "-v")[2]
    assert "roll start" in err
    assert "    roll: rolling" in err.splitlines()


def test_a_tool_that_fails_ends_with_1_and_its_last_words(callboard: Callboard, home: Path) -> None:
    code, out, err = callboard("tools", "call", "roll", "--json", '{"sides": 1}')
    assert (code, out) == (1, "")
    assert err.splitlines() == ["rolling", "no such die", "callboard: Tool call 'roll' exited with code 3"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"sides"', "--json: not JSON"),
        ("[1]", fragment("cli.flag_values.arguments.2", __name__="list…")),
        ('{"sides": NaN}', "NaN is not a JSON value"),
        ("[" * 100_000, "--json: not JSON"),
        ('{"sides": "six"}', "the arguments don't fit: $.sides: 'six' is not of type 'integer'"),
    ],
)
def test_arguments_that_do_not_fit_are_wrong_usage(callboard: Callboard, home: Path, arguments: str, said: str) -> None:
    code, out, err = callboard("tools", "call", "roll", "--json", arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_an_agents_own_tool_gets_its_variables(callboard: Callboard, home: Path) -> None:
    with_agent(
        home,
        "variables: [{name: who}]\n",
        'import os\ndef me() -> str:\n    """Me."""\n    return os.environ["LLM_AGENT_VAR_WHO"]\n',
    )
    assert callboard("tools", "call", "me", "--agent", "mine", "--var", "who=Ada")[:2] == (0, '{"output":"Ada"}\n')
    assert callboard("tools", "call", "roll", "--agent", "mine", "--var", "who=Ada")[1] == '{"sides":6,"who":"Ada"}\n'
    code, _out, err = callboard("tools", "call", "me", "--agent", "mine")
    assert code == 2
    assert has_message(err, "work.variables.resolve_variables.4")


def test_what_writes_needs_permission_here_too(callboard: Callboard, home: Path) -> None:
    call = ("tools", "call", "fs_write", "--json", '{"path": "a.txt", "contents": "x"}')
    code, out, err = callboard(*call, "--no-input")
    assert (code, out) == (1, "")
    assert has_message(err, "work.tools.permissions.Permissions._ask")
    assert not (home / "a.txt").exists()
    assert callboard(*call, "--allow", "fs_write")[0] == 0
    assert (home / "a.txt").read_text() == "x"


def test_an_agent_can_be_stricter_than_yes(callboard: Callboard, home: Path) -> None:
    with_agent(home, "permissions: {fs_write: deny}\n")
    call = ("tools", "call", "fs_write", "--json", '{"path": "a.txt", "contents": "x"}', "--agent", "mine", "--yes")
    code, _out, err = callboard(*call)
    assert code == 1
    assert has_message(err, "work.tools.permissions.Permissions.admit")


def test_roots_let_fs_tools_out_of_the_working_directory(callboard: Callboard, home: Path) -> None:
    other = home.parent / f"{home.name}-other"
    other.mkdir()
    (other / "a.txt").write_text("found\n")
    call = ("tools", "call", "fs_cat", "--json", json.dumps({"path": str(other / "a.txt")}))
    assert callboard(*call)[0] == 1
    assert callboard(*call, "--root", str(other))[:2] == (0, "found\n")


def test_an_unknown_tool_says_where_an_agents_own_ones_are(callboard: Callboard, home: Path) -> None:
    with_agent(home)
    for command in ("show", "call"):
        assert callboard("tools", command, "zzz")[2].endswith(" (an agent's own tools: --agent NAME)\n")
        mine = callboard("tools", command, "zzz", "--agent", "mine")[2]
        assert mine.startswith("callboard: there is no tool 'zzz'; the agent has: roll; there are: ")
        assert has_message(
            callboard("tools", command, "rol", "--agent", "mine")[2], "cli.render.markdown.theme._known", near="'roll'"
        )


def test_a_tool_that_visible_tools_leaves_out_is_said_to_be_so(callboard: Callboard, home: Path) -> None:
    (home / "config.yaml").write_text("visible_tools: [fs_cat.sh]\n")
    for name in ("fs_write", "roll"):
        _, _, err = callboard("tools", "show", name)
        assert f"there is no tool '{name}'; `visible_tools` in config.yaml excludes it" in err
