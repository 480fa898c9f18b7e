"""Runs the functions that edges of a workflow name. A script: it imports nothing of ours.

Each line of stdin is a call `{kind, file, function, text}`, each line of stdout its answer, `{value}` or `{error}`.
Files are loaded when they are first called, under a name of their own, and may import what DevAll's may (`devall`).
A condition is called with the text; a processor that takes two arguments also gets the dictionary that all processors
of a run share, which is DevAll's `_context` at first: the call of a processor brings along what that is made of
(`given`). What they have put into it is in the answer, too (`shared`; `no_data` says what in it is none), if the call
says that it is to be kept (`keeps`); a later process is given it again. While it is at work, a function may ask a
person: `{ask}` instead of an answer, and the next line of stdin is `{answer}` or `{unanswered}`.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHARED: dict[Any, Any] = {}
OURS: dict[Any, Any] = {}
"""What was in it at first."""
VARS: dict[str, Any] = {}
"""The workflow's, as they were at first: a function may change them in place."""
FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {}
MODULES: dict[str, Any] = {}
HOSTS: dict[tuple[str, str], Any] = {}


class Line:
    """The way to the run: lines of JSON, there and back."""

    def __init__(self) -> None:
        self._calls = os.fdopen(os.dup(0), "rb")
        self._answers = os.fdopen(os.dup(1), "wb", buffering=0)

    def read(self) -> Any:
        """The next line; None at the end."""
        line = self._calls.readline()
        return json.loads(line) if line else None

    def write(self, value: dict[str, Any]) -> None:
        """Send a line."""
        self._answers.write(json.dumps(value, default=str).encode() + b"\n")

    def ask(self, **fields: str) -> str:
        """Ask a person."""
        self.write({"ask": fields})
        told = self.read() or {"unanswered": "the run is over"}
        if "answer" not in told:
            raise EOFError(told["unanswered"])
        return str(told["answer"])


def main() -> None:
    """Answer calls until there are no more."""
    line = Line()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what functions print is not an answer
    sys.stdout.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)  # type: ignore[union-attr] # the stream that Python opened
    sys.dont_write_bytecode = True
    while (call := line.read()) is not None:
        try:
            answer = {"value": value_of(call, line)}
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the function's
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        if call.get("keeps") and SHARED:
            answer.update(shared())
        line.write(answer)


def shared() -> dict[str, Any]:
    """What functions have put into the dictionary that they share, if that is data."""
    found = {key: value for key, value in SHARED.items() if key not in OURS or OURS[key] is not value}
    if SHARED["vars"] != VARS:
        found["vars"] = SHARED["vars"]
    for key, value in found.items():
        try:
            same = isinstance(key, str) and json.loads(json.dumps(value, allow_nan=False)) == value
        except (TypeError, ValueError, RecursionError):
            same = False
        if not same:
            return {"no_data": f"a {type(value).__name__} under {key!r}"}
    return {"shared": found}


def value_of(call: dict[str, Any], line: Line) -> Any:
    """What the function says."""
    host = hosted(call, line)
    key = (call["file"], call["function"])
    if key not in FUNCTIONS:
        FUNCTIONS[key] = getattr(loaded(call["file"]), call["function"])
    function = FUNCTIONS[key]
    if call["kind"] == "condition":
        return bool(finished(function(call["text"])))
    if not takes_two(function):
        return finished(function(call["text"]))
    if not SHARED:
        OURS.update(host.context())
        VARS.update(json.loads(json.dumps(OURS["vars"])))
        SHARED.update({**OURS, **(call["given"].get("shared") or {})})
    return finished(function(call["text"], SHARED))


def hosted(call: dict[str, Any], line: Line) -> Any:
    """What files of a directory find: one host for the conditions there and one for the processors, each made with the
    first call, since only that of a processor brings along what a `_context` is made of."""
    key = call["kind"], str(Path(call["file"]).parent)
    if key not in HOSTS:
        script = loaded(call["host"])
        HOSTS[key] = script.enter({**call["given"], "directory": key[1]}, line.ask)
    return HOSTS[key]


def finished(value: Any) -> Any:
    """The result of a function, also of one that is async."""
    if inspect.isawaitable(value):
        import asyncio

        async def waited() -> Any:
            return await value

        return asyncio.run(waited())
    return value


def takes_two(function: Callable[..., Any]) -> bool:
    """Whether a second argument can be handed over by its place."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return True
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) > 1


def loaded(path: str) -> Any:
    """The module in a file, run once."""
    if path not in MODULES:
        name = f"_edge_functions_{len(MODULES)}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        MODULES[path] = module
    return MODULES[path]


if __name__ == "__main__":
    main()
