"""One JSON Schema of every frame of our own: what `callboard schema control` prints.

An event is described by `callboard schema events`, the methods of ACP by that protocol's own schema; both are only
objects here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..changes import Restored
from . import chat, durable, own
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
}
"""Our own methods: the structs of their parameters and results."""

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
"""What the server tells by itself."""

_VERSION = {"const": "2.0"}
_ID = {"type": ["string", "integer"]}


def _frame(required: str, **properties: Any) -> dict[str, Any]:
    """The schema of a frame; `required` names what has to be there beside the version."""
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
_FAILURE = _frame("id error", id={"type": ["string", "integer", "null"]}, error=_ERROR)


def json_schema() -> dict[str, Any]:
    """The schema (2020-12). Each method and notification is there by name under `$defs`."""
    called = {**METHODS, **chat.METHODS, **chat.REQUESTS}
    structs = [kind for pair in called.values() for kind in pair] + list(NOTIFICATIONS.values())
    schemas, parts = msgspec.json.schema_components(structs, ref_template="#/$defs/{name}")
    defs: dict[str, Any] = dict(parts)
    results = []
    calls: list[dict[str, Any]] = []
    for number, name in enumerate(called):
        params, result = schemas[2 * number], schemas[2 * number + 1]
        defs[f"{name} params"], defs[f"{name} result"] = params, result
        results.append({"$ref": f"#/$defs/{name.replace('/', '~1')} result".replace(" ", "%20")})
        needs = parts.get(params.get("$ref", "").rpartition("/")[2], {}).get("required")
        required = "id method params" if needs else "id method"
        calls.append(_frame(required, id=_ID, method={"const": name}, params=params))
    of_told = dict(zip(NOTIFICATIONS, schemas[2 * len(called) :], strict=True))
    defs |= {f"notification {name}": schema for name, schema in of_told.items()}
    told = [
        {**_frame("method params", method={"const": name}, params=schema), "not": {"required": ["id"]}}
        for name, schema in of_told.items()
    ]
    frames = {
        "request": {"anyOf": calls},
        "notification": {"anyOf": told},
        "cancel": _CANCEL,
        "result": _frame("id result", id=_ID, result={"anyOf": results}),
        "failure": _FAILURE,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Callboard control channel",
        "anyOf": [{"$ref": f"#/$defs/{kind}"} for kind in frames],
        "$defs": defs | frames,
    }
