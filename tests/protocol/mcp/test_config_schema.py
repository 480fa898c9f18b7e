"""The schema of mcp.json agrees with the reader about what every key may hold."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from callboard.protocol.mcp.config import TYPES, mcp_schema, read_mcp


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(mcp_schema())


FULL: dict[str, Any] = {
    "command": "srv",
    "args": ["-v"],
    "env": {"A": "a", "B": True, "C": 3, "D": 0.5},
    "cwd": "/tmp",
    "description": "d",
    "inherit_env": False,
    "share": "per-run",
    "tools": {"allow": ["a"], "deny": []},
    "trust": "none",
    "labels": ["private", "trusted"],
    "disabled": True,
    "warm": False,
    "idle_timeout_seconds": 0,
    "timeout_seconds": 5,
    "start_timeout_seconds": 1.5,
    "elicitation": False,
    "sampling": "ask",
    "roots": ["/srv"],
    "max_message_bytes": 1000,
    "x-note": 1,
}
OAUTH = {
    "clientId": "c",
    "clientSecret": "s",
    "scopes": ["a", "b"],
    "callbackPort": 8080,
    "authServerMetadataUrl": "https://x/.well-known/openid-configuration",
    "clientMetadataUrl": "https://x/callboard.json",
    "assumePkce": True,
    "account": "work",
}
GOOD = [
    FULL,
    {"command": "x", "tools": ["a"], "args": None},
    *({"type": kind, "command" if TYPES[kind] == "stdio" else "url": "http://x"} for kind in TYPES),
    {"url": "http://x", "headers": {"A": 1}},
    {"url": "http://x", "oauth": False},
    {"url": "http://x", "oauth": None},
    {"url": "http://x", "oauth": OAUTH},
    {"url": "http://x", "oauth": {"scopes": "a b"}},
]
BAD = [
    {},
    {"command": "x", "url": "http://x"},
    *({**FULL, key: {"no": []}} for key in FULL if key not in ("x-note", "env", "tools")),
    {"command": "x", "env": {"A": None}},
    {"command": "x", "tools": {"alow": []}},
    {"command": "x", "type": "htp"},
    {"command": "x", "timeout_seconds": 0},
    {"command": "x", "zzz": 1},
    {"url": "http://x", "oauth": "yes"},
    {"url": "http://x", "oauth": {"scopes": [1]}},
    {"url": "http://x", "oauth": {"callbackPort": 0}},
    {"url": "http://x", "oauth": {"zzz": 1}},
]


def verdicts(entry: Any) -> tuple[bool, bool]:
    """Whether the schema, and whether the reader, has nothing to say."""
    file = {"$schema": "s", "mcpServers": {"s": entry}}
    fits = jsonschema.Draft202012Validator(mcp_schema()).is_valid(file)
    return fits, not read_mcp(json.dumps(file), "mcp.json").problems


@pytest.mark.parametrize("entry", GOOD)
def test_what_the_reader_takes_without_a_word_fits_the_schema(entry: dict[str, Any]) -> None:
    assert verdicts(entry) == (True, True)


@pytest.mark.parametrize("entry", BAD)
def test_what_the_reader_complains_about_does_not_fit(entry: dict[str, Any]) -> None:
    assert verdicts(entry) == (False, False)


def test_every_key_of_the_schema_is_described() -> None:
    keys = mcp_schema()["$defs"]["Server"]["properties"]
    assert set(FULL) - {"x-note"} | {"type", "url", "headers", "oauth"} == set(keys)
    assert all(key["description"] for key in keys.values())
    oauth = mcp_schema()["$defs"]["OAuth"]["properties"]
    assert set(OAUTH) | {"redirectUri", "privateKey", "grantType"} == set(oauth)
    assert all(key["description"] for key in oauth.values())
