"""What the environment says, and the `.env` of the configuration directory: commands go by it, `doctor` shows it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from support.fake_models import FakeModels
from support.messages import has_message
from support.starter import CALLBOARD

from callboard.actors.io.settings import load_settings

Callboard = Callable[..., Any]


@pytest.fixture(autouse=True)
def environment(tmp_path: Path) -> Iterator[Path]:
    """An environment that says nothing, and is as it was afterwards; the configuration directory."""
    with patch.dict(os.environ):
        for name in [name for name in os.environ if name.startswith(("CALLBOARD_", "LOKI_")) or "API_KEY" in name]:
            del os.environ[name]
        home = tmp_path / "config"
        home.mkdir(exist_ok=True)
        os.environ["CALLBOARD_CONFIG_DIR"] = str(home)
        yield home


def test_the_env_file_has_keys_and_settings(callboard: Callboard, environment: Path, models: FakeModels) -> None:
    home = environment
    (home / "config.yaml").write_text("model: none:none\n")
    (home / ".env").write_text(
        f"OPENAI_API_KEY=sk-of-the-env-file\nOPENAI_BASE_URL={models.openai_base}\nLOKI_MODEL=openai:gpt-4o-mini\n"
    )
    ended = callboard("ask", "hello", "-q")
    assert (ended.code, ended.out) == (0, "ok\n")
    assert models.requests[0].headers["authorization"] == "Bearer sk-of-the-env-file"


def test_the_environment_itself_goes_before_the_file(
    callboard: Callboard, environment: Path, models: FakeModels
) -> None:
    (environment / ".env").write_text("OPENAI_API_KEY=sk-of-the-env-file\n")
    os.environ |= {"OPENAI_API_KEY": "sk-of-the-shell", "OPENAI_BASE_URL": models.openai_base}
    callboard("ask", "hello", "-q", "-m", "openai:gpt-4o-mini")
    assert models.requests[0].headers["authorization"] == "Bearer sk-of-the-shell"


def test_the_flag_says_whose_env_file_is_read(callboard: Callboard, environment: Path, tmp_path: Path) -> None:
    (environment / ".env").write_text("LOKI_MODEL=openai:of-the-variable\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".env").write_text("LOKI_MODEL=openai:of-the-flag\n")
    out = callboard("doctor", "--config-dir", str(tmp_path / "other")).out
    assert "openai:of-the-flag" in out
    assert "of-the-variable" not in out


def test_a_bad_line_of_the_env_file_ends_every_command(callboard: Callboard, environment: Path) -> None:
    (environment / ".env").write_text("A=1\nrubbish\n")
    for command in (["ask", "x"], ["ps"], ["models", "list"]):
        ended = callboard(*command)
        assert ended.code == 3
        assert ".env:2: expected NAME=VALUE" in ended.err


def test_completion_is_silent_about_a_bad_env_file(callboard: Callboard, environment: Path) -> None:
    (environment / ".env").write_text("rubbish\n")
    command = CALLBOARD
    asked = {"_CALLBOARD_COMPLETE": "bash_complete", "COMP_WORDS": "callboard run -", "COMP_CWORD": "2"}
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=False)
    assert "--model" in done.stdout
    assert done.stderr == ""


def test_a_provider_without_a_file(callboard: Callboard, environment: Path, models: FakeModels) -> None:
    (environment / "config.yaml").unlink()
    os.environ |= {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": models.openai_base, "LOKI_PLATFORM": "openai"}
    os.environ["CALLBOARD_CONFIG_DIR"] = str(environment)
    assert callboard("ask", "hello", "-q").out == "ok\n"
    assert models.requests[0].json["model"] == "gpt-4o-mini"
    os.environ["CALLBOARD_PROVIDER"] = "openai:gpt-5.4-mini"  # which goes before the older name
    assert callboard("ask", "hello", "-q").out == "ok\n"
    assert models.requests[1].json["model"] == "gpt-5.4-mini"
    os.environ["CALLBOARD_PROVIDER"] = "opnai"
    ended = callboard("ask", "hello", "-q")
    assert ended.code == 3
    assert has_message(
        ended.err,
        "work.models.providers.unknown",
        model_from="…CALLBOARD_PROVIDER",
        model="opnai",
        known_names="anthropic, bedrock…",
    )


def test_a_provider_is_ignored_beside_a_file(callboard: Callboard, environment: Path) -> None:
    (environment / "config.yaml").write_text("model: ollama:x\n")
    os.environ["LOKI_PROVIDER"] = "openai"
    assert "ollama:x" in callboard("doctor").out


@pytest.mark.parametrize("prefix", ["CALLBOARD_", "LOKI_"])
def test_files_may_be_elsewhere(callboard: Callboard, environment: Path, tmp_path: Path, prefix: str) -> None:
    for kind in ("roles", "macros", "rags", "functions"):
        (tmp_path / f"my-{kind}").mkdir()
        os.environ[f"{prefix}{kind.upper()}_DIR"] = str(tmp_path / f"my-{kind}")
    (tmp_path / "my-roles" / "pirate.md").write_text("Arr.\n")
    (tmp_path / "my-macros" / "hoist.yaml").write_text("steps: [.info]\n")
    (tmp_path / "my-functions" / "tools").mkdir()
    (tmp_path / "my-functions" / "tools" / "sail.sh").write_text("# @describe Sails.\nmain() { :; }\n")
    (tmp_path / "my-functions" / "mcp.json").write_text('{"mcpServers": {"wind": {"command": "wind"}}}')
    (tmp_path / "my-settings.yaml").write_text("model: ollama:ship\n")
    os.environ[f"{prefix}CONFIG_FILE"] = str(tmp_path / "my-settings.yaml")
    assert "pirate" in callboard("roles").out
    assert "hoist" in callboard("macros").out
    assert "sail" in callboard("tools").out
    told = callboard("doctor").out
    assert has_message(told, "cli.actions.doctor._mcp_lines.2", found="wind")
    assert "ollama:ship" in told
    os.environ[f"{prefix}SESSIONS_DIR"] = str(tmp_path / "my-sessions")
    made = callboard("sessions", "list")
    assert made.code == 0


@pytest.mark.parametrize("prefix", ["CALLBOARD_", "LOKI_"])
def test_a_session_is_kept_where_the_variable_says(
    callboard: Callboard, environment: Path, models: FakeModels, tmp_path: Path, prefix: str
) -> None:
    os.environ["CALLBOARD_CONFIG_DIR"] = str(models.config_dir(environment))
    os.environ[f"{prefix}SESSIONS_DIR"] = str(tmp_path / "kept")
    assert callboard("ask", "hello", "-q", "--session", "talk").code == 0
    assert (tmp_path / "kept" / "by-name" / "talk").is_file()
    assert not (environment / "sessions").exists()


def test_the_log_goes_where_lokis_variables_say(
    callboard: Callboard, environment: Path, models: FakeModels, tmp_path: Path
) -> None:
    os.environ["CALLBOARD_CONFIG_DIR"] = str(models.config_dir(environment))
    os.environ |= {"LOKI_LOG_LEVEL": "DEBUG", "LOKI_LOG_PATH": str(tmp_path / "logs" / "l.log")}
    ended = callboard("ask", "hello", "-q")
    assert ended.err == ""
    assert "models" in (tmp_path / "logs" / "l.log").read_text()
    assert (tmp_path / "logs" / "l.log").stat().st_mode & 0o777 == 0o600
    os.environ["LOKI_LOG_LEVEL"] = "loud"
    ended = callboard("ask", "hello", "-q")
    assert ended.code == 3
    assert has_message(ended.err, "cli.logging.parse", variable="…LOKI_LOG_LEVEL", level="loud")


def test_doctor_shows_which_variables_count_and_no_secret(callboard: Callboard, environment: Path) -> None:
    (environment / ".env").write_text("OPENAI_API_KEY=sk-secret-of-mine\nLOKI_TEMPERATURE=0.5\n")
    os.environ |= {"CALLBOARD_TEMPERATURE": "0.1", "CALLBOARD_TOKEN": "tkn-secret", "CALLBOARD_MODLE": "x"}
    os.environ |= {"LOKI_PATCH_OPENAI_CHAT_COMPLETIONS": '{".*": {"headers": {"k": "patch-secret"}}}'}
    out = callboard("doctor").out
    assert f"{environment}/.env: LOKI_TEMPERATURE, OPENAI_API_KEY" in out
    assert "  CALLBOARD_TEMPERATURE 0.1\n" in out
    assert "(CALLBOARD_TEMPERATURE overrides it)" in out
    assert "CALLBOARD_TOKEN set\n" in out
    assert "LOKI_PATCH_OPENAI_CHAT_COMPLETIONS set\n" in out
    assert "CALLBOARD_MODLE set  (did you mean 'CALLBOARD_MODEL'?)" in out
    assert "secret" not in out
    found = json.loads(callboard("doctor", "-o", "json").out)["environment"]
    assert found["variables"]["CALLBOARD_TOKEN"] == {"value": None, "note": ""}


def test_where_a_server_listens_and_which_file_an_agent_has(
    callboard: Callboard, environment: Path, tmp_path: Path
) -> None:
    os.environ["LOKI_SERVE_ADDR"] = "nowhere"
    ended = callboard("ask", "hello", "-q")
    assert ended.code == 3
    assert "LOKI_SERVE_ADDR is 'nowhere'" in ended.err
    os.environ["LOKI_SERVE_ADDR"] = "127.0.0.1:8123"
    assert load_settings(environment)[0].api.address == ("127.0.0.1", 8123)
    (environment / "agents" / "mine").mkdir(parents=True)
    (environment / "agents" / "mine" / "config.yaml").write_text("name: mine\ndescription: Of the directory.\n")
    (tmp_path / "other.yaml").write_text("name: mine\ndescription: Of the variable.\n")
    os.environ["MINE_CONFIG_FILE"] = str(tmp_path / "other.yaml")
    shown = callboard("agents", "show", "mine").out
    assert "Of the variable." in shown
