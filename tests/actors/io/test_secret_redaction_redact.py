"""Secrets are taken out of what is written down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.access_keys import made_key

from callboard.actors.io.secret_redaction import Redactor, secrets_of
from callboard.protocol.settings import read_settings

KEY = made_key("alice")[0]
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjYXJvbCJ9.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    "secret",
    [
        KEY,
        JWT,
        "sk-proj-abcdefghijklmnopqrstuvwxyz",
        "ghp_abcdefghijklmnopqrstuvwxyz",
        "$argon2id$v=19$m=8,t=1,p=1$YQ$Yg",
    ],
    ids=["key", "jwt", "openai", "github", "hash"],  # not their values: KEY is another one in every process
)
def test_what_looks_like_a_key_is_taken_out_wherever_it_stands(secret: str) -> None:
    for text in (f"Authorization: Bearer {secret}", f'{{"key":"{secret}"}}', f"x={secret}&y", secret, f"({secret})"):
        assert secret not in Redactor().text(text)
        assert secret[:-4] not in Redactor().text(text)


def test_tokens_in_addresses_and_in_subprotocols_are_taken_out() -> None:
    text = Redactor().text(
        "http://127.0.0.1:3400/#token=abc123 and ?api_key=def456&x=1 and callboard.v1, bearer.Zm9vYmFyYmF6"
    )
    assert "abc123" not in text
    assert "def456" not in text
    assert "Zm9vYmFyYmF6" not in text
    assert "x=1" in text


def test_words_are_left_alone() -> None:
    text = "the bearer of this message, a token ring, keys: 5, sk-8, eye.to.eye and cb_1_2"
    assert Redactor().text(text) == text


def test_keys_of_the_configuration_and_the_environment_are_known() -> None:
    clients = "[{type: openai, api_key: '${K}'}, {type: gemini, oauth: {client_id: public, client_secret: of-client}}]"
    settings, _ = read_settings(f"clients: {clients}", "config.yaml", {"K": "configured-key"})
    environ = {"GROQ_API_KEY": "from-the-environment", "HOME": "/home/somebody", "SHORT_API_KEY": "abc"}
    redactor = Redactor(secrets_of(settings, environ))
    assert redactor.text("configured-key of-client from-the-environment public /home/somebody abc") == (
        "[redacted] [redacted] [redacted] public /home/somebody abc"
    )


def test_an_encoded_event_loses_the_keys_we_know_and_nothing_else() -> None:
    redactor = Redactor(['quo"ted\\secret'])
    data = b'{"text":"say quo\\"ted\\\\secret and sk-proj-abcdefghijklmnopqrstuvwxyz"}'
    assert redactor.data(data) == b'{"text":"say [redacted] and sk-proj-abcdefghijklmnopqrstuvwxyz"}'
    untouched = b'{"text":"nothing"}'
    assert redactor.data(untouched) is untouched


@given(st.text(min_size=8).filter(lambda text: "[redacted]" not in text), st.text(), st.text())
def test_a_known_secret_never_gets_through(secret: str, before: str, after: str) -> None:
    cleaned = Redactor([secret]).text(before + secret + after)
    assert secret not in cleaned.replace("[redacted]", "\0" * 20)
