"""Secrets in what config.yaml says of a client: put in when it is used, and nowhere else."""

from __future__ import annotations

import msgspec
import pytest
from support.messages import has_message

from callboard.actors.io.vault.lookups import OfEnvironment
from callboard.actors.work.models.catalog import ModelCatalog
from callboard.actors.work.models.providers import OF_ITS_FILE, filled
from callboard.protocol.errors import CredentialsError
from callboard.protocol.settings import ClientSettings, Settings, read_settings

ALL = """
clients:
  - type: openai-compatible
    name: lab
    api_base: https://{{HOST}}/v1
    api_key: "{{A}}-{{B}}"
    extra: {proxy: "http://me:{{A}}@proxy:3128"}
    max_concurrency: 3
    patch:
      chat_completions:
        '.*': {headers: {x-key: "{{B}}"}, body: {metadata: {deep: ["{{A}}", 1]}}}
    models:
      - {name: m, system_prompt_prefix: "{{B}} ", patch: {headers: {x-own: "{{A}}"}}}
  - {type: bedrock, access_key_id: "{{A}}", secret_access_key: "{{B}}", session_token: "{{A}}", region: eu-west-1}
  - {type: claude, name: team, auth: oauth, oauth: {client_id: me, client_secret: "{{A}}", params: {x: "{{B}}"}}}
"""
VALUES = {"A": "first", "B": "{{A}}", "HOST": "lab.example"}


def settings_of(text: str) -> Settings:
    settings, problems = read_settings(text, "config.yaml", VALUES)
    assert problems == []
    return settings


def test_every_text_of_a_client_may_name_secrets_and_no_settings_hold_one() -> None:
    settings = settings_of(ALL)
    assert b"first" not in msgspec.json.encode([*settings.clients])
    lab, amazon, team = (filled(client, OfEnvironment(VALUES), "config.yaml") for client in settings.clients)
    assert (lab.api_base, lab.api_key) == ("https://lab.example/v1", "first-{{A}}")  # what is put in is not read again
    assert lab.extra.proxy == "http://me:first@proxy:3128"
    shown = msgspec.json.encode(lab)
    assert b'"x-own":"first"' in shown
    assert b'"deep":["first",1]' in shown
    assert lab.models[0].system_prompt_prefix == "{{A}} "
    assert (amazon.access_key_id, amazon.secret_access_key, amazon.session_token) == ("first", "{{A}}", "first")
    assert team.oauth is not None
    assert (team.oauth.client_secret, team.oauth.params) == ("first", {"x": "{{A}}"})


def test_a_client_without_secrets_is_the_same_object() -> None:
    client = ClientSettings(type="openai", name="openai", api_key="plain")
    assert filled(client, OfEnvironment({}), "config.yaml") is client


def test_what_another_file_says_of_a_client_is_no_reference() -> None:
    client = ClientSettings(type="openai", api_key="{{A}}", api_base="https://{{A}}", region="{{A}}")
    found = filled(client, OfEnvironment(VALUES), "config.yaml", but=OF_ITS_FILE)
    assert (found.api_key, found.api_base, found.region) == ("{{A}}", "https://{{A}}", "first")


def test_a_secret_that_is_missing_costs_its_own_client_and_is_named_with_its_key() -> None:
    text = """
clients:
  - {type: openai-compatible, name: one, api_base: http://127.0.0.1:1, extra: {proxy: "http://{{GONE}}"}}
  - {type: openai-compatible, name: two, api_base: http://127.0.0.1:1}
"""
    catalog = ModelCatalog(settings_of(text), {})
    assert catalog.target("two:m").headers == {}
    with pytest.raises(CredentialsError) as error:
        catalog.target("one:m")
    assert has_message(
        str(error.value),
        "work.models.providers.filled",
        name="one",
        file="config.yaml",
        path="extra.proxy",
        name_2="GONE",
    )
    with pytest.raises(CredentialsError, match="GONE"):
        catalog.access("one:m", "embedding")
