"""Values that can be read and can hardly be meant: `validate` warns, and hints say what to write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.fake_models import FakeModels

import callboard
from callboard.actors.work.mcp.files import load_mcp
from callboard.protocol.errors import InvalidFile

GRAPH = "name: g\nstart: a\n%snodes:\n  a: {%s}\n  d: {type: end, output: ok}\n"
FLOW = """\
graph:
  id: f
  nodes:
    - {id: A, type: agent, config: {provider: openai, name: gpt-4o, params: {%s}}}
  edges: []
"""
LLM = "type: llm, prompt: x, next: d"


def warned(tmp_path: Path, name: str, text: str) -> list[tuple[str, int | None]]:
    (tmp_path / name).write_text(text)
    problems = callboard.validate(tmp_path / name, config_dir=tmp_path / "none")
    assert {problem.severity for problem in problems} <= {"warning"}, problems
    return [(problem.code, problem.line) for problem in problems]


@pytest.mark.parametrize(
    ("node", "codes"),
    [
        (LLM, []),
        ("type: llm, prompt: '', next: d", ["empty_prompt"]),
        ("type: llm, prompt: '  ', next: d", ["empty_prompt"]),
        ("type: llm, prompt: x, next: [d, d]", ["same_target"]),
        (f"{LLM}, temperature: 9", ["out_of_range"]),
        (f"{LLM}, temperature: -1, top_p: 1.5", ["out_of_range", "out_of_range"]),
        (f"{LLM}, temperature: 2, top_p: 0", []),
        ("type: approval, question: x, options: [], routes: {}, on_other: d", ["no_options"]),
    ],
)
def test_a_node_that_can_hardly_be_meant_so_is_a_warning(tmp_path: Path, node: str, codes: list[str]) -> None:
    assert warned(tmp_path, "graph.yaml", GRAPH % ("", node)) == [(code, 4) for code in codes]


def test_so_are_values_of_agents_and_graphs(tmp_path: Path) -> None:
    text = "name: g\ninstructions: x\ntemperature: 3\ntop_p: 2\n"
    assert warned(tmp_path, "config.yaml", text) == [("out_of_range", 3), ("out_of_range", 4)]
    assert warned(tmp_path, "graph.yaml", GRAPH % ("temperature: 2.5\n", LLM)) == [("out_of_range", 3)]


@pytest.mark.parametrize(
    ("params", "codes"),
    [
        ("temprature: 0.1", ["unknown_param"]),
        ("max_token: 5", ["unknown_param"]),
        ("Temperature: 0.1", ["unknown_param"]),
        ("temperature: 9, top_p: 1.1", ["out_of_range", "out_of_range"]),
        ("temperature: 0.1, top_k: 3, seed: 1, min_p: 0.1, presence_penalty: 1, own_knob: x", []),
    ],
)
def test_params_of_a_workflows_agent_are_held_against_those_of_providers(
    tmp_path: Path, params: str, codes: list[str]
) -> None:
    assert warned(tmp_path, "f.yaml", FLOW % params) == [(code, 4) for code in codes]


@pytest.mark.parametrize("tool", ["search_articles", "mcp-pubmed"])
def test_an_unknown_tool_of_a_graph_with_servers_says_how_theirs_are_written(tmp_path: Path, tool: str) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "mcp.json").write_text(json.dumps({"mcpServers": {"pubmed-search": {"command": "x"}}}))
    top = "global_tools: [fs_ls]\nmcp_servers: [pubmed-search]\n"
    (tmp_path / "graph.yaml").write_text(GRAPH % (top, f"{LLM}, tools: [{tool}]"))
    (problem,) = callboard.validate(tmp_path / "graph.yaml", config_dir=config)
    assert problem.code == "unknown_tool"
    assert problem.hint is not None
    assert f"`pubmed-search__{tool}`" in problem.hint
    assert "`mcp:pubmed-search`" in problem.hint
    (tmp_path / "graph.yaml").write_text(GRAPH % (top, f"{LLM}, tools: [fs_lss]"))
    (problem,) = callboard.validate(tmp_path / "graph.yaml", config_dir=config)
    assert problem.hint == "did you mean 'fs_ls'?"


def test_an_unset_variable_of_the_environment_is_a_warning_of_the_check_and_an_error_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOPE", raising=False)
    text = FLOW.replace("params: {%s}", "role: '${NOPE}'")
    assert warned(tmp_path, "f.yaml", text) == [("unknown_variable", 4)]
    (strict,) = callboard.validate(tmp_path / "f.yaml", config_dir=tmp_path, strict=True)
    assert strict.severity == "error"
    with pytest.raises(InvalidFile, match="NOPE"):
        callboard.load(tmp_path / "f.yaml", config_dir=tmp_path)
    monkeypatch.setenv("NOPE", "x")
    assert warned(tmp_path, "f.yaml", text) == []


@pytest.mark.parametrize(
    "client",
    [
        {"api_base": "BASE"},
        {"api_base": "BASE", "extra": {"proxy": "  "}},
        {"api_base": "http://127.0.0.1:9", "patch": {"chat_completions": {"m": {"url": "BASE/chat/completions"}}}},
    ],
    ids=["base", "proxy", "patch"],
)
async def test_blanks_around_addresses_are_none_of_theirs(
    fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: dict[str, object]
) -> None:
    monkeypatch.setenv("HTTP_PROXY", " ")
    text = json.dumps({"type": "openai-compatible", "name": "lab", **client})
    text = text.replace('"BASE', f'" {fake_model.openai_base}').replace('completions"}', 'completions\\n"}')
    (tmp_path / "config.yaml").write_text(f"model: lab:m\nclients:\n- {text}\n")
    fake_model.script("hello")
    agent = callboard.Agent(name="x", instructions="Help.")
    assert (await callboard.run(agent, "go", config_dir=tmp_path)).output == "hello"


def test_so_are_those_around_the_address_of_a_server(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"a": {"url": " http://127.0.0.1:9/mcp\\n"}}}')
    config = load_mcp(tmp_path)
    assert (config.servers["a"].url, config.broken) == ("http://127.0.0.1:9/mcp", {})
