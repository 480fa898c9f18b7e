"""The official JSON Schema of ACP version 1, as the npm package of the protocol's own SDK brings it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from interop.environments import INSTALLED
from jsonschema import Draft202012Validator

Json = Any

SCHEMA = INSTALLED / "node/node_modules/@agentclientprotocol/sdk/schema/v1/schema.json"


class Judge:
    """Reads what an agent says, as far as it is of the protocol; methods of our own begin with `_`.

    Attributes:
        wrong: what is not as the schema wants it.
        seen: the definitions that something was read by.
    """

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.seen: set[str] = set()
        self._asked: dict[Json, str] = {}

    def asked(self, id: Json, method: str) -> None:
        """The client has sent a request."""
        self._asked[id] = method

    def heard(self, message: Json) -> None:
        """The agent has said this."""
        if not SCHEMA.exists():
            return
        if "method" in message:
            kind, told = ("Request" if "id" in message else "Notification"), message.get("params")
            self._read(message["method"], kind, told)
        elif "error" in message:
            self._check("Error", message["error"])
        else:
            self._read(self._asked[message["id"]], "Response", message["result"])

    def _read(self, method: str, kind: str, told: Json) -> None:
        if method.startswith("_"):
            return
        name = _names().get((method, kind))
        if name is None:
            self.wrong.append(f"ACP has no {kind.lower()} {method}")
        else:
            self._check(name, told)
            if name == "SessionNotification":
                self.seen.add(told["update"]["sessionUpdate"])

    def _check(self, name: str, told: Json) -> None:
        self.seen.add(name)
        self.wrong += [
            f"{name}{error.json_path[1:]}: {error.message}: {json.dumps(told)[:500]}"
            for error in _reader(name).iter_errors(told)
        ]


@cache
def _schema() -> Json:
    return json.loads(SCHEMA.read_text())


@cache
def _names() -> dict[tuple[str, str], str]:
    """The definition of each message that an agent sends, by its method and what it is."""
    return {
        (definition["x-method"], kind): name
        for name, definition in _schema()["$defs"].items()
        for kind in ("Request", "Response", "Notification")
        if name.endswith(kind)
        and "x-method" in definition
        and (definition.get("x-side") == "agent") is (kind == "Response")
    }


@cache
def _reader(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": _schema()["$defs"]})
