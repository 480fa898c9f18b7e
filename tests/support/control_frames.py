"""Every frame that goes over a connection of the control channel, held against the published schema, both ways.

What the server sends must be as the schema says, always; what a client sends must be if the server has answered it with
a result. Methods of ACP have a schema of their own, and those that a test adds have none.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
import msgspec
import pytest

from callboard.actors.front.control.peer import ControlPeer
from callboard.protocol.control import schema
from callboard.protocol.events import event_schema

ENOUGH = 40
"""Frames of a kind that are looked at in one test; the thousandth word of a run is as the others are."""

SCHEMA = schema.json_schema()


@cache
def _validator(name: str) -> Any:
    return jsonschema.Draft202012Validator({**SCHEMA["$defs"][name], "$defs": SCHEMA["$defs"]})


@cache
def _events() -> Any:
    return jsonschema.Draft202012Validator(event_schema())


class Frames:
    """Attributes:
    wrong: what was not as the schema says.
    seen: how many there were, by what they are.
    """

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.seen: Counter[str] = Counter()
        self._asked: dict[tuple[int, Any], tuple[str, Any]] = {}

    def came(self, peer: ControlPeer, frame: bytes) -> None:
        """A client has sent this."""
        try:
            told = msgspec.json.decode(frame)
        except (ValueError, RecursionError):
            return
        if isinstance(told, dict) and isinstance(told.get("id"), int | str) and told.get("method") in schema.METHODS:
            if told.get("params") is None:
                told.pop("params", None)
            request = {**told, "jsonrpc": "2.0"}  # on both of which we do not insist
            self._asked[id(peer), told["id"]] = told["method"], request

    def goes(self, peer: ControlPeer, frame: bytes) -> None:
        """The server sends this."""
        told = msgspec.json.decode(frame)
        method = told.get("method")
        if method in schema.NOTIFICATIONS:
            self._check(f"notification {method}", told["params"])
            self._check("notification", told, method)
            if method == "_run/event" and self.seen[kind := told["params"]["event"]["kind"]] < ENOUGH:
                self.seen[kind] += 1
                self._note(_events(), told["params"]["event"], kind)
            return
        asked, request = self._asked.pop((id(peer), told.get("id")), ("", None))
        if "error" in told:
            self._check("failure", told)
        elif asked and "result" in told:
            self._check(f"{asked} result", told["result"])
            self._check(f"{asked} params", request.get("params") or {})
            self._check("request", request, asked)

    def _check(self, name: str, value: Any, what: str = "") -> None:
        if self.seen[key := f"{name} {what}"] < ENOUGH:
            self.seen[key] += 1
            self._note(_validator(name), value, key)

    def _note(self, validator: Any, value: Any, what: str) -> None:
        error = next(iter(validator.iter_errors(value)), None)
        if error is not None:
            self.wrong.append(f"{what}: {error.message} at {error.json_path}")


@contextlib.contextmanager
def held_against_the_schema() -> Iterator[Frames]:
    """All frames of all connections while the block lasts; fails at its end if one was not as it should be."""
    frames = Frames()
    receive, init = ControlPeer.receive, ControlPeer.__init__

    async def receiving(peer: ControlPeer, frame: bytes) -> None:
        frames.came(peer, frame)
        await receive(peer, frame)

    def made(peer: ControlPeer, me: Any, hub: Any, caller: Any, send: Any, **more: Any) -> None:
        async def sending(frame: bytes) -> None:
            frames.goes(peer, frame)
            await send(frame)

        init(peer, me, hub, caller, sending, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ControlPeer, "receive", receiving)
        patch.setattr(ControlPeer, "__init__", made)
        yield frames
    assert not frames.wrong, "; ".join(frames.wrong[:5])
