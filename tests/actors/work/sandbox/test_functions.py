"""Functions of workflows and bash tools in the sandbox that users have: what they write and where they ask."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.fake_models import FakeModels, Reply

import callboard

COUNT = """
def count(text, state):
    state["n"] = state.get("n", 0) + 1
    return f"{state['n']}. {text}"
"""
SAVE = """
import os

def save(text: str, _context: dict = None):
    "Saves."
    path = os.path.join(_context["python_workspace_root"], "a.txt")
    open(path, "w").write(text)
    return path
"""
PROMPTS = """#!/usr/bin/env bash
set -e
# @describe Prompts
# @env LLM_OUTPUT=/dev/stdout The output path
source "$LLM_PROMPT_UTILS_FILE"
main() { text=$(input "Please enter something:" 2>/dev/tty); echo "got:$text" >> "$LLM_OUTPUT"; }
"""


@pytest.mark.parametrize("durable", [False, True])
async def test_a_processor_gets_the_workspace(tmp_path: Path, durable: bool) -> None:
    (tmp_path / "functions" / "edge_processor").mkdir(parents=True)
    (tmp_path / "functions" / "edge_processor" / "numbers.py").write_text(COUNT)
    (tmp_path / "f.yaml").write_text(
        "graph:\n  id: g\n  nodes:\n    - {id: A, type: literal, config: {content: hello}}\n"
        "    - {id: Out, type: passthrough, config: {}}\n"
        "  edges:\n    - {from: A, to: Out, process: {type: function, config: {name: count}}}\n"
    )
    outcome = await callboard.run(str(tmp_path / "f.yaml"), "x", config_dir=tmp_path, durable=durable)
    assert (outcome.output, outcome.failures) == ("1. hello", [])


async def test_a_template_may_name_the_node_that_its_edge_starts_from(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(
        "graph:\n  id: g\n  nodes:\n    - {id: S, type: literal, config: {content: hello}}\n"
        "    - {id: T, type: passthrough, config: {}}\n"
        "  edges:\n    - {from: S, to: T, process: {type: template, config: {template: '{{content}} {{S}}'}}}\n"
    )
    assert (await callboard.run(str(tmp_path / "f.yaml"), "x", config_dir=tmp_path)).output == "hello hello"


async def test_in_a_loop_a_template_has_what_its_node_has_just_said(fake_model: FakeModels, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(
        "graph:\n  id: g\n  start: [W]\n  end: [E]\n  nodes:\n"
        f"    - {{id: W, type: agent, config: {{provider: openai, base_url: '{fake_model.openai_base}',\n"
        "       api_key: k, name: m}}\n"
        "    - {id: P, type: passthrough, config: {}}\n    - {id: E, type: passthrough, config: {}}\n"
        "  edges:\n    - {from: W, to: P, process: {type: template, config: {template: 'W={{W}}'}}}\n"
        "    - {from: P, to: W}\n    - {from: W, to: E, condition: {type: keyword, config: {any: [DONE]}}}\n"
    )
    fake_model.script("v0", "v1", "DONE")
    outcome = await callboard.run(str(tmp_path / "f.yaml"), "x", config_dir=tmp_path)
    assert outcome.output == "DONE"
    assert [request.prompt for request in fake_model.requests][1:] == ["W=v0", "W=v1"]


async def test_what_a_function_writes_to_the_workspace_is_found_by_the_next_node(
    fake_model: FakeModels, tmp_path: Path
) -> None:
    (tmp_path / "functions" / "function_calling").mkdir(parents=True)
    (tmp_path / "functions" / "function_calling" / "s.py").write_text(SAVE)
    (tmp_path / "f.yaml").write_text(
        "graph:\n  id: g\n  nodes:\n"
        f"    - {{id: A, type: agent, config: {{provider: openai, base_url: '{fake_model.openai_base}', api_key: k,\n"
        "       name: m, tooling: [{type: function, config: {tools: [{name: save}]}}]}}\n"
        "    - {id: P, type: python, config: {code: \"print(open('a.txt').read())\"}}\n"
        "  edges: [{from: A, to: P}]\n"
    )
    fake_model.script(Reply(calls=[("save", {"text": "kept"})]), "done")
    outcome = await callboard.run(str(tmp_path / "f.yaml"), "x", config_dir=tmp_path, yes=True)
    assert outcome.output == "kept\n"


async def test_a_bash_tool_asks_though_it_writes_to_the_terminal(fake_model: FakeModels, tmp_path: Path) -> None:
    (tmp_path / "functions" / "tools").mkdir(parents=True)
    (tmp_path / "functions" / "tools" / "prom.sh").write_text(PROMPTS)
    (tmp_path / "config.yaml").write_text(
        f"model: lab:m\nclients:\n- {{type: openai-compatible, name: lab, api_base: '{fake_model.openai_base}'}}\n"
    )
    fake_model.script(Reply(calls=[("prom", {})]), "done")
    agent = callboard.Agent(name="x", instructions="Help.", global_tools=("prom",), can_ask_user=False)
    outcome = await callboard.run(agent, "go", config_dir=tmp_path, yes=True, answers=["xyz"])
    assert outcome.output == "done"
    assert "got:xyz" in fake_model.requests[-1].json["messages"][-1]["content"]


SERVER = """
import json, pathlib, sys

with open(sys.argv[1], "a") as starts:
    starts.write("start\\n")
for line in sys.stdin:
    asked = json.loads(line)
    result = {
        "initialize": {
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}
        },
        "tools/list": {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "found"}]},
    }.get(asked["method"])
    if "id" in asked:
        answer = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


@pytest.mark.parametrize("idle", [0, 30])
async def test_a_new_mcp_server_is_started_once_for_its_list_and_its_calls(
    fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idle: int
) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.chdir(work)
    (home / "srv.py").write_text(SERVER)
    entry = {"command": sys.executable, "args": [str(home / "srv.py"), str(work / "starts")], "trust": "full"}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"books": entry}}))
    (home / "config.yaml").write_text(
        f"model: lab:m\nmcp_pool: {{idle_timeout_seconds: {idle}}}\n"
        f"clients:\n- {{type: openai-compatible, name: lab, api_base: '{fake_model.openai_base}'}}\n"
    )
    fake_model.script(Reply(calls=[("books__look", {})]), Reply(calls=[("books__look", {})]), "done")
    agent = callboard.Agent(name="x", instructions="Help.", mcp_servers=("books",))
    outcome = await callboard.run(agent, "go", config_dir=home, yes=True)
    assert outcome.output == "done"
    assert fake_model.requests[-1].json["messages"][-1]["content"] == "found"
    assert (work / "starts").read_text() == "start\n"
