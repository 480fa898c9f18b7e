"""One JSON Schema of every frame of our own: what `callboard schema control` prints.

An event is described by `callboard schema events`, the methods of ACP by that protocol's own schema; both are only
objects here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from . import own
from .things import GraphPicture

METHODS: dict[str, tuple[Any, Any]] = {
    "_run/start": (own.StartRun, own.OneRun),
    "_run/list": (own.ListRuns, own.Runs),
    "_run/get": (own.OfRun, own.OneRun),
    "_run/cancel": (own.OfRun, own.Cancelled),
    "_run/delete": (own.OfRun, own.Done),
    "_run/subscribe": (own.Subscribe, own.Subscribed),
    "_run/unsubscribe": (own.Unsubscribe, own.Unsubscribed),
    "_run/events": (own.ReadEvents, own.Events),
    "_run/graph": (own.OfRun, GraphPicture),
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
}
"""What the server tells by itself."""

_VERSION = {"const": "2.0"}
_ID = {"type": ["string", "integer"]}

_CANCEL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "jsonrpc": _VERSION,
        "method": {"const": "$/cancel_request"},
        "params": {"type": "object", "properties": {"requestId": _ID}, "required": ["requestId"]},
    },
    "required": ["jsonrpc", "method", "params"],
}
_FAILURE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "jsonrpc": _VERSION,
        "id": {"type": ["string", "integer", "null"]},
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "integer"},
                "message": {"type": "string"},
                "data": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
            },
            "required": ["code", "message"],
        },
    },
    "required": ["jsonrpc", "id", "error"],
}


def json_schema() -> dict[str, Any]:
    """The schema (2020-12). Each method and notification is there by name under `$defs`."""
    structs = [kind for pair in METHODS.values() for kind in pair] + list(NOTIFICATIONS.values())
    schemas, parts = msgspec.json.schema_components(structs, ref_template="#/$defs/{name}")
    defs: dict[str, Any] = dict(parts)
    results = []
    calls: list[dict[str, Any]] = []
    for number, name in enumerate(METHODS):
        params, result = schemas[2 * number], schemas[2 * number + 1]
        defs[f"{name} params"], defs[f"{name} result"] = params, result
        results.append({"$ref": f"#/$defs/{name.replace('/', '~1')} result".replace(" ", "%20")})
        required = ["jsonrpc", "id", "method"]
        if parts.get(params.get("$ref", "").rpartition("/")[2], {}).get("required"):
            required.append("params")
        calls.append(
            {
                "type": "object",
                "properties": {"jsonrpc": _VERSION, "id": _ID, "method": {"const": name}, "params": params},
                "required": required,
            }
        )
    of_told = dict(zip(NOTIFICATIONS, schemas[2 * len(METHODS) :], strict=True))
    defs |= {f"notification {name}": schema for name, schema in of_told.items()}
    told = [
        {
            "type": "object",
            "properties": {"jsonrpc": _VERSION, "method": {"const": name}, "params": schema},
            "required": ["jsonrpc", "method", "params"],
            "not": {"required": ["id"]},
        }
        for name, schema in of_told.items()
    ]
    defs["request"] = {"anyOf": calls}
    defs["notification"] = {"anyOf": told}
    defs["cancel"] = _CANCEL
    defs["result"] = {
        "type": "object",
        "properties": {"jsonrpc": _VERSION, "id": _ID, "result": {"anyOf": results}},
        "required": ["jsonrpc", "id", "result"],
    }
    defs["failure"] = _FAILURE
    kinds = ("request", "notification", "cancel", "result", "failure")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Callboard control channel",
        "anyOf": [{"$ref": f"#/$defs/{kind}"} for kind in kinds],
        "$defs": defs,
    }
