"""Ways of using Loki that scripts and shells of its users have: what `--info` prints, completion, `-C`, settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fake_models import FakeModels

from callboard.cli.main import run

from ..conftest import Ended

Callboard = Callable[..., Ended]

KEYS = (
    *("agents_dir", "config_dir", "config_file", "functions_dir"),
    *("macros_dir", "rags_dir", "roles_dir", "sessions_dir"),
)
"""Names that Loki's pages look for by `loki --info | grep NAME | awk '{print $2}'`."""


def change(config: Path, **settings: object) -> None:
    known = json.loads((config / "config.yaml").read_text())
    (config / "config.yaml").write_text(json.dumps({**known, **settings}))


@pytest.mark.parametrize("key", KEYS)
def test_one_line_of_info_has_each_name_that_scripts_look_for(callboard: Callboard, config: Path, key: str) -> None:
    (config / "functions").mkdir()
    (config / "functions" / "mcp.json").write_text("{}")
    (line,) = [line for line in callboard("loki", "--info").out.splitlines() if key in line]
    assert line.split()[1].startswith(str(config))


@pytest.mark.parametrize("line", [["loki"], ["ask"], ["loki", "-r", "reader"]], ids=str)
@pytest.mark.parametrize("tools", [{"enabled_tools": "fs_cat"}, {}], ids=str)
def test_without_function_calling_a_prompt_is_answered_without_tools(
    callboard: Callboard, models: FakeModels, tmp_path: Path, line: list[str], tools: dict[str, str]
) -> None:
    config = tmp_path / "config"
    (config / "roles").mkdir()
    (config / "roles" / "reader.md").write_text("---\nenabled_tools: fs_cat\n---\nYou read.\n")
    change(config, function_calling_support=False, **tools)
    models.script("hello")
    assert callboard(*line, "hi there").out == "hello\n"
    assert models.requests[-1].offered == []


@pytest.mark.parametrize("flag", [["-C"], ["--config-dir"]], ids=str)
@pytest.mark.parametrize("before", [True, False])
def test_a_flag_wins_over_the_variable_of_loki(
    callboard: Callboard, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: list[str], before: bool
) -> None:
    monkeypatch.setenv("LOKI_CONFIG_DIR", str(tmp_path / "theirs"))
    named = [*flag, str(tmp_path / "other")]
    line = [*named, "loki"] if before else ["loki", *named]
    assert callboard(*line, "--info").out.split("config_dir")[1].split()[0] == str(tmp_path / "other")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "elvish", "powershell", "nushell", "/bin/zsh"])
@pytest.mark.parametrize("line", [[], ["loki"]], ids=str)
def test_completion_is_printed_for_the_shell_that_a_variable_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, config: Path, shell: str, line: list[str]
) -> None:
    monkeypatch.setenv("COMPLETE", shell)
    assert run(line) == 0
    out, err = capsys.readouterr()
    assert out.startswith("# callboard: completion for ")
    assert err == ""


def test_a_variable_that_names_no_shell_changes_nothing(
    callboard: Callboard, models: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPLETE", "1")
    models.script("hello")
    assert callboard("loki", "hi there").out == "hello\n"


def test_an_address_in_a_folded_block_is_read_without_its_line_end(
    callboard: Callboard, config: Path, tmp_path: Path
) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text("[]")
    (config / "config.yaml").write_text(f"sync_models_url: >\n  {prices.as_uri()}\n")
    with_end = callboard("loki", "--sync-models")
    (config / "config.yaml").write_text(f"sync_models_url: {prices.as_uri()}\n")
    assert with_end == callboard("loki", "--sync-models")
    assert "URL" not in with_end.err


def test_the_flag_that_starts_lokis_server_names_the_command(callboard: Callboard, config: Path) -> None:
    code, _out, err = callboard("loki", "--serve")
    assert code == 2
    assert "callboard serve" in err
