"""`callboard permissions explain`: who decides about a call, and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.messages import has_message

Callboard = Callable[..., "tuple[int, str, str]"]


@pytest.fixture(autouse=True)
def _config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path))
    (tmp_path / "config.yaml").write_text(
        'permissions: {execute_command: {allow: ["ls*", "git push*"], deny: "rm *"}, "fs_*": {deny: secrets/}}\n'
    )
    agent = tmp_path / "agents/careful"
    agent.mkdir(parents=True)
    (agent / "config.yaml").write_text('name: careful\npermissions: {execute_command: {deny: "git push*"}}\n')


def explain(callboard: Callboard, *arguments: str) -> str:
    status, told, said = callboard("permissions", "explain", *arguments)
    assert status == 0, said
    return told


def test_each_command_of_a_line_is_told_with_its_pattern(callboard: Callboard) -> None:
    told = explain(callboard, "git push && rm x")
    assert told.startswith("deny: is denied\n")
    push, remove = told.splitlines()[1:]
    assert "git push" in push
    assert "allow" in push
    assert "config.yaml, `execute_command`" in push
    assert "rm x" in remove
    assert "by 'rm *'" in remove


def test_the_file_of_an_agent_is_heard_and_so_are_flags(callboard: Callboard) -> None:
    told = json.loads(explain(callboard, "git push", "--agent", "careful", "-o", "json"))
    assert told["verdict"] == "deny"
    assert [(each["who"], each["verdict"]) for each in told["reasons"]] == [
        ("config.yaml", "allow"),
        ("the agent's file", "deny"),
    ]
    told = json.loads(explain(callboard, "make", "--allow", "execute_command", "-o", "json"))
    assert (told["verdict"], told["reasons"][0]["who"]) == ("allow", "--allow")


def test_where_no_rule_says_anything_what_the_tool_does_decides(callboard: Callboard) -> None:
    assert has_message(explain(callboard, "make"), "work.tools.permissions.Permissions.explained.2")
    assert explain(callboard, "--tool", "get_current_time", "{}").startswith("allow")
    assert explain(callboard, "--tool", "fs_cat", "a.txt").startswith("allow")
    assert explain(callboard, "--tool", "fs_cat", "x/../secrets/key").startswith("deny")
    assert explain(callboard, "--tool", "fs_write", '{"path": "a.txt", "contents": "x"}').startswith("ask")


def test_a_tool_without_a_subject_needs_its_arguments(callboard: Callboard) -> None:
    status, _, said = callboard("permissions", "explain", "x", "--tool", "get_current_time")
    assert status == 2
    assert has_message(said, "cli.actions.tools.explain_call")
