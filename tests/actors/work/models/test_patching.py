"""Patches of requests, as a real server gets them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.fake_models import FakeModels
from support.gateways import Silent, reaching
from support.messages import has_message, says

from callboard.actors.work.models.catalog import ModelCatalog
from callboard.actors.work.models.patching import merged
from callboard.protocol.chat import ChatRequest, UserTurn
from callboard.protocol.errors import ConfigError
from callboard.protocol.settings import ClientSettings, read_settings

HELLO = ChatRequest(messages=(UserTurn("hello"),), temperature=0.5)


async def sent(
    server: FakeModels, patches: str, environ: Mapping[str, str] | None = None, *, model: str = "lab:gpt-4o"
) -> Any:
    """The request that arrives, with these lines in the client's entry."""
    lines = "\n".join(f"    {line}" for line in patches.splitlines())
    client = f"  - type: openai-compatible\n    name: lab\n    api_base: {server.openai_base}\n    api_key: sk-lab\n"
    text = f"clients:\n{client}{lines}\n"
    settings, problems = read_settings(text, "config.yaml", environ or {})
    assert problems == []
    async with reaching(settings, environ) as gateway:
        await gateway.chat(Silent(), ChatRequest(model=model, messages=HELLO.messages, temperature=0.5))
    return server.requests[-1]


# --- what they change


async def test_a_body_is_merged_key_by_key_and_null_removes(fake_model: FakeModels) -> None:
    request = await sent(
        fake_model,
        """
models:
  - name: gpt-4o
    patch:
      body:
        temperature: null
        frequency_penalty: 0.2
        options: {a: {b: 1}, c: [1, 2]}
""",
    )
    assert request.json == {
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "hello"}],
        "frequency_penalty": 0.2,
        "options": {"a": {"b": 1}, "c": [1, 2]},
    }


@pytest.mark.parametrize(
    ("value", "patch", "result"),
    [  # the examples of RFC 7396, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merging_is_that_of_the_rfc(value: Any, patch: Any, result: Any) -> None:
    before = json.dumps([value, patch])
    assert merged(value, patch) == result
    assert json.dumps([value, patch]) == before


async def test_headers_are_set_and_removed_however_they_are_written(fake_model: FakeModels) -> None:
    request = await sent(
        fake_model,
        """
patch:
  chat_completions:
    '.*':
      headers: {Authorization: null, X-Custom-Auth: "bearer {{TOKEN}}", X-API-Version: 2024, User-Agent: mine}
""",
        {"TOKEN": "abc"},
    )
    found = {
        name: request.headers.get(name) for name in ("authorization", "x-custom-auth", "x-api-version", "user-agent")
    }
    assert found == {
        "authorization": None,
        "x-custom-auth": "bearer abc",
        "x-api-version": "2024",
        "user-agent": "mine",
    }


async def test_a_request_goes_to_the_url_of_its_patch(fake_model: FakeModels) -> None:
    url = f"{fake_model.url}/eu/chat/completions?zone=1"
    request = await sent(fake_model, f"patch: {{chat_completions: {{'gpt-.*': {{url: '{url}'}}}}}}")
    assert request.path == "/eu/chat/completions?zone=1"


# --- which hold


async def test_the_models_own_is_first_and_the_clients_goes_over_it(fake_model: FakeModels) -> None:
    patches = """
models:
  - name: gpt-4o
    patch: {body: {top_k: 1, seed: 1}, headers: {x-a: model, x-b: model}}
patch:
  chat_completions:
    'gpt-4o': {body: {seed: 2}, headers: {x-b: client}}
"""
    request = await sent(fake_model, patches)
    assert (request.json["top_k"], request.json["seed"]) == (1, 2)
    assert (request.headers["x-a"], request.headers["x-b"]) == ("model", "client")


@pytest.mark.parametrize(
    ("model", "seed"), [("gpt-4", 1), ("gpt-4o", 2), ("gpt-4o-mini", 2), ("my-gpt-4", 4), ("x/y", 3), ("o1|o3", None)]
)
async def test_the_first_pattern_that_fits_the_whole_name_holds(
    fake_model: FakeModels, model: str, seed: int | None
) -> None:
    patches = """
patch:
  chat_completions:
    'gpt-4': {body: {seed: 1}}
    'gpt-4.*': {body: {seed: 2}}
    'o1|x/y': {body: {seed: 3}}
    'my-.*': {body: {seed: 4}}
  embeddings:
    '.*': {body: {seed: 9}}
"""
    assert (await sent(fake_model, patches, model=f"lab:{model}")).json.get("seed") == seed


@pytest.mark.parametrize("prefix", ["CALLBOARD", "LOKI"])
async def test_a_variable_stands_in_for_the_clients_patch_and_not_for_the_models(
    fake_model: FakeModels, prefix: str
) -> None:
    patches = """
models:
  - name: gpt-4o
    patch: {body: {top_k: 1}}
patch:
  chat_completions: {'gpt-4o': {body: {seed: 2, n: 1}}}
"""
    variable = f"{prefix}_PATCH_LAB_CHAT_COMPLETIONS"
    request = await sent(fake_model, patches, {variable: '{"gpt-4.*":{"body":{"seed":3}}}'})
    assert {key: request.json.get(key) for key in ("top_k", "seed", "n")} == {"top_k": 1, "seed": 3, "n": None}


async def test_ours_goes_before_lokis_and_a_client_needs_no_entry(fake_model: FakeModels) -> None:
    environ = {
        "CALLBOARD_PATCH_OPENAI_CHAT_COMPLETIONS": '{".*": {"body": {"seed": 1}}}',
        "LOKI_PATCH_OPENAI_CHAT_COMPLETIONS": '{".*": {"body": {"seed": 2}}}',
        "OPENAI_API_KEY": "sk",
        "OPENAI_BASE_URL": fake_model.openai_base,
    }
    settings, problems = read_settings("", "config.yaml", environ)
    assert problems == []
    async with reaching(settings, environ) as gateway:
        await gateway.chat(Silent(), ChatRequest(model="openai:gpt-4o", messages=HELLO.messages))
    assert fake_model.requests[0].json["seed"] == 1


def test_a_client_that_a_file_describes_is_not_patched_by_the_environment() -> None:
    settings, _ = read_settings(
        "", "c", {"CALLBOARD_PATCH_OPENAI_X_CHAT_COMPLETIONS": '{".*": {"headers": {"a": "b"}}}'}
    )
    catalog = ModelCatalog(settings, {})
    name = catalog.adopt(ClientSettings(type="openai", name="openai", api_base="http://x", api_key="k"))
    assert "a" not in catalog.target(f"{name}:m").headers


# --- what is wrong with them


def problems_of(text: str, environ: Mapping[str, str] | None = None) -> list[tuple[str, str | None, int]]:
    _, problems = read_settings(text, "config.yaml", environ or {})
    assert all(problem.severity == "error" for problem in problems), problems
    return [(problem.code, problem.key, problem.line) for problem in problems]


@pytest.mark.parametrize(
    ("patch", "code", "key"),
    [
        ("{body: [1]}", "wrong_type", "body"),
        ("{body: text}", "wrong_type", "body"),
        ("{headers: {a: [1]}}", "wrong_type", "headers.a"),
        ('{headers: {a: "x\\r\\ny: z"}}', "bad_header", "headers.a"),
        ('{headers: {a: "naïve"}}', "bad_header", "headers.a"),
        ('{headers: {"a b": x}}', "bad_header", "headers.a b"),
        ('{headers: {"": x}}', "bad_header", "headers."),
        ("{headers: {Content-Length: '3'}}", "bad_header", "headers.Content-Length"),
        ("{headers: {transfer-encoding: chunked}}", "bad_header", "headers.transfer-encoding"),
        ("{url: ftp://x/y}", "bad_url", "url"),
        ("{url: /v1/chat}", "bad_url", "url"),
        ("{url: 'http://'}", "bad_url", "url"),
        ("{url: 'http://a b/c'}", "bad_url", "url"),
        ("{url: 'http://me:secret@x/c'}", "bad_url", "url"),
        ("{url: 'http://x/c#d'}", "bad_url", "url"),
        ("{url: 'http://x:99999/c'}", "bad_url", "url"),
        ("{url: 'http://[::1/c'}", "bad_url", "url"),
        ("{url: [a]}", "wrong_type", "url"),
        ("text", "wrong_type", ""),
    ],
)
def test_what_is_wrong_is_told_with_file_line_and_key(patch: str, code: str, key: str) -> None:
    model = f"clients:\n  - type: openai\n    models:\n      - name: m\n        patch: {patch}\n"
    at = f"clients[0].models[0].patch{'.' * bool(key)}{key}"
    assert problems_of(model) == [(code, at, 5)]
    client = f"clients:\n  - type: openai\n    patch:\n      chat_completions:\n        m: {patch}\n"
    at = f"clients[0].patch.chat_completions.m{'.' * bool(key)}{key}"
    assert problems_of(client) == [(code, at, 5)]


@pytest.mark.parametrize("pattern", ["[", "(a", "*", "(?P<a>x)(?P<a>y)", "x" * 1_001])
def test_a_pattern_that_is_none_is_an_error_at_its_key(pattern: str) -> None:
    text = f"clients:\n  - type: openai\n    patch:\n      rerank:\n        '{pattern}': {{body: {{a: 1}}}}\n"
    [(code, _, line)] = problems_of(text)
    assert (code, line) == ("bad_pattern", 5)


def test_keys_that_are_none_are_told_with_the_nearest() -> None:
    text = "clients:\n  - type: openai\n    patch:\n      chat_completion: {}\n      embeddings: {m: {boddy: {}}}\n"
    _, problems = read_settings(text, "config.yaml", {})
    assert [(problem.severity, problem.line, problem.hint) for problem in problems] == [
        ("warning", 4, "did you mean 'chat_completions'?"),
        ("warning", 5, "did you mean 'body'?"),
    ]


@pytest.mark.parametrize(
    ("value", "code"),
    [("{", "yaml_syntax"), ("[1]", "not_a_mapping"), ('{"[": {}}', "bad_pattern"), ('{"a": {"url": "x"}}', "bad_url")],
)
def test_a_wrong_variable_is_named(value: str, code: str) -> None:
    _, problems = read_settings("", "config.yaml", {"LOKI_PATCH_OPENAI_EMBEDDINGS": value})
    assert has_message(problems[0].file, "work.variables._Found.about", _agent="LOKI_PATCH_OPENAI_EMBEDDINGS")
    assert problems[0].severity == "error"
    assert value == "{" or problems[0].code == code


def test_a_pattern_that_takes_for_ever_is_given_up() -> None:
    text = "clients:\n  - type: openai\n    patch: {chat_completions: {'(a|aa)+b': {}}}\n"
    settings, problems = read_settings(text, "config.yaml", {})
    assert problems == []
    with pytest.raises(ConfigError, match=says("work.models.patching.patched", name="openai")):
        ModelCatalog(settings, {"OPENAI_API_KEY": "k"}).target(f"openai:{'a' * 60}")


@pytest.mark.parametrize(
    ("patch", "words"),
    [("{url: '${WHERE}'}", "`url` is 'nowhere', not a URL"), ("{headers: {a: '${EVIL}'}}", "`a` has a line break")],
)
def test_what_a_value_refers_to_is_checked_when_it_is_known(patch: str, words: str) -> None:
    environ = {"WHERE": "nowhere", "EVIL": "x\r\ny: z", "OPENAI_API_KEY": "k"}
    text = f"clients:\n  - type: openai\n    models: [{{name: m, patch: {patch}}}]\n"
    settings, problems = read_settings(text, "config.yaml", environ)
    assert problems == []
    with pytest.raises(ConfigError, match=f"'openai:m': its `patch` in config.yaml: .*{words}"):
        ModelCatalog(settings, environ).target("openai:m")


def test_a_local_model_has_no_url_to_patch(tmp_path: Path) -> None:
    weights = tmp_path / "m.gguf"
    weights.write_bytes(b"GGUF")
    text = "clients:\n  - type: local\n    patch: {chat_completions: {'.*': {url: 'http://x/y'}}}\n"
    settings, problems = read_settings(text, "config.yaml", {})
    assert problems == []
    with pytest.raises(
        ConfigError, match=says("work.models.patching.patched.3", at="…of client 'local' in config.yaml")
    ):
        ModelCatalog(settings, {}).target(f"local:{weights}")


# --- how they are looked at


async def test_the_log_shows_requests_as_they_are_sent_without_their_secrets(
    fake_model: FakeModels, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("callboard"), "propagate", True)
    caplog.set_level(logging.DEBUG, "callboard.models")
    patches = """
patch:
  chat_completions:
    '.*':
      body: {temperature: null, user: hunter2hunter2, seed: 7}
      headers: {X-Secret: hunter2hunter2, x-team: blue}
"""
    await sent(fake_model, patches)
    (record,) = [record for record in caplog.records if record.name == "callboard.models"]
    text = record.getMessage()
    assert f"POST {fake_model.openai_base}/chat/completions" in text
    assert '"seed":7' in text
    assert "temperature" not in text
    assert "x-team: blue" in text
    assert "x-secret: [redacted]" in text
    assert "hunter2hunter2" not in text
    assert "sk-lab" not in text
    assert '"hello"' in text
