"""JSON Schema of all frames of Callboard's own methods, printed by `callboard schema control`.

Events and questions are typed: an event is one of the kinds (`oneOf`, by `kind`), as in `callboard schema events`.
Struct names under `$defs` have no dots, so that code generators can make classes of them. The methods of ACP are
described by that protocol's own schema.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..events import KINDS, event_kinds
from ..kernel.questions import Question
from . import chat, method_structs
from .resources import GraphPicture, Restored, UsageReport

METHODS: dict[str, tuple[Any, Any]] = {
    "_run/start": (method_structs.StartRun, method_structs.OneRun),
    "_run/list": (method_structs.ListRuns, method_structs.Runs),
    "_run/get": (method_structs.OfRun, method_structs.OneRun),
    "_run/cancel": (method_structs.OfRun, method_structs.Cancelled),
    "_run/resume": (method_structs.ResumeRun, method_structs.OneRun),
    "_run/rows": (method_structs.ReadRows, method_structs.Rows),
    "_run/steps": (method_structs.ReadSteps, method_structs.Steps),
    "_run/fork": (method_structs.ForkRun, method_structs.Forked),
    "_run/delete": (method_structs.OfRun, method_structs.Done),
    "_run/subscribe": (method_structs.Subscribe, method_structs.Subscribed),
    "_run/unsubscribe": (method_structs.Unsubscribe, method_structs.Unsubscribed),
    "_run/events": (method_structs.ReadEvents, method_structs.Events),
    "_run/output": (method_structs.ReadOutput, method_structs.Output),
    "_run/graph": (method_structs.OfRun, GraphPicture),
    "_run/calls": (method_structs.ReadCalls, method_structs.Calls),
    "_run/call": (method_structs.ReadCall, method_structs.OneCall),
    "_run/changes": (method_structs.ReadChanges, method_structs.Changes),
    "_run/restore": (method_structs.OfRun, Restored),
    "_actor/tree": (method_structs.TreeOf, method_structs.Actors),
    "_actor/subscribe": (method_structs.WatchTree, method_structs.WatchingTree),
    "_actor/unsubscribe": (method_structs.Unsubscribe, method_structs.Unsubscribed),
    "_actor/inspect": (method_structs.OfActor, method_structs.OneActor),
    "_actor/send": (method_structs.SendText, method_structs.Done),
    "_actor/pause": (method_structs.OfActor, method_structs.Paused),
    "_actor/resume": (method_structs.OfActor, method_structs.Resumed),
    "_actor/cancel": (method_structs.OfActor, method_structs.Cancelled),
    "_question/list": (method_structs.ListQuestions, method_structs.Questions),
    "_question/answer": (method_structs.AnswerQuestion, method_structs.Answered),
    "_question/subscribe": (method_structs.Nothing, method_structs.Watching),
    "_question/unsubscribe": (method_structs.Unsubscribe, method_structs.Unsubscribed),
    "_mcp/status": (method_structs.Nothing, method_structs.Servers),
    "_mcp/reload": (method_structs.ReloadServers, method_structs.Reloaded),
    "_usage/read": (method_structs.ReadUsage, UsageReport),
    "_target/list": (method_structs.Nothing, method_structs.Targets),
    "_server/info": (method_structs.Nothing, method_structs.ServerInfo),
    "_result/part": (method_structs.ReadPart, method_structs.Part),
    "_session/list": (method_structs.ListSessions, method_structs.SessionList),
    "_session/get": (method_structs.OfSession, method_structs.OneSession),
    "_session/rename": (method_structs.RenameSession, method_structs.OneSession),
    "_session/set_role": (method_structs.SetRole, method_structs.OneSession),
    "_session/delete": (method_structs.OfSession, method_structs.Done),
    "_session/empty": (method_structs.OfSession, method_structs.Done),
    "_session/compress": (method_structs.OfSession, method_structs.Compressed),
    "_session/export": (method_structs.ExportSession, method_structs.Exported),
}
"""Callboard's own methods, with the structs of their parameters and results."""

NOTIFICATIONS: dict[str, Any] = {
    "_run/event": method_structs.RunEvent,
    "_run/lagged": method_structs.RunLagged,
    "_run/lost": method_structs.RunLost,
    "_run/ended": method_structs.RunEnded,
    "_actor/changed": method_structs.ActorsChanged,
    "_question/asked": method_structs.Asked,
    "_question/closed": method_structs.Closed,
    "_question/lagged": method_structs.QuestionsLagged,
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
    called = {**METHODS, **chat.METHODS, **chat.REQUESTS}
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
    results = [result for _, result in (METHODS | chat.METHODS).values()]
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
