"""Which model an id means, how it is reached, and what is used when nobody says."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.messages import says

from callboard.actors.work.models import engines, weights
from callboard.actors.work.models.catalog import ModelCatalog
from callboard.protocol.chat import TokenUsage
from callboard.protocol.errors import ConfigError, CredentialsError
from callboard.protocol.settings import ClientSettings, ModelSettings, Settings

KEYS = {"OPENAI_API_KEY": "sk-o", "ANTHROPIC_API_KEY": "sk-a"}


def catalog(environ: dict[str, str] | None = None, *clients: ClientSettings, model: str = "") -> ModelCatalog:
    return ModelCatalog(
        Settings(clients=clients, model=model, model_from="config.yaml" if model else ""), environ or {}
    )


# --- the default ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({}, "model: local:smollm2 (no model is configured and no API key is set)"),
        ({"OPENAI_API_KEY": "k"}, "model: openai:gpt-4o-mini (OPENAI_API_KEY is set and no model is configured)"),
        (
            {"ANTHROPIC_API_KEY": "k"},
            "model: claude:claude-haiku-4-5 (ANTHROPIC_API_KEY is set and no model is configured)",
        ),
        (KEYS, "model: openai:gpt-4o-mini (OPENAI_API_KEY is set and no model is configured)"),
    ],
)
def test_without_a_configured_model_the_keys_decide(environ: dict[str, str], line: str) -> None:
    assert str(catalog(environ).choice()) == line


def test_a_configured_model_is_used_and_said_to_be() -> None:
    assert str(catalog(KEYS, model="ollama:llama3.2").choice()) == "model: ollama:llama3.2 (from config.yaml)"


def test_a_clients_bare_name_means_its_first_chat_model() -> None:
    models = (ModelSettings(name="e", type="embedding"), ModelSettings(name="big"), ModelSettings(name="small"))
    client = ClientSettings(type="openai-compatible", name="lab", api_base="http://lab/v1", models=models)
    assert catalog({}, client, model="lab").choice().model == "lab:big"
    assert catalog({}, client).choice().model == "lab:big"


def test_a_client_without_a_key_is_not_chosen() -> None:
    client = ClientSettings(type="claude", name="claude")
    assert catalog({}, client).choice().model == "local:smollm2"


# --- how a model is reached -------------------------------------------------------------------------------


def test_providers_need_no_entry_in_the_settings() -> None:
    openai = catalog(KEYS).target("openai:gpt-4o")
    assert (openai.api_base, openai.name) == ("https://api.openai.com/v1", "gpt-4o")
    assert openai.headers == {"authorization": "Bearer sk-o"}
    for name in ("claude", "anthropic"):
        claude = catalog(KEYS).target(f"{name}:claude-sonnet-4-5")
        assert claude.api_base == "https://api.anthropic.com/v1"
        assert claude.headers["x-api-key"] == "sk-a"
        assert claude.id == f"{name}:claude-sonnet-4-5"
    ollama = catalog().target("ollama:llama3.2:1b")
    assert (ollama.api_base, ollama.name, ollama.headers) == ("http://localhost:11434", "llama3.2:1b", {})


def test_known_compatible_providers_need_a_key_only() -> None:
    assert catalog({"GROQ_API_KEY": "k"}).target("groq:llama").api_base == "https://api.groq.com/openai/v1"


@pytest.mark.parametrize("base", ["http://proxy:1", "http://proxy:1/", "http://proxy:1/v1", "http://proxy:1/v1/"])
def test_base_urls_come_from_the_environment(base: str) -> None:
    environ = {"ANTHROPIC_BASE_URL": base, "OPENAI_BASE_URL": "http://other:2/v1/"}
    assert catalog(environ).target("claude:x").api_base == "http://proxy:1/v1"
    assert catalog(environ).target("openai:x").api_base == "http://other:2/v1"


def test_the_settings_win_over_the_environment() -> None:
    client = ClientSettings(type="openai", name="openai", api_base="http://mine/v1", api_key="mine")
    target = catalog({**KEYS, "OPENAI_BASE_URL": "http://other/v1"}, client).target("openai:x")
    assert (target.api_base, target.headers["authorization"]) == ("http://mine/v1", "Bearer mine")


def test_a_clients_own_variable_is_looked_at_and_openais_key_goes_nowhere_else() -> None:
    client = ClientSettings(type="openai-compatible", name="my-lab", api_base="http://lab/v1")
    assert catalog({"MY_LAB_API_KEY": "k", **KEYS}, client).target("my-lab:m").headers == {"authorization": "Bearer k"}
    assert catalog(KEYS, client).target("my-lab:m").headers == {}


def test_ollamas_base_may_be_written_with_its_path() -> None:
    for base in ("http://box:11434", "http://box:11434/v1", "http://box:11434/api/"):
        client = ClientSettings(type="ollama", name="box", api_base=base)
        assert catalog({}, client).target("box:m").api_base == "http://box:11434"


def test_a_model_of_the_list_brings_its_real_name_price_and_limit() -> None:
    entry = ModelSettings(name="m", real_name="real", input_price=1.0, output_price=2.0)
    client = ClientSettings(type="openai", name="o", api_key="k", models=(entry,), max_concurrency=4)
    target = catalog({}, client).target("o:m")
    assert (target.name, target.rules.max_concurrency) == ("real", 4)
    assert target.cost(TokenUsage(input_tokens=500_000, output_tokens=250_000)) == pytest.approx(1.0)


# --- what can't be had ------------------------------------------------------------------------------------


def test_a_missing_key_is_named_with_the_places_it_may_be_in() -> None:
    with pytest.raises(
        CredentialsError,
        match=says("work.models.catalog.ModelCatalog._vertex_access.2", tried="CLAUDE_API_KEY or ANTHROPIC_API_KEY"),
    ):
        catalog().target("claude:x")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("gpt-4o", says("work.models.providers.unknown.4", hint="…'openai:gpt-4o'…")),
        ("big", says("work.models.providers.unknown.4", hint="…'lab:big'…")),
        ("nope", says("work.models.providers.unknown.4")),
        ("opena:x", says("protocol.problems.suggestion", name="openai:...")),
        ("lab:tiny", says("work.models.providers.unknown.2", name="lab", known="lab:big…")),
        ("lab:embed", says("work.models.catalog.ModelCatalog._entry", type="embedding")),
        ("openai:", says("work.models.providers.unknown.3")),
    ],
)
def test_an_unknown_model_is_refused_with_what_there_is(model: str, words: str) -> None:
    models = (ModelSettings(name="big"), ModelSettings(name="embed", type="embedding"))
    client = ClientSettings(type="openai-compatible", name="lab", api_base="http://lab/v1", models=models)
    with pytest.raises(ConfigError, match=words):
        catalog(KEYS, client).target(model)


def test_a_client_without_a_base_url_is_refused() -> None:
    client = ClientSettings(type="openai-compatible", name="lab")
    with pytest.raises(
        ConfigError, match=says("work.models.catalog.ModelCatalog._api_base.2", name="lab", file="config.yaml")
    ):
        catalog({}, client).target("lab:m")


def test_a_base_that_is_no_url_is_named_by_the_place_where_it_stands() -> None:
    with pytest.raises(
        ConfigError,
        match=says("work.models.catalog.ModelCatalog._api_base.3", named="OPENAI_BASE_URL", base="localhost:80"),
    ):
        catalog({**KEYS, "OPENAI_BASE_URL": "localhost:80"}).target("openai:m")
    client = ClientSettings(type="openai", name="openai", api_base="lab:80")
    with pytest.raises(
        ConfigError,
        match=says(
            "work.models.catalog.ModelCatalog._api_base.3", named="`api_base` of client 'openai'", base="lab:80"
        ),
    ):
        catalog({**KEYS, "OPENAI_BASE_URL": "http://other/v1"}, client).target("openai:m")


# --- local models -----------------------------------------------------------------------------------------


def test_missing_weights_are_an_error_that_tells_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: object())
    with pytest.raises(ConfigError, match=says("work.models.weights.pulled.3", name="smollm2")) as caught:
        catalog({"XDG_CACHE_HOME": str(tmp_path)}).target("local:smollm2")
    assert caught.value.exit_code == 3


def test_a_missing_engine_is_an_error_that_tells_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=says("work.models.engines.require_engine")):
        catalog().target("local:smollm2")


def test_a_local_model_is_a_known_name_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF")
    assert weights.located(str(file), {}) == file
    with pytest.raises(ConfigError, match=says("work.models.weights.located")):
        weights.located(str(tmp_path / "gone.gguf"), {})
    with pytest.raises(ConfigError, match=says("work.models.weights.located.2", name="llama", names="smollm2")):
        weights.located("llama", {})


# --- what every request carries ---------------------------------------------------------------------------


def test_the_user_agent_of_the_settings_is_a_header_of_every_request() -> None:
    def headers(agent: str) -> dict[str, str]:
        return ModelCatalog(Settings(user_agent=agent), KEYS).target("openai:gpt-4o").headers

    assert headers("me/1")["user-agent"] == "me/1"
    assert headers("auto")["user-agent"].startswith("callboard/")
    assert "user-agent" not in headers("")


def test_the_organization_of_a_client_is_a_header_of_its_requests() -> None:
    client = ClientSettings(type="openai", name="ours", api_key="k", organization_id="org-7")
    assert ModelCatalog(Settings(clients=(client,)), {}).target("ours:gpt-4o").headers["openai-organization"] == "org-7"
    assert "openai-organization" not in ModelCatalog(Settings(), KEYS).target("openai:gpt-4o").headers


def test_a_model_is_known_without_its_key() -> None:
    client, entry = catalog({}).named("openai:gpt-4o")
    assert (client.type, entry.name) == ("openai", "gpt-4o")
    with pytest.raises(ConfigError):
        catalog({}).named("opnai:gpt-4o")


@pytest.mark.parametrize("key", ["sk-test\n", "sk-test\r\n", "  sk-test  ", "\ufeffsk-test"])
def test_what_files_put_around_a_key_is_no_part_of_it(key: str) -> None:
    for found in (
        catalog({"OPENAI_API_KEY": key}).target("openai:gpt-4o"),
        catalog({}, ClientSettings(type="openai", name="openai", api_key=key)).target("openai:gpt-4o"),
    ):
        assert found.headers["authorization"] == "Bearer sk-test"


def test_a_blank_key_is_none() -> None:
    with pytest.raises(CredentialsError, match="OPENAI_API_KEY"):
        catalog({"OPENAI_API_KEY": " \n"}).target("openai:gpt-4o")


@pytest.mark.parametrize("key", ["sk-\ntest", "sk-\u201ctest\u201d", "sk-\x00test"])
def test_a_key_that_no_header_can_have_is_an_error_that_names_its_place(key: str) -> None:
    with pytest.raises(CredentialsError, match="OPENAI_API_KEY"):
        catalog({"OPENAI_API_KEY": key}).target("openai:gpt-4o")
    with pytest.raises(CredentialsError, match="`api_key` of client 'openai'"):
        catalog({}, ClientSettings(type="openai", name="openai", api_key=key)).target("openai:gpt-4o")


# --- keys in files ----------------------------------------------------------------------------------------


def test_a_key_may_be_in_the_file_that_a_variable_names(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"\xef\xbb\xbf sk-file\r\n")
    assert catalog({"OPENAI_API_KEY_FILE": str(file)}).target("openai:m").headers["authorization"] == "Bearer sk-file"
    lab = ClientSettings(type="openai-compatible", name="my-lab", api_base="http://lab/v1")
    environ = {"MY_LAB_API_KEY_FILE": str(file), "MY_LAB_API_KEY": "sk-own"}
    assert catalog(environ, lab).target("my-lab:m").headers["authorization"] == "Bearer sk-own"


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe", b"x" * 100_000])
def test_a_file_without_a_key_is_an_error_that_names_its_variable(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY_FILE") as raised:
        catalog({"OPENAI_API_KEY_FILE": str(file)}).target("openai:m")
    assert str(file) in str(raised.value)
