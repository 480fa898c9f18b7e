"""Whether models can be used: without a request, and with one to each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import trio
from support.fake_models import FakeModels, Reply, Request
from support.google_services import service_account, signed_in
from support.messages import has_message, says

from callboard import Root
from callboard.actors.runs.model_checks import TOKENS, Checked, all_models, ask, check, exit_code
from callboard.actors.work.models.catalog import ModelCatalog
from callboard.protocol.errors import ConfigError
from callboard.protocol.settings import Settings, read_settings
from callboard.supervisors import Actor


def look(text: str, model: str, environ: dict[str, str] | None = None) -> Checked:
    settings, _ = read_settings(text, "config.yaml", {})
    return check(model, settings, ModelCatalog(settings, environ or {}), environ or {})


def test_what_is_known_of_a_model_without_a_request() -> None:
    text = """
clients:
  - type: openai
    models:
      - {name: mini, real_name: gpt-4o-mini, supports_vision: false, no_stream: true}
"""
    assert look(text, "openai:mini", {"OPENAI_API_KEY": "sk"}) == Checked(
        model="openai:mini",
        kind="chat",
        type="openai",
        name="gpt-4o-mini",
        api_base="https://api.openai.com/v1",
        key="OPENAI_API_KEY",
        priced=True,
        input_price=0.15,
        output_price=0.6,
        window=128000,
        window_from="price table",
        lacks=("stream", "images"),
    )
    missing = look(text, "openai:mini")
    assert missing.failed is not None
    assert (missing.failed.code, missing.failed.exit_code, missing.key) == ("credentials", 3, "")
    assert has_message(
        missing.failed.message, "work.models.catalog.ModelCatalog._vertex_access.2", tried="OPENAI_API_KEY"
    )


def test_where_a_key_is_from_is_told_and_never_the_key() -> None:
    text = """
clients:
  - {type: claude, api_key: sk-secret}
  - {type: bedrock, region: eu-central-1, access_key_id: AKIA1, secret_access_key: very-secret}
  - {type: openai-compatible, name: lab, api_base: "http://x/v1", models: [{name: m, max_input_tokens: 9}]}
  - {type: ollama}
"""
    found = [look(text, model) for model in ("claude:claude-haiku-4-5", "bedrock:m", "lab:m", "ollama:m")]
    keys = ["`api_key` in config.yaml", "`access_key_id` in config.yaml", "", "none needed"]
    assert [each.key for each in found] == keys
    assert "secret" not in repr(found)
    assert (found[2].window, found[2].window_from, found[2].priced, found[2].failed) == (9, "config.yaml", False, None)
    assert (found[3].input_price, found[3].output_price) == (0.0, 0.0)


def test_credentials_of_google_are_read_but_not_used(tmp_path: Path) -> None:
    text = "clients: [{type: vertexai}]"
    nowhere = {"CLOUDSDK_CONFIG": str(tmp_path), "NO_GCE_CHECK": "true"}
    assert (
        str(look(text, "vertexai:gemini-2.5-pro", nowhere).failed).count("gcloud auth application-default login") == 1
    )
    key = service_account(tmp_path, "http://127.0.0.1:1")
    named = look(text, "vertexai:gemini-2.5-pro", {**nowhere, "GOOGLE_APPLICATION_CREDENTIALS": str(key)})
    assert (named.failed, named.key) == (None, f"{key} (GOOGLE_APPLICATION_CREDENTIALS)")
    key.write_text("{}")
    broken = look(text, "vertexai:gemini-2.5-pro", {**nowhere, "GOOGLE_APPLICATION_CREDENTIALS": str(key)})
    assert has_message(str(broken.failed), "work.models.vertex.login._what_it_is.3")
    signed_in(tmp_path, "http://127.0.0.1:1", quota_project_id="")
    assert has_message(str(look(text, "vertexai:gemini-2.5-pro", nowhere).failed), "runs.model_checks._of_google")
    assert look(text, "vertexai:gemini-2.5-pro", {**nowhere, "GOOGLE_CLOUD_PROJECT": "p"}).failed is None
    assert look(text, "vertexai:gemini-2.5-pro", {"VERTEXAI_API_KEY": "k"}).key == "VERTEXAI_API_KEY"


def test_all_models_are_those_listed_and_the_default() -> None:
    text = """
model: ollama:llama3.2
clients:
  - {type: openai, models: [a, {name: e, type: embedding}]}
  - {type: gemini}
"""
    settings, _ = read_settings(text, "config.yaml", {})
    assert all_models(settings, ModelCatalog(settings, {})) == ["ollama:llama3.2", "openai:a", "openai:e"]
    embedding = look(text, "openai:e", {"OPENAI_API_KEY": "x"})
    assert (embedding.kind, embedding.failed, embedding.lacks) == ("embedding", None, ())
    with pytest.raises(ConfigError, match=says("protocol.problems.suggestion", name="openai…")):
        look(text, "opena:x")
    assert exit_code([]) == 0


# --- with a request ---------------------------------------------------------------------------------------


async def asked(
    tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch, *models: dict[str, Any], key: str = "k"
) -> list[Checked]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    client = {"type": "openai-compatible", "name": "lab", "api_base": fake_model.openai_base, "api_key": key}
    (tmp_path / "config.yaml").write_text(json.dumps({"clients": [{**client, "models": list(models)}]}))
    async with Root(config_dir=tmp_path) as root:
        settings: Settings = root.settings
        catalog = ModelCatalog(settings, {})
        found = [check(f"lab:{model['name']}", settings, catalog, {}) for model in models]
        known: dict[str, Checked] = {}

        async def all_of_them(me: Actor) -> None:
            limiter = trio.CapacityLimiter(16)

            async def one(each: Checked) -> None:
                known[each.model] = await ask(me, each, root.gateway, root.knowledge, limiter)

            async with trio.open_nursery() as nursery:
                for each in found:
                    nursery.start_soon(one, each)

        await root.kernel.spawn(all_of_them, name="check", stream=root.bus.open("check")).result()
    return [known[each.model] for each in found]


async def test_each_is_asked_once_for_one_word_all_at_once(
    fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everyone = trio.Event()

    def answer(request: Request) -> Reply:
        if len(fake_model.requests) == 3:
            everyone.set()
        if request.path.endswith("/embeddings"):
            data = [{"index": 0, "embedding": [0.5] * 7}]
            return Reply(raw=json.dumps({"data": data, "usage": {"prompt_tokens": 2}}).encode(), hold=everyone)
        if request.json["model"] == "bad":
            return Reply(status=404, error="no such model", hold=everyone)
        return Reply("ok", hold=everyone, input_tokens=12, output_tokens=1)

    fake_model.answer_with(answer)
    found = await asked(
        tmp_path,
        fake_model,
        monkeypatch,
        {"name": "good", "input_price": 1.0, "output_price": 2.0},
        {"name": "bad"},
        {"name": "vectors", "type": "embedding"},
    )
    good, bad, vectors = found
    assert good.answer is not None
    assert (good.answer.text, good.answer.input_tokens, good.answer.output_tokens) == ("ok", 12, 1)
    assert good.answer.cost == pytest.approx(14e-6)
    assert good.answer.first is not None
    assert good.answer.first <= good.answer.seconds
    assert bad.failed is not None
    assert (bad.failed.code, bad.failed.exit_code) == ("model", 1)
    assert vectors.answer is not None
    assert re.fullmatch(says("runs.model_checks._knows.2", shape=7), vectors.answer.text)
    assert exit_code(found) == 1
    chats = [request.json for request in fake_model.requests if "messages" in request.json]
    assert len(fake_model.requests) == 3
    assert all(chat["max_tokens"] == TOKENS for chat in chats)


@pytest.mark.parametrize(
    ("reply", "code", "number"),
    [
        (Reply(status=401, error="bad key"), "credentials", 3),
        (Reply(status=503, error="later"), "upstream", 6),
        (Reply(status=429, error="slower", headers={"retry-after": "300"}), "upstream", 6),
        (Reply(drop="at once"), "upstream", 6),
    ],
)
async def test_what_stands_in_the_way_is_the_answer_at_once(
    fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: Reply, code: str, number: int
) -> None:
    fake_model.answer_with(lambda _: reply)
    with trio.fail_after(60):
        (found,) = await asked(tmp_path, fake_model, monkeypatch, {"name": "m"})
    assert found.failed is not None
    assert (found.failed.code, found.failed.exit_code) == (code, number)


async def test_one_that_can_not_be_used_is_not_asked(
    fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callboard.actors.work.models.providers.WANT_KEYS_ANYWHERE", ("openai-compatible",))
    monkeypatch.setattr("callboard.actors.work.models.providers.key_variables", lambda client: ["NO_SUCH_KEY"])
    (found,) = await asked(tmp_path, fake_model, monkeypatch, {"name": "m"}, key="")
    assert found.failed is not None
    assert (found.failed.code, fake_model.requests) == ("credentials", [])


async def test_a_reranker_that_gives_no_ranking_has_failed(
    fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = await asked(tmp_path, fake_model, monkeypatch, {"name": "r", "type": "reranker"})
    assert found.failed is not None
    assert (found.failed.code, len(fake_model.requests)) == ("model", 1)


def test_where_keys_of_aws_come_from_is_told_without_asking_for_them(tmp_path: Path) -> None:
    text = "clients: [{type: bedrock, region: eu-central-1}]"
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text("[profile work]\ncredential_process = touch /no/such/file\n")
    home = {"HOME": str(tmp_path)}
    for environ, key in (
        ({"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "very-secret"}, "key AKIA"),
        ({"AWS_PROFILE": "work"}, "AWS profile 'work'"),
        ({"AWS_WEB_IDENTITY_TOKEN_FILE": "/t", "AWS_ROLE_ARN": "arn"}, "AWS_WEB_IDENTITY_TOKEN_FILE"),
        ({"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/x"}, "the role of this container"),
        ({}, "the role of this machine, if it has one"),
    ):
        found = look(text, "bedrock:amazon.nova-lite-v1:0", home | environ)
        assert (found.key, found.failed) == (key, None)
    missing = look(text, "bedrock:amazon.nova-lite-v1:0", home | {"AWS_EC2_METADATA_DISABLED": "true"})
    assert has_message(str(missing.failed), "work.models.aws.keys.keys_of", name="bedrock")
