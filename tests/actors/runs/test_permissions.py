"""Permissions of whole runs: in another directory than the process's, and down to what works below an agent."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request
from support.mcp_entries import _own_cache, mcp_json, scripted  # noqa: F401 - a fixture
from support.messages import has_message

import callboard
from callboard.protocol.agent import Agent
from callboard.protocol.permissions import PermissionRule

DENIED = ["secrets/*", ".env"]
RULES = {"fs_*": {"deny": DENIED}, "fs_write": {"allow": "src/*", "deny": DENIED}}
DENIES = f"permissions: {json.dumps(RULES)}"
READS = [
    ("fs_cat", {"path": "secrets/key"}),
    ("fs_cat", {"path": "{project}/secrets/key"}),
    ("fs_read", {"path": "src/l/key"}),
    ("fs_read", {"path": "src/../.env"}),
    ("fs_cat", {"path": "{project}/src/../.env"}),
    ("fs_ls", {"path": "secrets"}),
    ("fs_ls", {"path": "."}),
    ("fs_grep", {"pattern": "SESAME"}),
    ("fs_grep", {"pattern": "SESAME", "path": "{project}"}),
    ("fs_glob", {"pattern": "*"}),
]
WRITES = [
    ("fs_write", {"path": "src/l/new", "contents": "x"}),
    ("fs_write", {"path": "src/out/new", "contents": "x"}),
    ("fs_write", {"path": "{project}/.env", "contents": "x"}),
    ("fs_write", {"path": "src/fine", "contents": "x"}),
    ("fs_write", {"path": "{project}/src/fine2", "contents": "x"}),
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs work; the process stands in another directory, which has other files of the same names."""
    for place, word in (("project", "SESAME"), ("elsewhere", "harmless")):
        for name in ("secrets/key", ".env", "src/a.py"):
            file = tmp_path / place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{word} of {name}\n" if name != "src/a.py" else "code\n")
    (tmp_path / "project" / "src" / "l").symlink_to("../secrets")
    (tmp_path / "project" / "src" / "out").symlink_to(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "project"


def placed(project: Path, calls: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (name, {key: str(value).replace("{project}", str(project)) for key, value in arguments.items()})
        for name, arguments in calls
    ]


@pytest.mark.parametrize("of", ["the user", "the file"])
async def test_a_run_in_another_directory_is_judged_there(agent_runner: AgentRunner, project: Path, of: str) -> None:
    if of == "the user":
        config = agent_runner.config_dir / "config.yaml"
        config.write_text(json.dumps({**json.loads(config.read_text()), "permissions": RULES}))
    async with callboard.Root(config_dir=agent_runner.config_dir) as root:
        own = AgentRunner(agent_runner.config_dir, agent_runner.models, root)
        own.plain(f"global_tools: [fs]\n{DENIES if of == 'the file' else ''}", name="worker")
        agent_runner.models.script(Reply(calls=placed(project, READS)), Reply(calls=placed(project, WRITES)), "done")
        await own.run("go", target="worker", cwd=project)
    results = agent_runner.models.requests[-1].results
    assert "SESAME" not in "".join(results)
    assert "secrets" not in results[6]
    assert results[7:9] == ["(nothing found)"] * 2
    assert set(results[9].split("\n")) == {"src/a.py", "src/out"}
    refused = ["tool_call_error" in text for text in results[len(READS) :]]
    assert refused == ([True, True, True, False, False] if of == "the user" else [True] * 5)
    assert (project / "src" / "fine").exists() is (of == "the user")
    assert not (project / "secrets" / "new").exists()
    assert (project / ".env").read_text() == "SESAME of .env\n"


async def test_a_run_stays_in_its_directory_when_the_process_goes_elsewhere(
    agent_runner: AgentRunner, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)

    def leave() -> str:
        """Goes elsewhere."""
        os.chdir(project / "secrets")
        return "gone"

    agent_runner.plain("instructions: I am a child\nglobal_tools: [fs_cat, execute_command]", name="kid")
    agent_runner.agent(
        f"""
        {DENIES}
        start: a
        nodes:
          a: {{type: llm, instructions: I leave, prompt: p, tools: [leave], next: b}}
          b: {{type: agent, agent: kid, prompt: p, next: e}}
          e: {{type: end}}
        """,
        "top",
    )
    paths = ("secrets/key", "./key", "src/l/key", "src/a.py")
    calls = [*(("fs_cat", {"path": path}) for path in paths), ("execute_command", {"command": "pwd"})]

    def answer(request: Request) -> Reply | str:
        if request.results:
            return "done"
        return Reply(calls=[("leave", {})] if "I leave" in request.system else calls)

    agent_runner.models.answer_with(answer)
    outcome = await agent_runner.run("go", target="top", tools=[leave], yes=True)
    assert outcome.error is None, outcome.error
    assert Path.cwd() == project / "secrets"
    denied, missing, through, code, where = agent_runner.models.requests[-1].results
    assert has_message(denied, "work.tools.permissions.Permissions.admit")
    assert has_message(missing, "work.tools.builtin.allowed_paths._words")
    assert has_message(through, "work.tools.permissions.Permissions.admit")
    assert (code, where) == ("code\n", f"{project}\n")


async def test_a_tool_file_that_is_called_as_one_of_ours_is_judged_by_its_path(
    agent_runner: AgentRunner, project: Path
) -> None:
    tools = agent_runner.config_dir / "functions" / "tools"
    tools.mkdir(parents=True)
    source = '# @describe Reads.\n# @option --path! The file.\nmain() { cat "$argc_path" >> "$LLM_OUTPUT"; }\n'
    (tools / "fs_cat.sh").write_text(source)
    agent_runner.plain(f"global_tools: [fs_cat]\n{DENIES}", name="worker")
    calls = placed(project, [*READS[:2], ("fs_cat", {"path": "./src/../.env"}), ("fs_cat", {"path": "src/a.py"})])
    agent_runner.models.script(Reply(calls=calls), "done")
    await agent_runner.run("go", target="worker", cwd=project)
    results = agent_runner.models.requests[-1].results
    assert ["permissions deny" in text for text in results] == [True, True, True, False]
    assert "code" in results[-1]


async def test_a_python_function_that_is_called_as_one_of_ours_is_too(agent_runner: AgentRunner, project: Path) -> None:
    def fs_cat(path: str) -> str:
        """Reads a file.

        Args:
            path: the file.
        """
        return (project / path).read_text()

    agent = Agent(name="worker", permissions={"fs_cat": PermissionRule(deny=("secrets/*",))})
    calls = [("fs_cat", {"path": "src/l/key"}), ("fs_cat", {"path": "src/a.py"})]
    agent_runner.models.script(Reply(calls=calls), "done")
    await agent_runner.run("go", target=agent, cwd=project, tools=[fs_cat])
    assert ["permissions deny" in text for text in agent_runner.models.requests[-1].results] == [True, False]


async def test_the_arguments_of_a_servers_tool_are_judged_as_paths_too(
    agent_runner: AgentRunner, project: Path
) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    agent = Agent(name="worker", mcp_servers=("srv",), permissions={"srv__*": PermissionRule(deny=("secrets/*",))})
    calls = [("srv__echo", {"text": text}) for text in ("src/l/key", f"{project}/secrets/key", "src/a.py")]
    agent_runner.models.script(Reply(calls=calls), "done")
    await agent_runner.run("go", target=agent, cwd=project)
    assert ["permissions deny" in text for text in agent_runner.models.requests[-1].results] == [True, True, False]


# --- a file's deny is a ceiling -------------------------------------------------------------------------------

BOSS = "can_spawn_agents: true\ncan_ask_user: false\npermissions: {fs_cat: deny, 'srv__*': deny}"
CALL = ("fs_cat", {"path": "a.txt"})


def results_of(agent_runner: AgentRunner, word: str) -> list[str]:
    """What the tools of the agent with this word in its instructions have said."""
    return [text for request in agent_runner.models.requests if word in request.system for text in request.results[-1:]]


def spawning(agent: str, call: tuple[str, Any] = CALL) -> Any:
    """A boss spawns an agent, collects it and is done; every other agent makes the call."""

    def answer(request: Request) -> Reply | str:
        if "I am the boss" in request.system:
            if not request.results:
                return Reply(calls=[("agent__spawn", {"agent": agent, "prompt": "work"})])
            if len(request.results) == 1:
                return Reply(calls=[("agent__collect", {"id": json.loads(request.results[0])["id"]})])
            return "done"
        return "done" if request.results else Reply(calls=[call])

    return answer


async def test_what_a_parent_denies_is_denied_to_the_children_it_spawns(
    agent_runner: AgentRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("text of a")
    agent_runner.plain(f"instructions: I am the boss\n{BOSS}", name="boss")
    agent_runner.plain("instructions: I am a child\nglobal_tools: [fs_cat]\npermissions: {fs_cat: allow}", name="kid")
    agent_runner.models.answer_with(spawning("kid"))
    await agent_runner.run("go", target="boss", yes=True, allow=["fs_cat"])
    (result,) = results_of(agent_runner, "I am a child")
    assert has_message(result, "work.tools.permissions.Permissions.admit")
    await agent_runner.run("go", target="kid")
    assert results_of(agent_runner, "I am a child")[-1] == "text of a"


async def test_it_is_denied_to_the_agents_of_tasks_as_well(agent_runner: AgentRunner) -> None:
    agent_runner.plain(f"instructions: I am the boss\n{BOSS}", name="boss")
    agent_runner.plain("instructions: I am a child\nglobal_tools: [fs_cat]", name="kid")

    def answer(request: Request) -> Reply | str:
        if "I am a child" in request.system:
            return "done" if request.results else Reply(calls=[CALL])
        if not request.results:
            work = {"subject": "read", "agent": "kid", "prompt": "read it"}
            return Reply(calls=[("agent__task_create", work), ("agent__list", {})])
        if len(request.results) == 2:
            (child,) = json.loads(request.results[1])["agents"]
            return Reply(calls=[("agent__collect", {"id": child["id"]})])
        return "done"

    agent_runner.models.answer_with(answer)
    await agent_runner.run("go", target="boss", yes=True)
    (result,) = results_of(agent_runner, "I am a child")
    assert has_message(result, "work.tools.permissions.Permissions.admit")


async def test_it_reaches_through_agent_nodes_graphs_maps_and_their_llm_nodes_to_any_depth(
    agent_runner: AgentRunner,
) -> None:
    agent_runner.agent(
        """
        permissions: {fs_cat: deny}
        start: m
        initial_state: {list: [1, 2]}
        nodes:
          m: {type: map, over: "{{list}}", as: item, branch: a, collect_into: all, next: e}
          a: {type: agent, agent: middle, prompt: p}
          e: {type: end, output: "{{all}}"}
        """,
        "top",
    )
    agent_runner.agent(
        "start: a\nnodes:\n  a: {type: agent, agent: low, prompt: p, next: e}\n  e: {type: end, output: '{{output}}'}",
        "middle",
    )
    agent_runner.agent(
        """
        global_tools: [fs_cat]
        permissions: {fs_cat: allow}
        start: a
        nodes:
          a: {type: llm, instructions: I am an llm node, prompt: p, tools: [fs_cat], next: b}
          b: {type: agent, agent: kid, prompt: p, next: e}
          e: {type: end, output: '{{output}}'}
        """,
        "low",
    )
    agent_runner.plain("instructions: I am a child\nglobal_tools: [fs_cat]", name="kid")
    agent_runner.models.answer_with(lambda request: "done" if request.results else Reply(calls=[CALL]))
    outcome = await agent_runner.run("go", target="top", yes=True)
    assert outcome.error is None, outcome.error
    for word in ("I am an llm node", "I am a child"):
        results = results_of(agent_runner, word)
        assert len(results) == 2
        assert all(has_message(text, "work.tools.permissions.Permissions.admit") for text in results)


async def test_it_reaches_the_tools_of_mcp_servers_however_a_child_calls_them(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    agent_runner.plain(f"instructions: I am the boss\n{BOSS}", name="boss")
    for mode, call in (
        ("direct", ("srv__echo", {"text": "hi"})),
        ("meta", ("mcp_invoke_srv", {"tool": "echo", "arguments": {"text": "hi"}})),
    ):
        agent_runner.plain(f"instructions: I use {mode}\nmcp_servers: [srv]\nmcp_tools: {mode}", name="kid")
        agent_runner.models.answer_with(spawning("kid", call))
        await agent_runner.run("go", target="boss", yes=True)
        (result,) = results_of(agent_runner, f"I use {mode}")
        assert has_message(result, "work.tools.permissions.Permissions.admit")


async def test_what_a_parent_asks_for_or_allows_is_its_own(
    agent_runner: AgentRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("text of a")
    rules = "permissions: {fs_cat: ask, fs_write: allow}"
    agent_runner.plain(
        f"instructions: I am the boss\ncan_spawn_agents: true\ncan_ask_user: false\n{rules}", name="boss"
    )
    agent_runner.plain("instructions: I am a child\nglobal_tools: [fs_cat, fs_write]", name="kid")
    agent_runner.models.answer_with(spawning("kid"))
    await agent_runner.run("go", target="boss")
    assert results_of(agent_runner, "I am a child") == ["text of a"]
    agent_runner.models.answer_with(spawning("kid", ("fs_write", {"path": "b", "contents": "x"})))
    await agent_runner.run("go", target="boss")
    assert has_message(results_of(agent_runner, "I am a child")[-1], "work.tools.permissions.Permissions._ask")


async def test_a_parents_paths_are_hidden_from_the_searches_of_its_children(
    agent_runner: AgentRunner, project: Path
) -> None:
    rules = "permissions: {fs_cat: {deny: ['secrets/*', .env]}}"
    agent_runner.plain(
        f"instructions: I am the boss\ncan_spawn_agents: true\ncan_ask_user: false\n{rules}", name="boss"
    )
    agent_runner.plain("instructions: I am a child\nglobal_tools: [fs_grep]", name="kid")
    agent_runner.models.answer_with(spawning("kid", ("fs_grep", {"pattern": "SESAME|code"})))
    await agent_runner.run("go", target="boss", cwd=project)
    assert results_of(agent_runner, "I am a child") == ["src/a.py:1:code"]


async def test_an_agent_may_deny_the_own_tools_of_those_below_and_a_slip_is_still_told(
    agent_runner: AgentRunner,
) -> None:
    agent_runner.plain(
        f"{BOSS[: BOSS.index('permissions')]}permissions: {{deploy: deny, fs_wirte: deny, ship: ask}}", name="boss"
    )
    agent_runner.plain("instructions: alone\npermissions: {deploy: deny}", name="alone")
    node = "a: {type: agent, agent: kid, prompt: p, next: e}"
    agent_runner.agent(f"permissions: {{deploy: deny}}\nstart: a\nnodes:\n  {node}\n  e: {{type: end}}", "graph")
    agent_runner.plain("instructions: a kid", name="kid")
    named = {
        name: [problem.key for problem in callboard.validate(name, config_dir=agent_runner.config_dir)]
        for name in ("boss", "alone", "graph")
    }
    assert named == {"boss": ["permissions.fs_wirte", "permissions.ship"], "alone": ["permissions.deploy"], "graph": []}
