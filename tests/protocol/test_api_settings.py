"""The `api:` block of config.yaml."""

from __future__ import annotations

import re

import jsonschema
import pytest
import yaml
from support.messages import has_message

from callboard.protocol.problems import errors_in
from callboard.protocol.settings import json_schema, read_settings
from callboard.protocol.settings.api import ApiSettings, DailyLimits

HASH = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaA"

FULL = f"""\
api:
  listen_addr: "[::1]:4000"
  auth:
    mode: StaticKeys
    keys:
      - subject: alice
        id: 3f2a00aa
        key_hash: {HASH}
        scopes: [read:runs, "*"]
        daily: {{max_cost: 5, max_tokens: 1000000}}
    jwt:
      issuer: https://issuer.test
      audience: callboard
      jwks_url: https://issuer.test/jwks.json
  cors:
    allowed_origins: [https://example.org, "http://localhost:5173"]
  allowed_hosts: ["*.example.org", board]
  trusted_proxies: [10.0.0.0/8, "::1"]
  limits:
    max_body_bytes: 2048
    rate_limit_per_minute: 30
    per_subject_daily: {{max_cost: 0.5}}
    daily: {{max_cost: 20}}
  audit: {{sink: file, file: /var/log/callboard/audit.jsonl}}
  log_level: debug
"""


def errors(block: str) -> list[str]:
    _, problems = read_settings("api:\n" + block, "config.yaml", {})
    return [str(problem) for problem in errors_in(problems)]


def test_a_full_block_is_read_and_fits_the_schema() -> None:
    settings, problems = read_settings(FULL, "config.yaml", {})
    assert problems == []
    api = settings.api
    assert api.address == ("::1", 4000)
    assert api.auth.static[0].scopes == ("read:runs", "*")
    assert api.auth.signed is None, "the mode says static keys"
    assert api.limits.rate_limit_per_minute == 30
    assert api.limits.per_subject_concurrency == 8
    assert api.auth.static[0].daily == DailyLimits(max_cost=5, max_tokens=1_000_000)
    assert (api.limits.per_subject_daily, api.limits.daily) == (DailyLimits(max_cost=0.5), DailyLimits(max_cost=20))
    jsonschema.validate(yaml.safe_load(FULL), json_schema())


def test_without_a_block_everything_has_its_default() -> None:
    settings, problems = read_settings("", "config.yaml", {})
    assert (settings.api, problems) == (ApiSettings(), [])
    assert settings.api.address == ("127.0.0.1", 3400)


def test_case_109_three_mistakes_are_told_in_one_go_each_with_its_line() -> None:
    found = errors(
        "  listen_addr: nowhere\n"
        "  auth:\n    keys:\n      - {subject: a, key_hash: hunter2, scopes: []}\n"
        "  limits:\n    max_body_bytes: 0\n"
    )
    assert [re.search(r"config.yaml:(\d+)", line)[1] for line in found] == ["2", "5", "7"]
    assert "expected HOST:PORT" in found[0]
    assert has_message(found[1], "protocol.settings.api._keys")
    assert "callboard keys new a" in found[1]
    assert has_message(found[2], "protocol.reading._broken_bound.2", ge="1024…")
    assert not any("hunter2" in line for line in found), "what may be a key is not repeated"


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ("  limit: {}\n", "did you mean 'limits'?"),
        ("  limits: {rate_limit_per_min: 5}\n", "did you mean 'rate_limit_per_minute'?"),
        ("  listen_addr: 127.0.0.1:99999\n", "a number from 0 to 65535"),
        ("  listen_addr: ::1\n", "HOST:PORT"),
        ("  auth: {mode: StaticKeys}\n", "`api.auth.keys` is empty"),
        ("  auth: {mode: Jwt}\n", "`api.auth.jwt` is missing"),
        ("  auth: {mode: jwt}\n", "one of Disabled, Jwt, StaticKeys"),
        ("  auth: {jwt: {issuer: x, audience: y, jwks_url: http://example.org/k}}\n", "an https URL"),
        ("  auth: {jwt: {issuer: x, audience: y, jwks_url: file:///etc/passwd}}\n", "an https URL"),
        ("  auth: {jwt: {issuer: x, audience: y, jwks_url: https://e/k, algorithms: [HS256]}}\n", "is 'HS256'"),
        ("  auth: {jwt: {issuer: x, audience: y, jwks_url: https://e/k, algorithms: [none]}}\n", "is 'none'"),
        (f"  auth: {{keys: [{{subject: local, key_hash: '{HASH}', scopes: []}}]}}\n", "another name"),
        (
            "  auth: {keys: [{subject: a, key_hash: '$argon2id$v=19$m=9999999,t=3,p=4$c2FsdA$aGFzaA', scopes: []}]}\n",
            "too expensive",
        ),
        (
            "  auth: {keys: [{subject: a, key_hash: '$argon2i$v=19$m=8,t=3,p=4$c2FsdA$aGFzaA', scopes: []}]}\n",
            "not an arg",
        ),
        ("  cors: {allowed_origins: [example.org]}\n", "an origin such as"),
        ("  cors: {allowed_origins: ['https://example.org/path']}\n", "an origin such as"),
        ("  cors: {allowed_origins: ['*'], allow_credentials: true}\n", "while every origin is allowed"),
        ("  trusted_proxies: [proxy]\n", "an address or a network"),
        ("  allowed_hosts: ['http://board']\n", "without scheme and port"),
        ("  audit: {sink: file}\n", "an absolute path"),
        ("  audit: {facility: mail}\n", "one of auth"),
        ("  request_timeout_seconds: 0\n", "greater than 0"),
        ("  shutdown_grace_seconds: -1\n", "at least 0"),
        ("  limits: {max_body_bytes: 104857601}\n", "at most 104857600"),
        ("  limits: {rate_limit_per_minute: -1}\n", "or 0 for no limit"),
    ],
)
def test_what_would_fail_hours_later_is_told_at_once(block: str, told: str) -> None:
    assert any(told in line for line in errors(block)), errors(block)


def test_a_scope_that_nothing_asks_for_is_warned_of() -> None:
    text = f"api: {{auth: {{keys: [{{subject: a, key_hash: '{HASH}', scopes: ['read:run']}}]}}}}\n"
    _, problems = read_settings(text, "config.yaml", {})
    assert [(problem.severity, problem.hint) for problem in problems] == [("warning", "did you mean 'read:runs'?")]


def test_two_keys_of_one_id_are_refused() -> None:
    entry = f"{{subject: a, id: one, key_hash: '{HASH}', scopes: []}}"
    assert any(
        has_message(line, "protocol.settings.api._keys.6") for line in errors(f"  auth: {{keys: [{entry}, {entry}]}}\n")
    )


@pytest.mark.parametrize(
    ("daily", "told"),
    [
        ("{}", "`api.limits.daily` limits nothing (expected `max_cost` (USD), `max_tokens`, or both)"),
        ("{max_costs: 5}", "unknown key `max_costs` in `api.limits.daily`"),
        ("5", "`api.limits.daily` is the number 5 (expected a mapping with `max_cost`, `max_tokens`)"),
        ("{max_cost: 0}", "`api.limits.daily.max_cost` is the number 0 (expected a number greater than 0)"),
        ("{max_tokens: 1.5}", "`api.limits.daily.max_tokens` is the number 1.5 (expected a whole number)"),
    ],
)
def test_a_daily_limit_that_limits_nothing_is_an_error(daily: str, told: str) -> None:
    (error,) = errors(f"  limits: {{daily: {daily}}}\n")
    assert told in error
    assert error.startswith("config.yaml:2:")


@pytest.mark.parametrize("second", ["", "        daily: {max_tokens: 5}\n"])
def test_keys_of_one_subject_have_the_same_daily_limits(second: str) -> None:
    key = f"      - subject: alice\n        key_hash: {HASH}\n        scopes: []\n"
    first = f"{key}        daily: {{max_cost: 5}}\n"
    assert errors(f"  auth:\n    keys:\n{first}{first}") == []
    (error,) = errors(f"  auth:\n    keys:\n{first}{key}{second}")
    assert "`api.auth.keys[1].daily` differs from that of another key of 'alice'" in error
