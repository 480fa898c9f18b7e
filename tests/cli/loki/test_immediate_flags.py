"""Flags that need no prompt: lists for scripts, facts, secrets, updates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.fake_models import FakeModels
from support.messages import has_message

from callboard.actors.io import updating

from ..conftest import Ended

Callboard = Callable[..., Ended]


def lines(ended: Ended) -> list[str]:
    assert (ended.code, ended.err) == (0, "")
    return ended.out.splitlines()


def add_role(config: Path, name: str) -> None:
    (config / "roles").mkdir(exist_ok=True)
    (config / "roles" / f"{name}.md").write_text("You rhyme.\n")


def test_roles_agents_macros_and_bases_are_names_one_a_line(callboard: Callboard, config: Path) -> None:
    add_role(config, "poet")
    add_role(config, ".hidden")
    (config / "agents" / "mine").mkdir(parents=True)
    (config / "agents" / "mine" / "config.yaml").write_text("name: mine\n")
    (config / "agents" / ".shared").mkdir()
    (config / "macros").mkdir()
    (config / "macros" / "tidy.yaml").write_text("steps: [hello]\n")
    (config / "rags").mkdir()
    (config / "rags" / "notes.yaml").touch()
    roles = lines(callboard("--list-roles"))
    assert roles == sorted(roles)
    assert {"poet", "code", "shell", "explain-shell"} <= set(roles)
    assert ".hidden" not in roles
    agents = lines(callboard("--list-agents"))
    assert {"mine", "demo"} <= set(agents)
    assert ".shared" not in agents
    assert lines(callboard("--list-macros")) == ["generate-commit-message", "tidy"]
    assert lines(callboard("--list-rags")) == ["notes"]


def test_sessions_are_those_of_no_agent_or_of_the_one_that_is_named(callboard: Callboard, models: FakeModels) -> None:
    callboard("-s", "one", "hello there")
    callboard("-a", "explore", "-s", "two", "hello there")
    assert lines(callboard("--list-sessions")) == ["one"]
    assert lines(callboard("-a", "explore", "--list-sessions")) == ["two"]


def test_models_are_those_of_the_clients(callboard: Callboard, config: Path) -> None:
    client = {"type": "openai-compatible", "name": "x", "api_base": "http://127.0.0.1:1", "models": [{"name": "b"}]}
    (config / "config.yaml").write_text(json.dumps({"model": "x:a", "clients": [client]}))
    assert lines(callboard("--list-models")) == ["x:a", "x:b"]


def test_info_has_a_key_and_a_value_on_each_line(callboard: Callboard, config: Path) -> None:
    (config / "config.yaml").write_text("model: openai:gpt-4o\ntemperature: 0.5\nsave_session: true\n")
    found = dict(line.split(maxsplit=1) for line in lines(callboard("--info")))
    assert found["model"] == "openai:gpt-4o"
    assert (found["temperature"], found["top_p"], found["save_session"]) == ("0.5", "-", "true")
    assert (found["compression_threshold"], found["keybindings"], found["rag_top_k"]) == ("4000", "emacs", "5")
    assert found["config_dir"] == str(config)
    assert found["config_file"] == str(config / "config.yaml")
    for kind in ("agents", "roles", "macros", "sessions", "functions"):
        assert found[f"{kind}_dir"] == str(config / kind)


def test_info_about_what_is_named_is_that_of_its_own_command(callboard: Callboard, models: FakeModels) -> None:
    callboard("-s", "one", "hello there")
    assert callboard("-r", "code", "--info") == callboard("roles", "show", "code")
    assert callboard("-a", "demo", "--info") == callboard("agents", "show", "demo")
    assert callboard("-s", "one", "--info") == callboard("sessions", "show", "one")


def test_secrets_are_those_of_the_vault(process: Callboard, config: Path) -> None:
    assert process("--add-secret", "MY_KEY", text="a-long-value\n").code == 0
    assert process("--get-secret", "MY_KEY") == Ended(0, "a-long-value\n", "")
    assert process("--list-secrets") == Ended(0, "MY_KEY\n", "")
    assert process("--update-secret", "MY_KEY", text="another-value\n").code == 0
    assert process("loki", "--get-secret", "MY_KEY").out == "another-value\n"
    assert process("vault", "delete", "MY_KEY").code == 5
    assert process("--delete-secret", "MY_KEY").code == 0, "a script of Loki's is not asked"
    assert process("--list-secrets").out == ""
    assert process("--get-secret", "NO_KEY").code == 2


def test_nothing_needs_to_be_built(callboard: Callboard, config: Path) -> None:
    assert lines(callboard("-a", "coder", "--build-tools")) == [
        "nothing to build: tools are read from their files when an agent runs"
    ]


def test_the_newest_run_is_the_one_whose_log_is_told(callboard: Callboard, config: Path, tmp_path: Path) -> None:
    code, out, err = callboard("--tail-logs")
    assert (code, out) == (2, "")
    assert has_message(err, "cli.loki.play._tail_logs.2")
    assert "CALLBOARD_LOG=debug" in err


def test_bundles_are_installed_by_our_own_command(callboard: Callboard, config: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    for kind, name, text in (("roles", "poet.md", "You rhyme.\n"), ("macros", "tidy.yaml", "steps: [hello]\n")):
        (bundle / kind).mkdir(parents=True)
        (bundle / kind / name).write_text(text)
    refused = callboard("--install-from", str(bundle), "--filter", "roles")
    assert (refused.code, "poet" in refused.out + refused.err) == (5, True)
    assert has_message(refused.err, "cli.loki.play._install")
    assert not (config / "roles").exists()
    forced = callboard("loki", "--install-from", str(bundle), "--filter", "roles", "--install-force")
    assert (forced.code, (config / "roles" / "poet.md").is_file()) == (0, True)


def test_what_comes_with_callboard_is_laid_out_by_kind(callboard: Callboard, config: Path) -> None:
    assert callboard("--install", "macros").code == 0
    assert (config / "macros" / "generate-commit-message.yaml").is_file()
    assert has_message(callboard("--install", "mcp_config").out, "cli.loki.play._install.3")


@pytest.mark.parametrize(
    ("prefix", "installer", "version", "command"),
    [
        ("/home/a/.local/share/uv/tools/callboard", "uv", "", "uv tool upgrade callboard"),
        ("/home/a/.local/share/uv/tools/callboard", "uv", "0.2.0", "uv tool install callboard==0.2.0"),
        ("/home/a/.local/share/pipx/venvs/callboard", "pip", "", "pipx upgrade callboard"),
        ("/home/a/.local/share/pipx/venvs/callboard", "pip", "0.2.0", "pipx install --force callboard==0.2.0"),
        ("/home/a/venv", "uv", "", "uv pip install --python PYTHON --upgrade callboard"),
        ("/home/a/venv", "pip", "0.2.0", "PYTHON -m pip install --upgrade callboard==0.2.0"),
    ],
)
def test_an_update_is_told_and_not_done(
    monkeypatch: pytest.MonkeyPatch, prefix: str, installer: str, version: str, command: str
) -> None:
    found = SimpleNamespace(version="0.1.0", read_text=lambda name: f"{installer}\n" if name == "INSTALLER" else None)
    monkeypatch.setattr(updating, "distribution", lambda _: found)
    monkeypatch.setattr(updating.sys, "executable", "PYTHON")
    assert updating.how_to_update(version, prefix) == f"callboard 0.1.0 is installed; to update it:\n  {command}\n"


def test_a_version_may_be_written_as_loki_writes_it(callboard: Callboard, config: Path) -> None:
    assert callboard("--update", "v0.2.0", "--force").code == 0
    assert callboard("--update").code == 0
