"""`callboard agents`: what is listed, shown and made can be run as it says."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fake_models import FakeModels, Reply
from support.messages import has_message

import callboard as package
from callboard.actors.runs.finding import built_in_agents
from callboard.cli.new_files import PROMPTS

Callboard = Callable[..., "tuple[int, str, str]"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration directory."""
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path))
    return tmp_path


def agent(home: Path, name: str, text: str = "", file: str = "config.yaml") -> Path:
    folder = home / "agents" / name
    folder.mkdir(parents=True)
    (folder / file).write_text(f"name: {name}\n{text}")
    return folder


def test_a_new_agent_validates_runs_and_uses_its_tool(callboard: Callboard, models: FakeModels) -> None:
    code, out, err = callboard("agents", "new", "my-agent")
    assert (code, err) == (0, "")
    command = shlex.split(out.splitlines()[-1])
    assert command[:3] == ["callboard", "run", "my-agent"]
    assert package.validate("my-agent", strict=True) == []
    models.script(Reply(calls=[("count_words", {"text": "one two three"})]), "Three.")
    assert callboard(*command[1:], "-q")[:2] == (0, "Three.\n")
    assert json.loads(models.requests[1].results[0])["words"] == 3
    assert models.requests[0].system.startswith("You answer questions about texts in a friendly way.")


@pytest.mark.parametrize("template", PROMPTS)
def test_a_new_graph_is_a_template_under_its_own_name(callboard: Callboard, home: Path, template: str) -> None:
    assert callboard("agents", "new", "mine", "--template", template)[0] == 0
    assert package.validate("mine", strict=True) == []
    assert package.load("mine").name == "mine"


def test_a_graph_without_a_template_is_the_first_of_them(callboard: Callboard, home: Path) -> None:
    assert callboard("agents", "new", "mine", "--graph")[1].splitlines()[-1] == "callboard run mine Ada"


@pytest.mark.parametrize("name", ["123", "null", "1.5", "yes", "2026-11-22", "a.b_c-d"])
def test_a_name_stays_a_name_whatever_yaml_thinks(callboard: Callboard, home: Path, name: str) -> None:
    assert callboard("agents", "new", name)[0] == 0
    assert callboard("agents", "new", f"{name}-g", "--graph")[0] == 0
    assert package.load(name).name == name
    assert package.validate(f"{name}-g", strict=True) == []


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "-x", "a b", "x" * 65, "ä"])
def test_a_name_that_is_no_name_is_refused(callboard: Callboard, home: Path, name: str) -> None:
    code, out, _err = callboard("agents", "new", "--", name)
    assert (code, out) == (2, "")
    assert list(home.iterdir()) == []


def test_what_is_there_is_left_alone(callboard: Callboard, home: Path) -> None:
    folder = agent(home, "mine")
    code, _out, err = callboard("agents", "new", "mine")
    assert code == 2
    assert has_message(err, "cli.actions.agents._home.2")
    assert [path.name for path in folder.iterdir()] == ["config.yaml"]


def test_a_name_that_hides_a_built_in_agent_is_made_and_told(callboard: Callboard, home: Path) -> None:
    for name, flags, hides in (("demo", (), True), ("coder", ("--graph",), True), ("mine", (), False)):
        code, out, _err = callboard("agents", "new", name, *flags)
        assert code == 0
        assert ("hides the built-in agent" in out) == hides
        assert callboard("agents", "path", name)[1] == f"{home}/agents/{name}\n"


def test_a_new_agent_does_not_ask_its_user(callboard: Callboard, models: FakeModels) -> None:
    callboard("agents", "new", "mine")
    assert callboard("run", "mine", "hi", "-q")[0] == 0
    assert sorted(models.requests[0].offered) == ["count_words", "get_current_time"]


def test_an_unknown_template_suggests_one(callboard: Callboard, home: Path) -> None:
    assert has_message(
        callboard("agents", "new", "x", "--template", "aproval")[2],
        "cli.render.markdown.theme._known",
        near="'approval'",
    )


def test_the_list_has_your_agents_then_the_built_in_ones(callboard: Callboard, home: Path) -> None:
    agent(home, "mine", "description: Does things.\nmodel: fake:model\n")
    agent(home, "demo", "description: Hides the built-in one.\n")
    agent(home, "broken", "nonsense: 1\ntemperature: hot\n")
    code, out, err = callboard("agents")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"yours ({home}/agents)"
    assert lines[1] == "  broken  agent  invalid: 1 error (callboard validate broken)"
    assert lines[2:5] == [
        "  demo    agent  Hides the built-in one.",
        "  mine    agent  Does things. [fake:model]",
        "built in",
    ]
    assert [line.split()[0] for line in lines[5:]] == [name for name in built_in_agents() if name != "demo"]


def test_the_list_says_so_where_every_built_in_name_is_taken(callboard: Callboard, home: Path) -> None:
    for name in built_in_agents():
        agent(home, name, "description: Hides the built-in one.\n")
    lines = callboard("agents")[1].splitlines()
    assert lines[-2:] == ["built in", "  none (each is hidden by one of yours)"]


def test_the_list_as_json(callboard: Callboard, home: Path) -> None:
    agent(home, "mine", "start: e\nnodes: {e: {type: end}}\n", "graph.yaml")
    code, out, _err = callboard("agents", "list", "-o", "json")
    agents = json.loads(out)["agents"]
    assert code == 0
    assert agents[0] == {
        "name": "mine",
        "kind": "graph",
        "origin": "yours",
        "description": "",
        "model": None,
        "file": f"{home}/agents/mine/graph.yaml",
        "error": None,
    }
    assert {each["origin"] for each in agents[1:]} == {"built in"}
    assert json.loads(callboard("agents", "-o", "json")[1])["agents"] == agents


def test_no_agents_yet_says_how_to_make_one(callboard: Callboard, home: Path) -> None:
    assert "callboard agents new NAME" in callboard("agents")[1].splitlines()[1]


SHOWN = """
description: Looks things up.
global_tools: [fs_read, fs_reed]
mcp_servers: [time]
can_spawn_agents: true
spawnable_agents: [explore]
variables:
  - {name: project, description: Which one}
  - {name: tone, default: kind}
conversation_starters: ["What's new?"]
"""

TOOLS = '''
def lookup(word: str) -> str:
    """Looks a word up. In a book.

    Args:
        word: what to look up
    """
    return word
'''


def test_an_agent_is_shown_with_all_there_is_to_know(callboard: Callboard, home: Path) -> None:
    (agent(home, "mine", SHOWN) / "tools.py").write_text(TOOLS)
    (home / "mcp.json").write_text('{"mcpServers": {"time": {"command": "x"}}}')
    code, out, _err = callboard("agents", "show", "mine")
    assert code == 0
    lines = out.splitlines()
    assert lines[:2] == ["mine (agent, yours)", "  Looks things up."]
    for line in (
        "  spawns     explore",
        "  servers    time (mcp_tools: auto)",
        "  project (required)  Which one",
        "  tone=kind",
        "  lookup   tools.py  Looks a word up.",
        "  fs_read  built in  Read lines of a text file, each with its number.",
        """  callboard run mine 'What'"'"'s new?'""",
    ):
        assert line in lines
    assert has_message(out, "runs.file_checks.check_listed.3", name="…`global_tools` lists 'fs_reed")
    assert out.count("did you mean 'fs_read'?") == 1
    shown = json.loads(callboard("agents", "show", "mine", "-o", "json")[1])
    assert [tool["name"] for tool in shown["tools"]] == ["lookup", "fs_read"]
    assert shown["tools"][0]["parameters"]["required"] == ["word"]
    assert (shown["mcp_servers"], shown["mcp_tools"]) == (["time"], "auto")
    assert shown["variables"] == [
        {"name": "project", "description": "Which one", "default": None},
        {"name": "tone", "description": "", "default": "kind"},
    ]


def test_what_an_agent_looks_things_up_in_is_shown(callboard: Callboard, home: Path) -> None:
    agent(home, "mine", "instructions: Hi.\ndocuments: [notes, b.md]")
    assert "  documents  notes, b.md (callboard kb status mine)" in callboard("agents", "show", "mine")[1].splitlines()
    assert json.loads(callboard("agents", "show", "mine", "-o", "json")[1])["documents"] == ["notes", "b.md"]
    assert "./knowledge/ (callboard kb status deep-research)" in callboard("agents", "show", "deep-research")[1]


@pytest.mark.parametrize("name", built_in_agents())
def test_every_built_in_agent_is_shown_without_a_problem(callboard: Callboard, home: Path, name: str) -> None:
    code, out, err = callboard("agents", "show", name)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] in (f"{name} (agent, built in)", f"{name} (graph, built in)")
    assert "problems" not in out.splitlines()


def test_a_broken_tools_file_is_a_problem_and_exit_2(callboard: Callboard, home: Path) -> None:
    (agent(home, "mine") / "tools.py").write_text("def f(*args):\n    pass\n")
    code, out, err = callboard("agents", "show", "mine")
    assert (code, out) == (2, "")
    assert "tools.py:1" in err


def test_a_broken_global_tool_that_it_lists_is_a_problem_and_exit_2(callboard: Callboard, home: Path) -> None:
    agent(home, "mine", "global_tools: [bad, fs_ls]\n")
    (home / "functions" / "tools").mkdir(parents=True)
    (home / "functions" / "tools" / "bad.py").write_text("def run(*args):\n    pass\n")
    code, out, _err = callboard("agents", "show", "mine")
    assert code == 2
    assert "bad.py:1" in out
    assert "  fs_ls  built in" in out


def test_an_agent_that_cannot_be_read_is_told_as_ever(callboard: Callboard, home: Path) -> None:
    agent(home, "mine", "temperature: hot\n")
    code, out, err = callboard("agents", "show", "mine")
    assert (code, out) == (2, "")
    assert "config.yaml:2" in err


def test_paths_of_agents(callboard: Callboard, home: Path) -> None:
    folder = agent(home, "mine")
    assert callboard("agents", "path")[:2] == (0, f"{home}/agents\n")
    assert callboard("agents", "path", "mine")[:2] == (0, f"{folder}\n")
    assert callboard("agents", "path", "coder")[1].rstrip().endswith("library/agents/coder")
    assert callboard("agents", "path", "nowhere")[0] == 2


def test_a_command_of_agents_that_does_not_exist_suggests_one(callboard: Callboard, home: Path) -> None:
    code, _out, err = callboard("agents", "shw")
    assert code == 2
    assert has_message(err, "cli.render.markdown.theme._known", near="'show'")
