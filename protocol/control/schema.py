"""JSON Schema of all frames of Callboard's own methods, printed by `callboard schema control`.

Events and questions are typed: an event is one of the kinds (`oneOf`, by `kind`), as in `callboard schema events`.
Struct names under `$defs` have no dots, so that code generators can make classes of them. The methods of ACP are
described by that protocol's own schema.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..changes import Restored
from ..events import KINDS, event_kinds
from ..kernel.questions import Question
from . import chat, durable, own, session_methods
from .things import GraphPicture, UsageReport

METHODS: dict[str, tuple[Any, Any]] = {
    "_run/start": (own.StartRun, own.OneRun),
    "_run/list": (own.ListRuns, own.Runs),
    "_run/get": (own.OfRun, own.OneRun),
    "_run/cancel": (own.OfRun, own.Cancelled),
    "_run/resume": (durable.ResumeRun, own.OneRun),
    "_run/rows": (durable.ReadRows, durable.Rows),
    "_run/steps": (durable.ReadSteps, durable.Steps),
    "_run/fork": (durable.ForkRun, durable.Forked),
    "_run/delete": (own.OfRun, own.Done),
    "_run/subscribe": (own.Subscribe, own.Subscribed),
    "_run/unsubscribe": (own.Unsubscribe, own.Unsubscribed),
    "_run/events": (own.ReadEvents, own.Events),
    "_run/output": (own.ReadOutput, own.Output),
    "_run/graph": (own.OfRun, GraphPicture),
    "_run/calls": (own.ReadCalls, own.Calls),
    "_run/call": (own.ReadCall, own.OneCall),
    "_run/changes": (own.ReadChanges, own.Changes),
    "_run/restore": (own.OfRun, Restored),
    "_actor/tree": (own.TreeOf, own.Actors),
    "_actor/subscribe": (own.WatchTree, own.WatchingTree),
    "_actor/unsubscribe": (own.Unsubscribe, own.Unsubscribed),
    "_actor/inspect": (own.OfActor, own.OneActor),
    "_actor/send": (own.SendText, own.Done),
    "_actor/pause": (own.OfActor, own.Paused),
    "_actor/resume": (own.OfActor, own.Resumed),
    "_actor/cancel": (own.OfActor, own.Cancelled),
    "_question/list": (own.ListQuestions, own.Questions),
    "_question/answer": (own.AnswerQuestion, own.Answered),
    "_question/subscribe": (own.Nothing, own.Watching),
    "_question/unsubscribe": (own.Unsubscribe, own.Unsubscribed),
    "_mcp/status": (own.Nothing, own.Servers),
    "_mcp/reload": (own.ReloadServers, own.Reloaded),
    "_usage/read": (own.ReadUsage, UsageReport),
    "_target/list": (own.Nothing, own.Targets),
    "_server/info": (own.Nothing, own.ServerInfo),
    "_result/part": (own.ReadPart, own.Part),
}
"""Callboard's own methods, with the structs of their parameters and results."""

NOTIFICATIONS: dict[str, Any] = {
    "_run/event": own.RunEvent,
    "_run/lagged": own.RunLagged,
    "_run/lost": own.RunLost,
    "_run/ended": own.RunEnded,
    "_actor/changed": own.ActorsChanged,
    "_question/asked": own.Asked,
    "_question/closed": own.Closed,
    "_question/lagged": own.QuestionsLagged,
    **chat.NOTIFICATIONS,
}
"""Notifications of the server."""

_VERSION = {"const": "2.0"}
_ID = {"type": ["string", "integer"]}


def _frame(required: str, **properties: Any) -> dict[str, Any]:
    """Return the schema of a frame; `required` lists its required keys besides the version."""
    return _object(f"jsonrpc {required}", jsonrpc=_VERSION, **properties)


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split()}


_CANCEL = _frame("method params", method={"const": "$/cancel_request"}, params=_object("requestId", requestId=_ID))
_ERROR = _object(
    "code message",
    code={"type": "integer"},
    message={"type": "string"},
    data=_object("code", code={"type": "string"}),
)
# JSON-RPC 2.0, section 5: the id is null if that of the request could not be read.
_FAILURE = _frame("id error", id={"type": ["string", "integer", "null"]}, error=_ERROR)


def json_schema() -> dict[str, Any]:
    """Return the schema (2020-12). Each method and notification has an entry by name under `$defs`."""
    called = {**METHODS, **session_methods.METHODS, **chat.METHODS, **chat.REQUESTS}
    # This order matters, because the schemas are identified by their position below: two per method, the notifications,
    # `Question`, the kinds of events.
    structs = [kind for pair in called.values() for kind in pair] + list(NOTIFICATIONS.values())
    structs += [Question, *KINDS.values()]
    schemas, parts = msgspec.json.schema_components(structs, ref_template="#/$defs/{name}")
    events = event_kinds(schemas[-len(KINDS) :])
    defs: dict[str, Any] = {**parts, **events, "Event": {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in events]}}
    _typed(defs)
    results = []
    calls: list[dict[str, Any]] = []
    for number, name in enumerate(called):
        params, result = schemas[2 * number], schemas[2 * number + 1]
        defs[f"{name} params"], defs[f"{name} result"] = params, result
        # A JSON pointer writes `/` in a key as `~1` (RFC 6901), and a URI fragment has no blanks.
        results.append({"$ref": f"#/$defs/{name.replace('/', '~1')} result".replace(" ", "%20")})
        needs = parts.get(params.get("$ref", "").rpartition("/")[2], {}).get("required")
        required = "id method params" if needs else "id method"
        calls.append(_frame(required, id=_ID, method={"const": name}, params=params))
    first = 2 * len(called)
    of_told = dict(zip(NOTIFICATIONS, schemas[first : first + len(NOTIFICATIONS)], strict=True))
    defs |= {f"notification {name}": schema for name, schema in of_told.items()}
    # `not`: otherwise a request, which has the same keys and an `id`, would be valid as a notification.
    told = [
        {**_frame("method params", method={"const": name}, params=schema), "not": {"required": ["id"]}}
        for name, schema in of_told.items()
    ]
    frames = {
        "request": {"anyOf": calls},
        "notification": {"anyOf": told},
        "cancel": _CANCEL,
        # `anyOf`: a response does not name its method, and results of several methods have the same shape, which
        # `oneOf` refuses.
        "result": _frame("id result", id=_ID, result={"anyOf": results}),
        "failure": _FAILURE,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Callboard control channel",
        "anyOf": [{"$ref": f"#/$defs/{kind}"} for kind in frames],
        "$defs": defs | frames,
    }


_REFERENCES = {
    ("RunEvent", "event"): "Event",
    ("Events", "events"): "Event",
    ("Asked", "question"): "Question",
    ("Questions", "questions"): "Question",
}
"""Types of fields that are passed on as JSON without decoding."""


def _typed(defs: dict[str, Any]) -> None:
    """Insert the types of `_REFERENCES`, and `_meta`, which every result and notification may have."""
    for (name, field), kind in _REFERENCES.items():
        properties = defs[name]["properties"]
        reference = {"$ref": f"#/$defs/{kind}"}
        is_list = properties[field].get("type") == "array"
        properties[field] = {**properties[field], "items": reference} if is_list else reference
    results = [result for _, result in (METHODS | session_methods.METHODS | chat.METHODS).values()]
    for kind in (*results, *NOTIFICATIONS.values()):
        defs[kind.__name__]["properties"]["_meta"] = _META


_META = {
    "type": "object",
    "properties": {
        "cut": {
            "type": "object",
            "description": "What was shortened to fit into a frame: its JSON pointer, and its whole length.",
            "additionalProperties": {"type": "integer"},
        }
    },
}
