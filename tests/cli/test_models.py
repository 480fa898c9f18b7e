"""`callboard models`: errors are the pull's own, and a signal ends it with its own exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from support.messages import has_message
from support.tiny_weights import put_weights
from support.waiting import PATIENCE

from callboard.cli.commands.run import ask

Callboard = Callable[..., "tuple[int, str, str]"]


def test_an_unknown_model_is_a_mistake_of_configuration_and_not_a_crash(callboard: Callboard) -> None:
    assert callboard("models", "pull", "huge") == (
        3,
        "",
        "callboard: unknown model 'huge'; the known ones are: smollm2, wordllama, minilm\n",
    )


def test_the_list_says_how_to_get_what_is_not_here(
    callboard: Callboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "not installed (callboard models pull smollm2)" in callboard("models", "list")[1]
    assert json.loads(callboard("models", "list", "-o", "json")[1])["models"][0]["path"] is None


def test_what_is_here_is_not_said_to_be_missing_under_another_name(
    callboard: Callboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for command in (("models", "list"), ("doctor",)):
        missing = callboard(*command)[1]
        assert "local:static" in missing
        assert "not installed (callboard models pull wordllama)" in missing
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
        try:
            assert pull.stderr is not None
            assert pull.stderr.readline() == "smollm2: downloading\n"
            pull.send_signal(number)
            assert pull.wait(PATIENCE) == 128 + number
            assert has_message(pull.stderr.read(), "cli.actions.models._pull")
        finally:
            pull.kill()  # else the block would wait for it
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
    assert "lab (no key): lab:big (unpriced)" in out
    assert "groq (key set): groq:<any name>" in out
    clients = json.loads(callboard("models", "list", "-o", "json", "--config-dir", str(tmp_path))[1])["clients"]
    assert clients[0] == {
        "client": "lab",
        "type": "openai-compatible",
        "models": [
            {"id": "lab:big", "type": "chat", "priced": False, "input_price": None, "output_price": None},
        ],
        "key": False,
        "signed_in": None,
        "default": "lab:big",
    }


def _lab(tmp_path: Path, more: str = "") -> None:
    (tmp_path / "config.yaml").write_text(
        more + "clients:\n"
        "  - type: openai\n    requests_per_minute: 500\n"
        "    models: [{name: gpt-4o-mini, input_price: 0.1, max_output_tokens: 4096}, {name: gpt-of-tomorrow}]\n"
        "  - type: gemini\n    models: [{name: gemini-2.5-pro}]\n"
    )


def test_the_list_tells_prices(callboard: Callboard, tmp_path: Path) -> None:
    _lab(tmp_path)
    out = callboard("models", "list", "--config-dir", str(tmp_path))[1]
    assert "openai:gpt-4o-mini ($0.10 in, $0.60 out), openai:gpt-of-tomorrow (unpriced)" in out
    assert "gemini:gemini-2.5-pro ($1.25 in, $10.00 out)" in out


def test_a_model_is_shown_with_its_limits_and_prices_and_where_they_are_from(
    callboard: Callboard, tmp_path: Path
) -> None:
    _lab(tmp_path)
    file = tmp_path / "config.yaml"
    shown = json.loads(
        callboard("models", "show", "openai:gpt-4o-mini", "-o", "json", "--config-dir", str(tmp_path))[1]
    )
    assert shown["priced"] is True
    assert shown["prices"] == {
        "input": {"price": 0.1, "tiers": [], "from": f"`input_price` in {file}"},
        "output": {"price": 0.6, "tiers": [], "from": "price table: openai gpt-4o-mini"},
    }
    assert shown["limits"] == {
        "max_output_tokens": {"value": 4096, "from": f"the model in {file}"},
        "requests_per_minute": {"value": 500.0, "from": f"the client in {file}"},
        "context_window": {"value": 128000, "from": "price table: openai gpt-4o-mini"},
    }
    assert shown["table"]["source"].startswith("genai-prices")
    out = callboard("models", "show", "gemini:gemini-2.5-pro", "--config-dir", str(tmp_path))[1]
    assert "$1.25 per million tokens, $2.50 above 200,000 input tokens" in out
    assert "price table: google gemini-2.5-pro" in out


def test_a_model_without_a_price_is_shown_as_such(callboard: Callboard, tmp_path: Path) -> None:
    _lab(tmp_path)
    out = callboard("models", "show", "openai:gpt-of-tomorrow", "--config-dir", str(tmp_path))[1]
    assert "unpriced" in out
    assert "$0" not in out


def test_what_is_no_model_is_not_shown(callboard: Callboard, tmp_path: Path) -> None:
    code, out, err = callboard("models", "show", "opnai:gpt-4o", "--config-dir", str(tmp_path))
    assert (code, out) == (3, "")
    assert has_message(err, "cli.render.markdown.theme._known", near="'openai:...'")


TOMORROW = [
    {
        "id": "openai",
        "api_pattern": "https://api\\.openai\\.com",
        "models": [
            {"id": "t", "match": {"equals": "gpt-of-tomorrow"}, "prices": {"input_mtok": 7, "output_mtok": 8}},
        ],
    }
]


@pytest.mark.parametrize("by", ["--from", "sync_models_url"])
def test_an_update_prices_what_had_no_price(
    callboard: Callboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    theirs = tmp_path / "data_slim.json"
    theirs.write_text(json.dumps(TOMORROW))
    _lab(tmp_path, f"sync_models_url: {theirs}\n" if by == "sync_models_url" else "")
    flags = ("--from", str(theirs)) if by == "--from" else ()
    code, out, err = callboard("models", "update", *flags, "-o", "json", "--config-dir", str(tmp_path))
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["models"], told["source"]) == (1, str(theirs))
    assert told["file"] == str(tmp_path / "data/callboard/prices.json")
    out = callboard("models", "list", "--config-dir", str(tmp_path))[1]
    assert "openai:gpt-of-tomorrow ($7.00 in, $8.00 out)" in out


def test_an_update_with_what_is_no_table_changes_nothing(
    callboard: Callboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for name, text, words in (
        ("data_slim.json", '[{"id": "x"}]', "is not a price file"),
        ("models.yaml", "clients:\n  - type: openai\n", "expected a list of entries with `provider:`"),
    ):
        wrong = tmp_path / name
        wrong.write_text(text)
        code, out, err = callboard("models", "update", "--from", str(wrong), "--config-dir", str(tmp_path))
        assert (code, out) == (3, "")
        assert f"{wrong} is not a" in err
        assert words in err
    assert "data_slim.json" in callboard("models", "update", "--from", str(tmp_path / "data_slim.json"))[2]
    assert not (tmp_path / "data").exists()


def test_lokis_list_of_models_prices_and_completes_them(
    callboard: Callboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("GROQ_API_KEY", "k")
    loki = tmp_path / "models.yaml"
    loki.write_text(
        "- provider: groq\n  models:\n    - name: llama-of-tomorrow\n      type: chat\n"
        "      max_input_tokens: 9\n      input_price: 7\n      output_price: 8\n"
    )
    _lab(tmp_path, f"sync_models_url: {loki}\n")
    assert callboard("models", "update", "--config-dir", str(tmp_path))[0] == 0
    out = callboard("models", "show", "groq:llama-of-tomorrow", "--config-dir", str(tmp_path))[1]
    assert "7.00" in out
    context = click.Context(ask, info_name="ask")
    context.params["config_dir"] = str(tmp_path)
    parameter = next(each for each in ask.params if each.name == "model")
    found = [item.value for item in parameter.shell_complete(context, "groq:llama-of")]
    assert found == ["groq:llama-of-tomorrow"]


def test_names_of_models_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "k")
    _lab(tmp_path)
    context = click.Context(ask, info_name="ask")
    context.params["config_dir"] = str(tmp_path)
    parameter = next(each for each in ask.params if each.name == "model")
    found = [item.value for item in parameter.shell_complete(context, "openai:")]
    assert found == ["openai:gpt-4o-mini", "openai:gpt-of-tomorrow"]
    assert "groq:llama-3.3-70b-versatile" in [item.value for item in parameter.shell_complete(context, "groq:ll")]
    second = [item.value for item in parameter.shell_complete(context, "groq:x,openai:gpt-of")]
    assert second == ["groq:x,openai:gpt-of-tomorrow"]
    (tmp_path / "config.yaml").write_text("clients: 3\n")
    assert parameter.shell_complete(context, "openai:") == []


def test_models_are_checked_without_a_request(
    callboard: Callboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    _lab(tmp_path)
    code, out, err = callboard("models", "check", "--config-dir", str(tmp_path))
    assert (code, err) == (3, "")
    assert (
        "ok     openai:gpt-4o-mini\n       key: OPENAI_API_KEY; $0.10 in, $0.60 out; window 128,000 (price table)"
        in out
    )
    assert (
        "openai:gpt-of-tomorrow\n       key: OPENAI_API_KEY; unpriced; context window unknown (set `max_input_tokens`)"
        in out
    )
    assert "FAILED gemini:gemini-2.5-pro\n       no API key" in out
    assert "sk-secret" not in out
    code, out, _ = callboard("models", "check", "openai", "-o", "json", "--config-dir", str(tmp_path))
    (found,) = json.loads(out)["models"]
    assert (code, found["model"], found["failed"], found["answer"]) == (0, "openai:gpt-4o-mini", None, None)
    assert callboard("models", "check", "opnai:x", "--config-dir", str(tmp_path))[0] == 3
    several = callboard("models", "check", "openai:gpt-4o-mini,gemini:gemini-2.5-pro", "--config-dir", str(tmp_path))
    assert (several[0], several[1].count("\n       ")) == (3, 2)


def test_a_model_that_can_not_be_reached_is_told_by_a_live_check(callboard: Callboard, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "clients: [{type: openai-compatible, name: lab, api_base: 'http://127.0.0.1:1/v1', models: [big]}]\n"
    )
    code, out, err = callboard("models", "check", "--live", "--config-dir", str(tmp_path))
    assert (code, err) == (6, "")
    assert out.startswith("FAILED lab:big\n       lab:big: 127.0.0.1:1 can't be reached")
    code, out, _ = callboard("models", "check", "--live", "-o", "json", "--config-dir", str(tmp_path))
    assert (code, json.loads(out)["models"][0]["failed"]["code"]) == (6, "upstream")


def test_doctor_checks_models_where_that_is_asked_for(
    callboard: Callboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    _lab(tmp_path)
    code, out, _ = callboard("doctor", "--models", "--config-dir", str(tmp_path))
    assert code == 0
    assert "\n  ok     openai:gpt-4o-mini\n         key: OPENAI_API_KEY" in out
    found = json.loads(callboard("doctor", "--models", "-o", "json", "--config-dir", str(tmp_path))[1])
    assert found["models"][0]["model"] == "openai:gpt-4o-mini"
    assert "models" not in json.loads(callboard("doctor", "-o", "json", "--config-dir", str(tmp_path))[1])


def test_names_of_models_are_completed_for_show_and_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from callboard.cli.commands.models import models

    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path))
    _lab(tmp_path)
    for name in ("show", "check"):
        command = models.commands[name]
        context = click.Context(command, info_name=name)
        offered = command.params[0].shell_complete(context, "openai:")
        assert [item.value for item in offered] == ["openai:gpt-4o-mini", "openai:gpt-of-tomorrow"]


def test_clients_of_clouds_are_listed_where_there_are_credentials(
    callboard: Callboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from callboard.actors.work.models.model_listing import model_names
    from callboard.protocol.settings import Settings

    for name in ("VERTEXAI_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    out = callboard("models", "list", "--config-dir", str(tmp_path))[1]
    assert "vertexai" not in out
    assert "bedrock" not in out
    (tmp_path / "gcloud").mkdir()
    (tmp_path / "gcloud/application_default_credentials.json").write_text("{}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "A")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert "bedrock" not in callboard("models", "list", "--config-dir", str(tmp_path))[1]  # where would that be
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    out = callboard("models", "list", "--config-dir", str(tmp_path))[1]
    assert "vertexai (key set): vertexai:<any name>" in out
    assert "bedrock (key set): bedrock:<any name>" in out
    names = set(model_names(Settings(), os.environ))
    assert {"vertexai:gemini-2.5-flash", "bedrock:amazon.nova-lite-v1:0"} <= names
    assert not any("regional." in name for name in names)


def test_the_chosen_models_can_be_named_where_no_file_lists_them() -> None:
    from callboard.actors.work.models.model_listing import model_names
    from callboard.protocol.settings import ClientSettings, Settings

    client = ClientSettings(type="openai-compatible", name="mine", api_base="http://127.0.0.1:1/v1")
    assert [*model_names(Settings(model="mine:one,mine:two", clients=(client,)), {})] == ["mine:one", "mine:two"]
