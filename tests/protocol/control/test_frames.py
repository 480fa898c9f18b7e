"""The control channel's structs, numbers and schema."""

from __future__ import annotations

import msgspec
import pytest
from jsonschema import Draft202012Validator

from callboard.protocol import errors
from callboard.protocol.control import own, schema
from callboard.protocol.control.caller import LOCAL, SCOPES, Caller
from callboard.protocol.control.errors import error_data, number_of


def test_the_schema_is_one_and_knows_every_method() -> None:
    made = schema.json_schema()
    Draft202012Validator.check_schema(made)
    for name in schema.METHODS:
        assert f"{name} params" in made["$defs"]
        assert f"{name} result" in made["$defs"]
    for name in schema.NOTIFICATIONS:
        assert f"notification {name}" in made["$defs"]


@pytest.mark.parametrize(
    ("frame", "good"),
    [
        ({"jsonrpc": "2.0", "id": 1, "method": "_run/get", "params": {"run": "run-1"}}, True),
        ({"jsonrpc": "2.0", "id": 1, "method": "_server/info"}, True),
        ({"jsonrpc": "2.0", "id": 1, "method": "_run/get"}, False),
        ({"jsonrpc": "2.0", "id": 1, "method": "_run/get", "params": {"run": 7}}, False),
        ({"jsonrpc": "2.0", "id": 1, "method": "_run/get", "params": {"run": "run-1", "x": 1}}, False),
        ({"jsonrpc": "2.0", "id": 1, "method": "_run/nothing", "params": {}}, False),
        ({"jsonrpc": "1.0", "id": 1, "method": "_server/info"}, False),
        ({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}}, True),
        ({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "no"}}, True),
    ],
)
def test_the_schema_tells_frames_from_others(frame: object, good: bool) -> None:
    assert Draft202012Validator(schema.json_schema()).is_valid(frame) is good


ODD = b'{"run":"","target":"","path":"","question":"","value":"","surely not":1}'


def test_every_parameter_struct_refuses_what_it_does_not_know() -> None:
    for params, _ in schema.METHODS.values():
        with pytest.raises(msgspec.ValidationError, match="unknown field"):
            msgspec.json.decode(
                b'{"run":"","target":"","path":"","question":"","value":"","surely not":1}', type=params
            )


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (errors.Unauthorized("x"), -32001),
        (errors.Denied("x"), -32003),
        (errors.NotFound("x"), -32004),
        (errors.Conflict("x"), -32009),
        (errors.Saturated("x"), -32010),
        (errors.UsageError("x"), -32011),
        (errors.InvalidFile("x"), -32011),
        (errors.ConfigError("x"), -32012),
        (errors.CredentialsError("x"), -32012),
        (errors.RunFailed("x"), -32013),
        (errors.CallboardError("x"), -32013),
    ],
)
def test_every_error_has_its_number_and_its_code(error: errors.CallboardError, number: int) -> None:
    assert number_of(error) == number
    assert error_data(error).data == {"code": error.code}


def test_a_caller_has_the_scopes_it_was_given() -> None:
    caller = Caller("anna", frozenset({"read:runs"}))
    assert [caller.has(scope) for scope in SCOPES] == [scope == "read:runs" for scope in SCOPES]
    assert all(LOCAL.has(scope) for scope in SCOPES)
    with pytest.raises(errors.Denied, match="admin:mcp"):
        caller.need("admin:mcp")
    assert (caller.called, Caller("anna", frozenset(), name="Anna").called) == ("anna", "Anna")


def test_limits_and_lists_have_their_defaults() -> None:
    wanted = msgspec.json.decode(b'{"target":"x"}', type=own.StartRun)
    assert (wanted.prompt, wanted.allow, wanted.timeout, wanted.session) == ("", [], None, None)
