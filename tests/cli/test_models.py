"""`callboard models`: errors are the pull's own, and a signal ends it with its own exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_weights import put_weights

Callboard = Callable[..., "tuple[int, str, str]"]


def test_an_unknown_model_is_a_mistake_of_configuration_and_not_a_crash(callboard: Callboard) -> None:
    assert callboard("models", "pull", "huge") == (
        3,
        "",
        "callboard: unknown model 'huge'; known are: smollm2, wordllama, minilm\n",
    )


def test_the_list_says_how_to_get_what_is_not_here(
    callboard: Callboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "not here (callboard models pull smollm2)" in callboard("models", "list")[1]
    assert json.loads(callboard("models", "list", "-o", "json")[1])["models"][0]["path"] is None


def test_what_is_here_is_not_said_to_be_missing_under_another_name(
    callboard: Callboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for command in (("models", "list"), ("doctor",)):
        missing = callboard(*command)[1]
        assert "local:static" in missing
        assert "not here (callboard models pull wordllama)" in missing
        assert "local:wordllama" not in missing
    put_weights(monkeypatch, tmp_path, ["red"])
    for command in (("models", "list"), ("doctor",)):
        found = callboard(*command)[1]
        assert found.count("local:static") <= 2
        assert "pull wordllama" not in found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_pull_with_its_exit_code_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    waiting = tmp_path / "pip"  # in place of pip: it waits
    waiting.mkdir()
    (waiting / "__init__.py").touch()
    (waiting / "__main__.py").write_text("import signal; signal.pause()")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with subprocess.Popen(
        [sys.executable, "-m", "callboard.cli", "models", "pull", "smollm2"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as pull:
        assert pull.stderr is not None
        assert pull.stderr.readline() == "downloading\n"
        pull.send_signal(number)
        assert pull.wait(10) == 128 + number
        assert "stopped before the weights were here" in pull.stderr.read()
    assert list((tmp_path / "cache").rglob("*.*")) in ([], [tmp_path / "cache/callboard/models/.smollm2"])


def test_the_list_names_the_models_of_clients_and_whether_there_is_a_key(
    callboard: Callboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "LAB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GROQ_API_KEY", "k")
    (tmp_path / "config.yaml").write_text(
        "model: lab:big\nclients:\n"
        "  - {type: openai-compatible, name: lab, api_base: 'http://x/v1', models: [{name: big}]}\n"
    )
    out = callboard("models", "list", "--config-dir", str(tmp_path))[1]
    assert "lab (no key): lab:big" in out
    assert "groq (key set): groq:<any name>" in out
    clients = json.loads(callboard("models", "list", "-o", "json", "--config-dir", str(tmp_path))[1])["clients"]
    assert clients[0] == {
        "client": "lab",
        "type": "openai-compatible",
        "models": [{"id": "lab:big", "type": "chat"}],
        "key": False,
        "default": "lab:big",
    }
