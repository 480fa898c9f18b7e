"""Runs whose processes are in a sandbox: tools, scripts, code, MCP servers; and what settings and flags say of it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec
import psutil
import pytest
from support.fake_models import FakeModels, Reply
from support.messages import has_message
from support.sandbox_surroundings import BACKENDS, need
from support.scripted_server import scripted_server
from support.tool_bench import npx_has_tsx

import callboard
from callboard.actors.work.sandbox.run_sandbox import is_off, rules_of
from callboard.actors.work.sandbox.variables import withheld
from callboard.protocol.errors import UsageError
from callboard.protocol.requests import RunRequest
from callboard.protocol.sandbox import PROFILES, SandboxRules, UserSandbox
from callboard.protocol.settings.read import read_settings

TRY = "echo made > {made}; cat {key}; echo inside > inside; cat inside; "
TRY += "echo key=$MY_API_KEY plain=$LC_PLAIN $LLM_AGENT_VAR_SITE_TOKEN"
"""In bash: writes outside, reads a key, writes inside, shows two variables."""

TOOL = """#!/usr/bin/env bash
# @cmd Tries things.
attempt() {{
  {{ {code}; }} >> "$LLM_OUTPUT" 2>&1
}}
eval "$(argc --argc-eval "$0" "$@")"
"""

GRAPH = """
name: tries
start: attempt
initial_state: {}
nodes:
  attempt: {type: script, script: attempt.sh, next: done}
  done: {type: end, output: "{{out}}"}
"""

WORKFLOW = """
graph:
  id: tries
  start: [attempt]
  nodes:
    - {id: attempt, type: python, config: {timeout_seconds: 50}}
  edges: []
"""


class SandboxedRuns:
    """A configuration directory, a workspace, and what must stay as it is."""

    def __init__(self, base: Path, models: FakeModels, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = base / "home"
        self.workspace = base / "workspace"
        (self.home / ".ssh").mkdir(parents=True)
        self.workspace.mkdir()
        self.key = self.home / ".ssh" / "id"
        self.key.write_text("the-secret-key")
        self.made = self.home / "made"
        self.models = models
        self.config = models.config_dir(base / "config")
        self.code = TRY.format(made=self.made, key=self.key)
        for name, value in {"HOME": str(self.home), "MY_API_KEY": "the-secret-key", "LC_PLAIN": "plain"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(self.workspace)

    def settings(self, **more: object) -> None:
        """More keys of config.yaml."""
        file = self.config / "config.yaml"
        file.write_text(json.dumps({**json.loads(file.read_text()), **more}))

    def agent(self, name: str, file: str, text: str) -> Path:
        """Write a file of an agent; its directory."""
        directory = self.config / "agents" / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / file).write_text(text)
        return directory

    async def calls(self, tool: str, arguments: dict[str, str], **options: object) -> str:
        """What the agent `a` is told of a call."""
        self.models.script(Reply(calls=[(tool, arguments)]), Reply(text="over"))
        outcome = await callboard.run("a", "go", config_dir=self.config, yes=True, **options)  # type: ignore[arg-type]
        assert outcome.status == "done", outcome.error
        return str(self.models.requests[-1].json["messages"][-1]["content"])

    def check(self, told: str) -> None:
        """It was held to the workspace."""
        assert not self.made.exists()
        assert "the-secret-key" not in told
        assert "inside" in told
        assert (self.workspace / "inside").read_text() == "inside\n"
        assert "plain=plain" in told


def _argv(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.fixture
def sandboxed_runs(tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch) -> SandboxedRuns:
    return SandboxedRuns(tmp_path, fake_model, monkeypatch)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_commands_of_a_model_are_held_to_the_workspace(
    sandboxed_runs: SandboxedRuns, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    sandboxed_runs.agent("a", "config.yaml", "name: a\nglobal_tools: [execute_command]\n")
    sandboxed_runs.check(
        await sandboxed_runs.calls("execute_command", {"command": sandboxed_runs.code}, sandbox="workspace")
    )


@pytest.mark.parametrize("backend", BACKENDS)
async def test_functions_of_a_tool_file_are_and_their_results_come_back(
    sandboxed_runs: SandboxedRuns, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    sandboxed_runs.agent(
        "a", "config.yaml", "name: a\nvariables: [{name: site_token, description: x, default: of-the-agent}]\n"
    )
    sandboxed_runs.agent("a", "tools.sh", TOOL.format(code=sandboxed_runs.code))
    told = await sandboxed_runs.calls("attempt", {}, sandbox="workspace")
    sandboxed_runs.check(told)
    assert "of-the-agent" in told


@pytest.mark.parametrize("backend", BACKENDS)
async def test_scripts_of_graphs_are(
    sandboxed_runs: SandboxedRuns, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    sandboxed_runs.settings(sandbox="workspace")
    script = f"{{ {sandboxed_runs.code}; }} > told 2>&1; jq -Rs '{{out: .}}' told\n"
    sandboxed_runs.agent("tries", "graph.yaml", GRAPH)
    sandboxed_runs.agent("tries", "attempt.sh", script)
    outcome = await callboard.run("tries", config_dir=sandboxed_runs.config)
    assert outcome.status == "done", outcome.error
    sandboxed_runs.check(outcome.output)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.sample(1)
async def test_scripts_in_typescript_run_in_it(
    sandboxed_runs: SandboxedRuns, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    if not npx_has_tsx():
        pytest.skip("needs Node with npx and tsx (npm install -g tsx)")
    script = "const told: string = 'typed'\nconsole.log(JSON.stringify({out: told}))\n"
    sandboxed_runs.agent("tries", "graph.yaml", GRAPH.replace("attempt.sh", "attempt.ts"))
    sandboxed_runs.agent("tries", "attempt.ts", script)
    outcome = await callboard.run("tries", config_dir=sandboxed_runs.config, sandbox="workspace")
    assert (outcome.status, outcome.output) == ("done", "typed"), outcome.error


@pytest.mark.parametrize("backend", BACKENDS)
async def test_code_of_workflows_is(
    sandboxed_runs: SandboxedRuns, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    file = sandboxed_runs.workspace / "tries.yaml"
    file.write_text(WORKFLOW)
    workspace, tried = sandboxed_runs.workspace, sandboxed_runs.code
    code = f"import subprocess; subprocess.run(['bash', '-c', 'cd {workspace};' + {tried!r}], stderr=1)"
    outcome = await callboard.run(
        file, f"```python\n{code}\n```", config_dir=sandboxed_runs.config, sandbox="workspace"
    )
    assert outcome.status == "done", outcome.error
    sandboxed_runs.check(outcome.output)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.sample(1)
async def test_mcp_servers_are_and_have_a_network_unless_the_user_says_no(
    sandboxed_runs: SandboxedRuns, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    monkeypatch.setenv("SERVER_TOKEN", "meant for it")  # in mcp.json as in ours: what the entry says is meant
    server = sandboxed_runs.home / "server.py"
    network = "python3 -c 'import socket; socket.socket().connect((\"127.0.0.1\", 1))' 2>&1 | tail -1"
    line = f"{sandboxed_runs.code}; {network}; echo $SERVER_TOKEN"
    code = f"""
    done = subprocess.run(["bash", "-c", {line!r}], capture_output=True, text=True)
    return done.stdout + done.stderr
    """
    server.write_text(scripted_server(code, attempt={}))
    functions = sandboxed_runs.config / "functions"
    functions.mkdir()
    entry = {"command": sys.executable, "args": [str(server)], "env": {"SERVER_TOKEN": "meant for it"}}
    (functions / "mcp.json").write_text(json.dumps({"mcpServers": {"one": entry, "two": entry}}))
    sandboxed_runs.settings(
        sandbox={"profile": "workspace", "servers": {"two": {"network": "off"}}}, mcp_tools="direct"
    )
    sandboxed_runs.agent("a", "config.yaml", "name: a\nmcp_servers: [one, two]\n")
    told = await sandboxed_runs.calls("one__attempt", {})
    sandboxed_runs.check(told)
    assert "ConnectionRefused" in told
    assert "meant for it" in told
    told = await sandboxed_runs.calls("two__attempt", {})
    sandboxed_runs.check(told)
    assert backend == "bubblewrap" or "PermissionError" in told  # which has a loopback of its own


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("database", ["data/test.db", "test.db"])
async def test_a_server_that_makes_the_file_of_its_entry_is_started_once(
    sandboxed_runs: SandboxedRuns, monkeypatch: pytest.MonkeyPatch, backend: str, database: str
) -> None:
    need(backend, monkeypatch)
    data = sandboxed_runs.workspace / database
    (sandboxed_runs.workspace / "data").mkdir()
    events: list[callboard.Event] = []
    server = sandboxed_runs.home / "server.py"
    made = "import sys\nopen(sys.argv[1], 'a').close()\n"
    server.write_text(made + scripted_server("    return 'here'", attempt={}))
    functions = sandboxed_runs.config / "functions"
    functions.mkdir()
    entry = {"command": sys.executable, "args": [str(server), str(data)]}
    (functions / "mcp.json").write_text(json.dumps({"mcpServers": {"one": entry}}))
    sandboxed_runs.settings(sandbox="workspace", mcp_tools="direct", mcp_pool={"idle_timeout_seconds": 60})
    sandboxed_runs.agent("a", "config.yaml", "name: a\nmcp_servers: [one]\n")
    assert await sandboxed_runs.calls("one__attempt", {}, on_event=events.append) == "here"
    assert data.exists()
    assert [event.kind for event in events].count("mcp.started") == 1


@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_limits_of_a_call_hold_in_it(
    sandboxed_runs: SandboxedRuns, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    sandboxed_runs.agent("a", "config.yaml", "name: a\nglobal_tools: [execute_command]\n")
    command = "for n in $(seq 3000); do [ $(ulimit -f) = unlimited ] || break; sleep 0.02; done; ulimit -f; ulimit -c"
    told = await sandboxed_runs.calls("execute_command", {"command": command}, sandbox="workspace")
    assert "unlimited" not in told
    assert told.split()[-1] == "0"


@pytest.mark.parametrize("backend", BACKENDS)
async def test_what_does_not_end_is_ended_with_all_it_has_started(
    sandboxed_runs: SandboxedRuns, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    sandboxed_runs.agent("a", "config.yaml", "name: a\nglobal_tools: [execute_command]\n")
    seconds = f"4711.{os.getpid()}"  # others run this test at the same time
    command = f"trap '' TERM; for n in 1 2 3; do setsid sleep {seconds} & done; sleep {seconds}"
    sandboxed_runs.models.script(Reply(calls=[("execute_command", {"command": command})]))
    limits = callboard.Limits(timeout=1.0)
    outcome = await callboard.run(
        "a", "go", config_dir=sandboxed_runs.config, yes=True, sandbox="workspace", limits=limits
    )
    assert outcome.status == "failed"
    left = [each for each in psutil.process_iter() if _argv(each) == ["sleep", seconds]]
    assert left == []


async def test_off_says_that_nothing_is_held(sandboxed_runs: SandboxedRuns) -> None:
    sandboxed_runs.settings(sandbox="workspace")
    sandboxed_runs.agent("a", "config.yaml", "name: a\nglobal_tools: [execute_command]\n")
    assert "the-secret-key" in await sandboxed_runs.calls(
        "execute_command", {"command": sandboxed_runs.code}, sandbox="off"
    )
    assert sandboxed_runs.made.exists()


async def test_open_closes_the_kernel_alone(sandboxed_runs: SandboxedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    need("landlock", monkeypatch)
    sandboxed_runs.agent("a", "config.yaml", "name: a\nglobal_tools: [execute_command]\n")
    told = await sandboxed_runs.calls(
        "execute_command",
        {"command": f"{sandboxed_runs.code}; unshare -Ur true; grep NoNewPrivs /proc/self/status"},
        sandbox="open",
    )
    assert sandboxed_runs.made.exists()
    assert "the-secret-key" in told
    assert "Operation not permitted" in told
    assert "NoNewPrivs:\t1" in told


async def test_read_only_writes_nothing_but_its_own_temporary_directory(
    sandboxed_runs: SandboxedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("bubblewrap", monkeypatch)
    sandboxed_runs.agent("a", "config.yaml", "name: a\nglobal_tools: [execute_command]\n")
    command = "echo x > here; echo kept > /tmp/x; cat /tmp/x"
    told = await sandboxed_runs.calls("execute_command", {"command": command}, sandbox="read-only")
    assert "Read-only file system" in told
    assert "kept" in told
    assert not (sandboxed_runs.workspace / "here").exists()


async def test_what_one_call_leaves_in_tmp_the_next_finds_and_the_run_takes_along(
    sandboxed_runs: SandboxedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("bubblewrap", monkeypatch)
    sandboxed_runs.agent("a", "config.yaml", "name: a\nglobal_tools: [execute_command]\n")
    sandboxed_runs.models.script(Reply(calls=[("execute_command", {"command": "echo left > /tmp/x"})]))
    assert "left" in await sandboxed_runs.calls("execute_command", {"command": "cat /tmp/x"}, sandbox="workspace")
    assert list((Path(os.environ["XDG_STATE_HOME"]) / "callboard" / "tmp").iterdir()) == []


async def test_where_no_sandbox_can_be_had_nothing_is_started(
    sandboxed_runs: SandboxedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBOARD_SANDBOX_BACKEND", "none")
    sandboxed_runs.agent("a", "config.yaml", "name: a\nglobal_tools: [execute_command]\n")
    told = await sandboxed_runs.calls("execute_command", {"command": sandboxed_runs.code}, sandbox="workspace")
    assert has_message(told, "work.sandbox.launch._no_way")
    assert has_message(told, "work.sandbox.launch.Launcher._without.2")
    assert not (sandboxed_runs.workspace / "inside").exists()


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_file_of_an_agent_narrows_what_the_user_allows(
    sandboxed_runs: SandboxedRuns, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    sandboxed_runs.agent("a", "config.yaml", "name: a\nglobal_tools: [execute_command]\nsandbox: read-only\n")
    code = {"command": "touch made-inside; echo $?"}
    for options in ({}, {"sandbox": "workspace"}, {"sandbox": "off"}):
        told = await sandboxed_runs.calls("execute_command", code, **options)
        assert told.split()[-1] == "1", told
        assert not (sandboxed_runs.workspace / "made-inside").exists()
    assert not list((sandboxed_runs.home / ".local/state/callboard/tmp").glob("*"))


@pytest.mark.parametrize("backend", BACKENDS)
async def test_it_never_widens_it(sandboxed_runs: SandboxedRuns, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    need(backend, monkeypatch)
    sandboxed_runs.agent("a", "config.yaml", "name: a\nglobal_tools: [execute_command]\nsandbox: open\n")
    sandboxed_runs.check(
        await sandboxed_runs.calls("execute_command", {"command": sandboxed_runs.code}, sandbox="workspace")
    )


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_node_narrows_its_own_processes_alone(
    sandboxed_runs: SandboxedRuns, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    nodes = """
name: tries
start: one
initial_state: {}
nodes:
  one: {type: script, script: one.sh, sandbox: read-only, next: two, fallback: two}
  two: {type: script, script: two.sh, next: done}
  done: {type: end, output: "{{out}}"}
"""
    sandboxed_runs.agent("tries", "graph.yaml", nodes)
    sandboxed_runs.agent("tries", "one.sh", f"touch {sandboxed_runs.workspace}/one; echo '{{}}'\n")
    sandboxed_runs.agent("tries", "two.sh", f'touch {sandboxed_runs.workspace}/two; echo \'{{"out": "over"}}\'\n')
    outcome = await callboard.run("tries", config_dir=sandboxed_runs.config, sandbox="workspace")
    assert outcome.output == "over", outcome.error
    assert not (sandboxed_runs.workspace / "one").exists()
    assert (sandboxed_runs.workspace / "two").exists()


async def test_a_run_says_which_sandbox_it_has(sandboxed_runs: SandboxedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    sandboxed_runs.agent("a", "config.yaml", "name: a\n")
    for given, told in (({}, "workspace"), ({"sandbox": "workspace"}, "workspace"), ({"sandbox": "off"}, "off")):
        events: list[callboard.Event] = []
        sandboxed_runs.models.script("over")
        await callboard.run("a", "go", config_dir=sandboxed_runs.config, on_event=events.append, **given)  # type: ignore[arg-type]
        assert events[0].data.sandbox == told  # type: ignore[attr-defined]


def test_the_settings_are_read_as_a_word_or_as_a_block() -> None:
    text = "sandbox:\n  profile: workspace\n  write: [~/.cache/uv]\n  tools: {'web_*': {network: on}}\n"
    settings, problems = read_settings(text.replace("on}", "'on'}"), "config.yaml", {})
    assert problems == []
    assert isinstance(settings.sandbox, UserSandbox)
    assert settings.sandbox.tools["web_*"].network == "on"
    settings, problems = read_settings("sandbox: read-only\n", "config.yaml", {})
    assert (settings.sandbox, problems) == ("read-only", [])
    _, problems = read_settings("sandbox: {profile: closed, wirte: [x]}\n", "config.yaml", {})
    assert {problem.line for problem in problems} == {1}
    assert len(problems) == 2


def test_the_flag_says_the_profile_of_all_that_has_none_of_its_own() -> None:
    rules = rules_of(UserSandbox(profile="workspace", tools={"t": SandboxRules(profile="open")}), "read-only")
    assert (rules.profile, rules.tools["t"].profile) == ("read-only", "open")
    assert rules_of(UserSandbox(network="on"), None).profile == "workspace"
    assert is_off(rules_of("off", None))
    assert is_off(rules_of(UserSandbox(profile="off", tools={"t": SandboxRules(network="on")}), None))
    assert not is_off(rules_of(UserSandbox(profile="off", tools={"t": SandboxRules(profile="workspace")}), None))
    assert not is_off(rules_of("off", "workspace"))
    with pytest.raises(UsageError, match=", ".join(PROFILES)):
        RunRequest(sandbox="closed")  # type: ignore[arg-type] - that is what is tested


def test_variables_that_look_like_secrets_are_withheld_unless_they_are_granted() -> None:
    environ = dict.fromkeys(("OPENAI_API_KEY", "GH_TOKEN", "PGPASSWORD", "SSH_AUTH_SOCK", "PATH", "HOME", "LANG"), "x")
    assert withheld(environ, ()) == {"OPENAI_API_KEY", "GH_TOKEN", "PGPASSWORD", "SSH_AUTH_SOCK"}
    assert withheld(environ, ("GH_*",)) == {"OPENAI_API_KEY", "PGPASSWORD", "SSH_AUTH_SOCK"}


def test_the_schema_of_the_settings_has_it() -> None:
    from callboard.protocol.settings.read import json_schema

    assert "sandbox" in json_schema()["properties"]
    assert msgspec.convert({"profile": "workspace"}, UserSandbox) == UserSandbox(profile="workspace")
