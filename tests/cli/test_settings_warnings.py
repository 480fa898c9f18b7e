"""What is odd in config.yaml is told by every command that reads it: in one line, once, on stderr."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fake_models import FakeModels
from support.messages import fragment

Callboard = Callable[..., "tuple[int, str, str]"]

GRAPH = """
name: echo
start: end
nodes: {end: {type: end, output: done}}
"""
TALK = """
name: talk
start: say
nodes:
  say: {type: llm, prompt: hi, next: end}
  end: {type: end}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration directory whose config.yaml has `clients` misspelt."""
    config = tmp_path / "config"
    config.mkdir()
    (config / "config.yaml").write_text("clientz:\n  - {type: openai, name: mine}\n")
    (tmp_path / "graph.yaml").write_text(GRAPH)
    (tmp_path / "talk.yaml").write_text(TALK)
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(config))
    monkeypatch.chdir(tmp_path)
    return config


def line(home: Path) -> str:
    return f"callboard: warning: {home}/config.yaml: line 1: unknown key 'clientz' (did you mean 'clients'?)"


@pytest.mark.parametrize(
    "command",
    [
        "agents", "agents -o json", "tools", "tools call get_current_time", "kb list", "sessions", "mcp list",
        "validate graph.yaml", "doctor", "doctor -o json",
    ],
)  # fmt: skip
def test_every_command_that_reads_it_says_so_once(callboard: Callboard, home: Path, command: str) -> None:
    _, out, err = callboard(*command.split())
    assert err.splitlines().count(line(home)) == 1
    assert err.count("clientz") == 1
    if "json" in command:
        json.loads(out)


def test_a_run_that_can_not_begin_says_it_before_the_error(callboard: Callboard, home: Path) -> None:
    code, _, err = callboard("ask", "hi", "-m", "mine:model")
    assert code != 0
    assert err.count("clientz") == 1
    assert err.index("clientz") < err.index(fragment("work.models.providers.unknown.4", model="mine:model"))


def test_a_run_says_it_once_among_its_warnings(callboard: Callboard, home: Path) -> None:
    code, out, err = callboard("run", "graph.yaml", "-o", "json")
    assert (code, json.loads(out)["output"]) == (0, "done")
    assert err.count("clientz") == 1


@pytest.mark.parametrize("command", ["run graph.yaml -q", "ask hi -m mine:model -q"])
def test_with_quiet_nothing_is_said_of_it(callboard: Callboard, home: Path, command: str) -> None:
    assert "clientz" not in callboard(*command.split())[2]


def test_a_file_without_oddities_is_not_spoken_of(callboard: Callboard, home: Path) -> None:
    (home / "config.yaml").write_text("temperature: 0.5\n")
    assert callboard("tools")[2] == ""


def test_several_oddities_stand_in_one_line(callboard: Callboard, home: Path) -> None:
    (home / "config.yaml").write_text("".join(f"nonsense_{number}: 1\n" for number in range(8)))
    (told,) = callboard("agents")[2].splitlines()
    assert "line 5: unknown key 'nonsense_4'" in told
    assert told.endswith("; and 3 more")


def test_a_macro_says_it_once_however_many_prompts_it_has(callboard: Callboard, home: Path, models: FakeModels) -> None:
    file = home / "config.yaml"
    file.write_text(f"{models.config()}".rstrip("}\n") + ', "clientz": 1}\n')
    (home / "macros").mkdir()
    (home / "macros" / "m.yaml").write_text("steps: [one, two]\n")
    for command in ("macro m", "--macro m", "loki --macro m"):
        _, _, err = callboard(*command.split())
        assert err.count("unknown key 'clientz'") == 1
