"""The built-in agents as files: valid in full, self-contained, and each of them knows who it calls."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from callboard import validate
from callboard.actors.runs.target import GraphAgent, LoopAgent, load
from callboard.actors.work.library import AGENTS
from callboard.actors.work.tools.registry import OURS
from callboard.protocol.graph import AgentNode

NAMES = sorted(path.name for path in AGENTS.iterdir() if path.is_dir())


def agent(name: str, config_dir: Path) -> GraphAgent | LoopAgent:
    return load(AGENTS / name, strict=True, config_dir=config_dir)


def test_these_are_the_built_in_agents() -> None:
    assert set(NAMES) == {
        *("assistant", "code-reviewer", "coder", "deep-research", "demo", "explore", "file-reviewer", "oracle"),
        *("report-writer", "sisyphus", "sql"),
    }


@pytest.mark.parametrize("name", NAMES)
def test_it_has_no_problem_at_all(name: str, tmp_path: Path) -> None:
    assert validate(AGENTS / name, strict=True, config_dir=tmp_path) == []


@pytest.mark.parametrize("name", NAMES)
def test_it_is_called_like_its_directory_and_says_what_it_is_for(name: str, tmp_path: Path) -> None:
    loaded = agent(name, tmp_path)
    file = loaded.graph if isinstance(loaded, GraphAgent) else loaded.agent
    assert file.name == name
    assert 20 < len(file.description.strip()) < 200
    assert file.version == "1.0"
    assert file.conversation_starters


@pytest.mark.parametrize("name", NAMES)
def test_the_tools_and_agents_that_it_names_come_with_callboard(name: str, tmp_path: Path) -> None:
    loaded = agent(name, tmp_path)
    if isinstance(loaded, GraphAgent):
        called = {node.agent for node in loaded.graph.nodes.values() if isinstance(node, AgentNode)}
        tools = set(loaded.graph.global_tools)
    else:
        called, tools = set(loaded.agent.spawnable_agents or ()), set(loaded.agent.global_tools)
        assert bool(called) is loaded.agent.can_spawn_agents
    assert called <= set(NAMES)
    assert tools <= set(OURS)


@pytest.mark.parametrize("name", NAMES)
def test_it_needs_no_model_server_session_or_key_of_its_own(name: str, tmp_path: Path) -> None:
    loaded = agent(name, tmp_path)
    file = loaded.graph if isinstance(loaded, GraphAgent) else loaded.agent
    assert file.model is None
    assert file.mcp_servers == ()
    if isinstance(loaded, LoopAgent):
        assert loaded.agent.agent_session is None
        assert loaded.agent.documents == ()


@pytest.mark.parametrize("name", NAMES)
def test_its_instructions_name_only_variables_that_exist(name: str, tmp_path: Path) -> None:
    loaded = agent(name, tmp_path)
    if isinstance(loaded, LoopAgent):
        known = {variable.name for variable in loaded.agent.variables}
        known |= {"__os__", "__arch__", "__shell__", "__locale__", "__now__", "__cwd__", "__tools__"}
        assert set(re.findall(r"{{(.*?)}}", loaded.agent.instructions)) <= known


@pytest.mark.parametrize("name", ["explore", "oracle", "code-reviewer", "file-reviewer", "report-writer"])
def test_who_only_looks_can_not_change_anything(name: str, tmp_path: Path) -> None:
    loaded = agent(name, tmp_path)
    assert isinstance(loaded, LoopAgent)
    reading = {"fs_cat", "fs_read", "fs_ls", "fs_glob", "fs_grep", "fetch_url_via_curl", "web_search_loki"}
    assert set(loaded.agent.global_tools) <= reading


@pytest.mark.parametrize("file", sorted(AGENTS.rglob("*.sh")), ids=lambda file: str(file.relative_to(AGENTS)))
def test_its_bash_is_bash(file: Path) -> None:
    checked = subprocess.run(["bash", "-n", str(file)], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("file", sorted(AGENTS.rglob("*.py")), ids=lambda file: str(file.relative_to(AGENTS)))
def test_its_python_runs_on_any_python_that_people_have(file: Path) -> None:
    """Scripts run with the `python3` of the user's machine, not with ours."""
    tree = ast.parse(file.read_text(), feature_version=(3, 8))
    assert ast.get_docstring(tree)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    beside = {path.stem for path in file.parent.glob("*.py")}
    assert {name.partition(".")[0] for name in imported} - beside <= sys.stdlib_module_names
