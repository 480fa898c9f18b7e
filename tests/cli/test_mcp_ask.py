"""Servers in runs of `callboard ask`, and what the command line says of those that it does not find."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fake_models import FakeModels, Reply
from support.messages import has_message

Callboard = Callable[..., "tuple[int, str, str]"]
Home = Callable[..., Path]

SCRIPTED = Path(__file__).parents[1] / "actors" / "work" / "mcp" / "servers" / "scripted.py"


def entry(**keys: object) -> dict[str, object]:
    """An entry of `mcp.json`: the scripted server."""
    return {"command": sys.executable, "args": ["-S", str(SCRIPTED)], **keys}


def test_a_question_may_use_the_tools_of_a_server(callboard: Callboard, models: FakeModels, mcp_json: Home) -> None:
    mcp_json(s=entry(tools={"allow": ["echo"]}), other=entry(tools={"allow": ["add"]}))
    models.script(Reply(calls=[("s__echo", {"text": "from s"})]), "It said: from s.")
    code, out, err = callboard("ask", "What does it say?", "--tool", "mcp:s", "--tool", "get_current_time")
    assert (code, out) == (0, "It said: from s.\n")
    assert models.requests[0].offered == ["get_current_time", "s__echo"]
    assert models.requests[1].results == ["from s"]
    assert 's__echo text="from s" done in ' in err


def test_the_settings_name_its_servers_unless_the_command_line_does(
    callboard: Callboard, models: FakeModels, mcp_json: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    mcp_json(s=entry(tools={"allow": ["echo"]}), other=entry(tools={"allow": ["add"]}))
    monkeypatch.setenv("CALLBOARD_ENABLED_MCP_SERVERS", "other")
    assert callboard("ask", "-q", "hi")[0] == 0
    assert callboard("ask", "-q", "hi", "--tool", "get_current_time")[0] == 0
    assert [request.offered for request in models.requests] == [["other__add"], ["get_current_time"]]


@pytest.mark.parametrize("tool", ["s", "s__echo"])
def test_what_belongs_to_a_server_says_how_to_ask_for_it(callboard: Callboard, mcp_json: Home, tool: str) -> None:
    mcp_json(s=entry())
    code, _out, err = callboard("ask", "hi", "--tool", tool)
    assert code == 2
    assert f"there is no tool '{tool}'; for all tools of MCP server 's': --tool mcp:s" in err
    assert "callboard mcp tools s" in callboard("tools", "show", tool)[2]


def test_no_server_at_all_is_wrong_usage(callboard: Callboard, mcp_json: Home) -> None:
    mcp_json(s=entry())
    code, _out, err = callboard("ask", "hi", "--tool", "mcp:")
    assert code == 2
    assert has_message(err, "cli.actions.run._check", WHOLE="mcp:")


def test_only_entries_that_a_run_names_are_told(callboard: Callboard, models: FakeModels, mcp_json: Home) -> None:
    mcp_json(s=entry(tools={"allow": ["echo"]}, odd=1), bad={"args": []}, other=entry(strange=1))
    err = callboard("ask", "hi", "--tool", "mcp:s")[2]
    assert "odd" in err
    assert "bad" not in err
    assert "strange" not in err
    assert models.requests[0].offered == ["s__echo"]
    code, _out, err = callboard("ask", "hi", "--tool", "mcp:bad")
    assert code == 2
    assert err.count("'bad' has neither") == 1


def test_a_server_that_no_file_names_is_a_mistake_on_the_command_line(
    callboard: Callboard, models: FakeModels, mcp_json: Home
) -> None:
    mcp_json(clock=entry())
    code, out, err = callboard("ask", "hi", "--tool", "mcp:clokc")
    assert (code, out) == (2, "")
    assert err == "callboard: there is no MCP server 'clokc'; did you mean 'clock'?\n"
    assert not models.requests


def test_where_mcp_is_turned_off_the_command_line_is_blamed(
    callboard: Callboard, mcp_json: Home, tmp_path: Path
) -> None:
    mcp_json(s=entry())
    (tmp_path / "config" / "config.yaml").write_text("mcp_server_support: false\n")
    code, _out, err = callboard("ask", "hi", "--tool", "mcp:s")
    assert code == 3
    assert has_message(err, "cli.actions.run._check.2", servers="mcp:s")
    assert "agent 'ask'" not in err


def test_an_unknown_server_of_the_settings_names_them(
    callboard: Callboard, mcp_json: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mcp_json(s=entry())
    file = tmp_path / "config" / "config.yaml"
    file.write_text("enabled_mcp_servers: s,nope\n")
    code, _out, err = callboard("ask", "hi")
    assert code == 2
    assert f"`enabled_mcp_servers` of {file}: there is no MCP server 'nope'" in err
    monkeypatch.setenv("CALLBOARD_ENABLED_MCP_SERVERS", "nope")
    assert "of the environment (CALLBOARD_ENABLED_MCP_SERVERS): " in callboard("ask", "hi")[2]


def test_an_agent_that_lists_a_server_among_its_tools_is_told_where_it_belongs(
    callboard: Callboard, mcp_json: Home, tmp_path: Path
) -> None:
    mcp_json(s=entry())
    agent = tmp_path / "config" / "agents" / "a"
    agent.mkdir(parents=True)
    for tool in ("mcp:s", "s", "s__echo"):
        (agent / "config.yaml").write_text(f"name: a\nglobal_tools: ['{tool}']\n")
        assert has_message(callboard("validate", "a")[1], "runs.file_checks.check_listed", server="s", server_2="s")
    (agent / "config.yaml").unlink()
    graph = "name: g\nstart: a\nnodes:\n  a: {type: llm, prompt: p, tools: [s], next: e}\n  e: {type: end}\n"
    (agent / "graph.yaml").write_text(graph)
    assert has_message(
        callboard("validate", "a")[1], "engine.graph.node_checks._check_tools.3", server_2="s", server_3="mcp:s"
    )


def test_doctor_shows_enabled_servers_and_aliases(callboard: Callboard, mcp_json: Home, tmp_path: Path) -> None:
    mcp_json(s=entry())
    settings = "enabled_mcp_servers: s\nmapping_mcp_servers: {web: 's,t'}\n"
    (tmp_path / "config" / "config.yaml").write_text(settings)
    out = callboard("doctor")[1]
    assert has_message(out, "cli.actions.doctor._mcp_lines.3", found="s")
    assert "  alias web: s,t (mapping_mcp_servers)" in out
