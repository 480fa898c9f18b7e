"""`callboard doctor` says what is there and what is missing, and never fails."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.messages import has_message
from support.sandbox_surroundings import BACKENDS, need

from callboard.actors.work.sandbox import probes
from callboard.actors.work.sandbox.probes import PROBES
from callboard.cli.actions import doctor
from callboard.supervisors.installation import install_command

Callboard = Callable[..., "tuple[int, str, str]"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration directory."""
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path))
    return tmp_path


def test_it_names_what_tools_are_run_and_read_with(callboard: Callboard) -> None:
    code, out, err = callboard("doctor", "-o", "json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["interpreters"]["bash"]["path"] == shutil.which("bash")
    assert {"bash", "python3", "node", "npx"} == set(found["interpreters"])
    assert set(found["typescript"]) == {"tree-sitter", "tree-sitter-typescript"}


def test_what_is_missing_says_how_to_get_it(callboard: Callboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_TYPESCRIPT", ("tree-sitter-nowhere",))
    monkeypatch.setenv("PATH", "/nowhere")
    code, out, _err = callboard("doctor")
    assert code == 0
    assert f"tree-sitter-nowhere not installed ({install_command('typescript')})" in out
    assert has_message(out, "cli.actions.doctor._instead_of_tsx")


def test_a_key_in_the_config_file_is_there_too(
    callboard: Callboard, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERE_API_KEY", "hush")
    clients = [
        {"type": "openai-compatible", "name": name, "api_base": "http://x"} for name in ("here", "there", "gone")
    ]
    clients[0]["api_key"] = "hush"
    (home / "config.yaml").write_text(json.dumps({"clients": clients}))
    out = callboard("doctor")[1]
    assert "hush" not in out
    told = [line.split(maxsplit=1) for line in out.splitlines() if "_API_KEY " in line]
    assert ["HERE_API_KEY", "set in config.yaml"] in told
    assert ["THERE_API_KEY", "set"] in told
    assert ["GONE_API_KEY", "not set"] in told


def test_the_version_of_node_stands_where_it_matters(
    callboard: Callboard, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = home / "node"
    node.write_text("#!/bin/sh\necho v18.1.0\n")
    node.chmod(0o755)
    monkeypatch.setenv("PATH", str(home))
    (line,) = (line for line in callboard("doctor")[1].splitlines() if line.startswith("  tsx "))
    assert line.endswith("not found (not needed with node 22.18 or later; this is v18.1.0)")
    node.write_text("no program\n")
    node.chmod(0o755)
    assert "this is of unknown version" in callboard("doctor")[1]


def test_mcp_servers_are_named_and_those_whose_programs_are_missing(callboard: Callboard, home: Path) -> None:
    assert "/mcp.json: none (to write one: callboard mcp init)" in callboard("doctor")[1]
    servers = {
        "a": {"command": "sh"},
        "b": {"command": "/nowhere/b"},
        "c": {"url": "http://x"},
        "off": {"command": "/nowhere/off", "disabled": True},
    }
    (home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (home / "config.yaml").write_text("mcp_server_support: false\n")
    lines = callboard("doctor")[1].splitlines()
    assert f"  {home}/mcp.json: no problems" in lines
    assert "  servers: a, b, c (to try them: callboard mcp test)" in lines
    assert "  /nowhere/b: not found; needed by b" in lines
    assert "  turned off (`mcp_server_support: false` in config.yaml)" in lines
    assert "/nowhere/off" not in "\n".join(lines)


def test_settings_that_are_accepted_for_lokis_sake_are_listed(callboard: Callboard, home: Path) -> None:
    (home / "config.yaml").write_text("max_agent_depth: 3\nescalation_timeout: 5\ntheme: dark\nsave: false\n")
    found = ["escalation_timeout", "max_agent_depth"]
    assert json.loads(callboard("doctor", "-o", "json")[1])["config"]["without_effect"] == found
    assert has_message(callboard("doctor")[1], "cli.actions.doctor.as_text.2", key="max_agent_depth")


def test_validate_reads_the_config_file_of_the_directory_as_settings(callboard: Callboard, home: Path) -> None:
    (home / "config.yaml").write_text("model: openai:x\nmax_agent_depth: 3\nclientz: []\n")
    code, out, _err = callboard("validate", str(home / "config.yaml"))
    assert code == 0
    assert "config.yaml:2:1: warning: `max_agent_depth` is a key of Loki that has no effect in Callboard yet" in out
    assert "config.yaml:3:1: warning: unknown key 'clientz'" in out
    assert callboard("validate", str(home / "config.yaml"), "--strict")[0] == 2


def test_no_password_in_an_address_is_shown(callboard: Callboard, monkeypatch: pytest.MonkeyPatch) -> None:
    login = "me:hunter2-hunter2"
    for name in ("OLLAMA_HOST", "HTTPS_PROXY", "CALLBOARD_URL", "CALLBOARD_WEATHER_URL"):
        monkeypatch.setenv(name, f"https://{login}@example.org/{name}")
    monkeypatch.setenv("HTTP_PROXY", f"{login}@example.org:3128")
    for flags in ([], ["-o", "json"]):
        code, out, err = callboard("doctor", *flags)
        assert code == 0
        assert "hunter2" not in out + err
        assert "https://***@example.org/CALLBOARD_URL" in out
        assert "***@example.org:3128" in out


def test_it_says_how_processes_are_ended(callboard: Callboard, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(callboard("doctor", "-o", "json")[1])
    assert found["teardown"] == {"subreaper": True, "children": True, "pidfd": True}
    whole = callboard("doctor")[1]
    monkeypatch.setattr(doctor, "mechanisms", lambda: dict.fromkeys(found["teardown"], False))
    (home / "config.yaml").write_text("sandbox: off\n")
    poor = callboard("doctor")[1]
    assert whole != poor
    for line in ("orphans", "descendants", "signals", "kill -9 of all"):
        assert whole.count(f"  {line} ") == poor.count(f"  {line} ") == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_probes_of_the_sandbox_hold(callboard: Callboard, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    need(backend, monkeypatch)
    code, out, err = callboard("doctor", "--sandbox", "-o", "json")
    found = json.loads(out)
    assert (code, err, found["holds"]) == (0, "", True), out
    assert {each["backend"] for each in found["findings"]} == {backend}
    assert len(found["findings"]) > 20
    not_kept = [each["tried"] for each in found["findings"] if each["holds"] is None]
    assert not_kept == ([] if backend == "bubblewrap" else [each.tried for each in PROBES if each.not_kept_by])


MAY_HOLD = {
    "open files below /sys for writing",
    "open files below /proc/sys for writing",
    "reach a host by its address",
    "use inherited descriptors",
    "use capabilities of root",
    "open devices",
    "mount a file system",
    "make a user namespace",
    "trace a process outside",
}
"""Attempts that the machine may refuse without a sandbox, too."""


def test_probes_find_that_there_is_no_sandbox_around_them(
    callboard: Callboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("landlock", monkeypatch)
    monkeypatch.setattr(probes, "PROFILE", "off")
    code, out, _ = callboard("doctor", "--sandbox", "-o", "json")
    failed = {each["tried"] for each in json.loads(out)["findings"] if each["holds"] is False}
    assert code == 1
    assert {each.tried for each in PROBES if not each.not_kept_by} - failed <= MAY_HOLD
    assert "all probes, checked from outside of the sandbox" in failed


def test_where_no_sandbox_works_it_says_what_to_install(callboard: Callboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_SANDBOX_BACKEND", "none")
    code, out, _ = callboard("doctor", "--sandbox")
    assert code == 1
    assert has_message(out, "cli.actions.doctor.4")


def test_the_last_lines_name_the_model_that_answers_or_why_none_can(
    callboard: Callboard, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CALLBOARD_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    *_, none, setup = callboard("doctor")[1].splitlines()
    assert none.startswith("model: none can answer. local:smollm2 (")
    assert "callboard models pull smollm2" in none or install_command("local") in none
    assert "callboard setup" in setup
    (home / "config.yaml").write_text("model: openai:gpt-4o\n")
    assert "OPENAI_API_KEY" in callboard("doctor")[1].splitlines()[-2]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    assert callboard("doctor")[1].splitlines()[-1].startswith("model: openai:gpt-4o (")
