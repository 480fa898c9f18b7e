"""The control channel's structs, numbers and schema."""

from __future__ import annotations

import msgspec
import pytest
from jsonschema import Draft202012Validator

from callboard.protocol import errors
from callboard.protocol.control import chat, method_structs, schema
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
    wanted = msgspec.json.decode(b'{"target":"x"}', type=method_structs.StartRun)
    assert (wanted.prompt, wanted.allow, wanted.timeout, wanted.session) == ("", [], None, None)


def test_every_parameter_struct_takes_what_a_client_attaches_as_meta() -> None:
    pairs = (schema.METHODS | chat.METHODS).values()
    for params, _ in pairs:
        assert "_meta" in {field.encode_name for field in msgspec.structs.fields(params)}
    assert msgspec.convert({"run": "r", "_meta": {"trace": [1]}}, method_structs.OfRun).meta == {"trace": [1]}


def test_no_struct_has_a_name_that_code_generators_take_for_a_path() -> None:
    made = schema.json_schema()["$defs"]
    assert not [name for name in made if "." in name]
    for name in filter(lambda name: name.startswith("_session/"), schema.METHODS):
        assert f"{name} params" in made


EVENT = {"schema_version": 1, "seq": 1, "ts": "2026-11-03T10:00:00Z", "run": "r", "actor": "/r", "kind": "llm.delta"}
QUESTION = {"id": "q", "actor": "/r", "text": "?", "kind": "choice", "options": ["a"]}


@pytest.mark.parametrize(
    ("method", "params", "good"),
    [
        ("_run/event", {"event": {**EVENT, "data": {"text": "x"}}}, True),
        ("_run/event", {"event": {**EVENT, "data": {"text": "x"}}, "_meta": {"cut": {"/event/data/text": 9}}}, True),
        ("_run/event", {"event": {**EVENT, "data": {}}}, False),
        ("_run/event", {"event": {**EVENT, "data": {"text": 5}}}, False),
        ("_run/event", {"event": {**EVENT, "kind": "no.kind", "data": {}}}, False),
        ("_run/event", {"event": 5}, False),
        ("_question/asked", {"question": QUESTION}, True),
        ("_question/asked", {"question": {**QUESTION, "kind": "riddle"}}, False),
        ("_question/asked", {"question": {"text": "?"}}, False),
        ("_run/ended", {"status": "lost"}, True),
        ("_run/ended", {"status": "somehow"}, False),
    ],
)
@pytest.mark.sample(4)
def test_events_questions_and_ends_are_typed(method: str, params: dict[str, object], good: bool) -> None:
    frame = {"jsonrpc": "2.0", "method": method, "params": {"subscription": "s1", "run": "r", **params}}
    assert Draft202012Validator(schema.json_schema()).is_valid(frame) is good


@pytest.mark.parametrize(("field", "good"), [("limit", [1, 1000]), ("after", [0, 2**40])])
def test_ranges_are_in_the_schema(field: str, good: list[int]) -> None:
    validator = Draft202012Validator(schema.json_schema())
    for value, fits in [*((each, True) for each in good), (-1, False), (2**70, False)]:
        frame = {"jsonrpc": "2.0", "id": 1, "method": "_run/events", "params": {"run": "r", field: value}}
        assert validator.is_valid(frame) is fits
