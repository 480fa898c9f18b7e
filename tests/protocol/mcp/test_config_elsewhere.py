"""What config.yaml, agents and graphs say about MCP servers."""

from __future__ import annotations

import jsonschema
import pytest

from callboard.protocol.agent import agent_schema, read_agent
from callboard.protocol.graph import LlmNode, graph_schema, read_graph
from callboard.protocol.mcp.config import HealthCheck, PoolSettings
from callboard.protocol.settings import Settings, json_schema, read_settings

FULL = """\
mcp_server_support: false
enabled_mcp_servers: all
mapping_mcp_servers:
  web: fetch,search
  code: [git, github]
mcp_pool:
  idle_timeout_seconds: 60
  max_idle_servers: 3
  max_servers: 9
  cleanup_interval_seconds: 10
  max_restarts: 2
  restart_window_seconds: 30
  health_check: {interval_seconds: 5, timeout_seconds: 1, on_failure: LogOnly}
mcp_tools: meta
mcp_tools_budget: 100
"""


def test_all_settings_about_servers_are_read() -> None:
    settings, problems = read_settings(FULL, "config.yaml", {})
    assert problems == []
    assert settings == Settings(
        mcp_server_support=False,
        enabled_mcp_servers="all",
        mapping_mcp_servers={"web": "fetch,search", "code": "git,github"},
        mcp_pool=PoolSettings(
            idle_timeout_seconds=60,
            max_idle_servers=3,
            max_servers=9,
            cleanup_interval_seconds=10,
            max_restarts=2,
            restart_window_seconds=30,
            health_check=HealthCheck(interval_seconds=5, timeout_seconds=1, on_failure="LogOnly"),
        ),
        mcp_tools="meta",
        mcp_tools_budget=100,
    )


def test_the_defaults_are_loki_s_where_loki_has_any() -> None:
    settings = Settings()
    assert (settings.mcp_server_support, settings.mcp_tools, settings.mcp_tools_budget) == (True, "auto", 8000)
    pool = settings.mcp_pool
    assert (pool.idle_timeout_seconds, pool.max_idle_servers, pool.max_servers) == (None, 50, None)
    assert (pool.health_check, pool.cleanup_interval_seconds) == (HealthCheck(), 30)
    assert HealthCheck() == HealthCheck(interval_seconds=60, timeout_seconds=5, on_failure="EvictAndLog")


def test_the_environment_wins_over_the_file() -> None:
    environ = {
        "CALLBOARD_MCP_SERVER_SUPPORT": "true",
        "CALLBOARD_ENABLED_MCP_SERVERS": "git",
        "CALLBOARD_MCP_TOOLS": "direct",
        "CALLBOARD_MCP_TOOLS_BUDGET": "5",
    }
    settings, problems = read_settings(FULL, "config.yaml", environ)
    assert problems == []
    assert (settings.mcp_server_support, settings.enabled_mcp_servers) == (True, "git")
    assert (settings.mcp_tools, settings.mcp_tools_budget) == ("direct", 5)


@pytest.mark.parametrize(
    ("text", "environ", "words"),
    [
        ("mcp_tools: metta", {}, "unknown variant `metta` for `mcp_tools` (expected one of auto, direct, meta)"),
        ("", {"CALLBOARD_MCP_TOOLS": "x"}, "CALLBOARD_MCP_TOOLS is 'x' (expected one of auto, direct, meta)"),
        ("mcp_tools: ${MODE}", {"MODE": "x"}, "(expected one of auto, direct, meta)"),
        ("mcp_pool: {max_servers: 0}", {}, "`mcp_pool.max_servers` is the number 0"),
        ("mcp_pool: {idle_timeout_seconds: -1}", {}, "a number of at least 0"),
        ("mcp_pool: {health_check: {on_failure: evict}}", {}, "did you mean 'Evict'?"),
        ("mcp_pool: {max_idle: 3}", {}, "unknown key `max_idle` in `mcp_pool`"),
        ("mapping_mcp_servers: [a]", {}, "`mapping_mcp_servers` is a list"),
    ],
)
def test_a_wrong_setting_is_told_with_its_line(text: str, environ: dict[str, str], words: str) -> None:
    _, [problem] = read_settings(text, "config.yaml", environ)
    assert words in str(problem)
    assert problem.line == (1 if text else 0)


def test_a_reference_may_stand_for_the_mode() -> None:
    settings, problems = read_settings("mcp_tools: ${MODE}", "config.yaml", {"MODE": "meta"})
    assert (settings.mcp_tools, problems) == ("meta", [])


def test_the_settings_fit_their_schema_and_a_wrong_mode_does_not() -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    good = {"mcp_tools": "meta", "mapping_mcp_servers": {"a": ["b"]}, "mcp_pool": {"health_check": {}}}
    assert validator.is_valid(good)
    for bad in ({"mcp_tools": "x"}, {"mcp_pool": {"max_servers": 0}}, {"mcp_pool": {"x": 1}}):
        assert not validator.is_valid(bad)


MODES = ["meta", "direct", "auto", "{time: [now], git: []}"]
AGENT = "name: a\nmcp_servers: [time]\nmcp_tools: {}\n"
GRAPH = """\
name: g
mcp_servers: [time]
mcp_tools: {0}
start: a
nodes:
  a: {{type: llm, prompt: p, mcp_tools: {0}, next: e}}
  e: {{type: end}}
"""


@pytest.mark.parametrize("written", MODES)
def test_agents_graphs_and_nodes_name_a_mode_or_the_tools_of_each_server(written: str) -> None:
    meant = {"time": ("now",), "git": ()} if written.startswith("{") else written
    agent, problems = read_agent(AGENT.replace("{}", written), "config.yaml")
    assert (problems, agent and agent.mcp_tools) == ([], meant)
    graph, problems = read_graph(GRAPH.format(written), "graph.yaml")
    assert problems == []
    assert graph is not None
    node = graph.nodes["a"]
    assert isinstance(node, LlmNode)
    assert (graph.mcp_tools, node.mcp_tools) == (meant, meant)


@pytest.mark.parametrize("written", ["metta", "[time]", "{time: now}"])
def test_anything_else_is_an_error_of_the_agent(written: str) -> None:
    agent, problems = read_agent(AGENT.replace("{}", written), "config.yaml")
    assert (agent, [problem.line for problem in problems]) == (None, [3])


@pytest.mark.parametrize("value", ["auto", {"time": ["now"]}, None])
def test_both_ways_fit_the_schemas(value: object) -> None:
    assert jsonschema.Draft202012Validator(agent_schema()).is_valid({"name": "a", "mcp_tools": value})
    end = {"e": {"type": "end"}}
    assert jsonschema.Draft202012Validator(graph_schema()).is_valid(
        {"name": "g", "start": "e", "nodes": end, "mcp_tools": value}
    )
