"""Worker process that runs the functions of a workflow's edges. A script that imports nothing from Callboard.

Each line of stdin is a call `{kind, file, function, text}`, each line of stdout its answer, `{value}` or `{error}`.
Files are loaded at their first call, under a unique module name, and can import DevAll's modules (`devall`). A
condition is called with the text. A processor with two parameters also receives a dictionary that all processors of
a run share, initially DevAll's `_context`; the call of a processor has the data for that (`given`).

If the call requests it (`keeps`), the answer includes the entries that processors have added (`shared`), or the
entry that JSON cannot represent (`no_data`). A later process receives the entries again. During a call a function
can ask the user: it writes `{ask}` in place of an answer, and the next line of stdin is `{answer}` or
`{unanswered}`.
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
"""Initial content of `SHARED`."""
VARS: dict[str, Any] = {}
"""Copy of the workflow's initial variables, because a function can change them in place."""
FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {}
MODULES: dict[str, Any] = {}
HOSTS: dict[tuple[str, str], Any] = {}


class RunConnection:
    """Connection to the run: lines of JSON in both directions."""

    def __init__(self) -> None:
        # Duplicates, because `main` redirects the original descriptors.
        self._calls = os.fdopen(os.dup(0), "rb")
        self._answers = os.fdopen(os.dup(1), "wb", buffering=0)

    def read(self) -> Any:
        """Block until the next line of stdin and return its JSON; None at the end."""
        line = self._calls.readline()
        return json.loads(line) if line else None

    def write(self, value: dict[str, Any]) -> None:
        self._answers.write(json.dumps(value, default=str).encode() + b"\n")

    def ask(self, **fields: str) -> str:
        """Ask the user; raise `EOFError` if there is no answer."""
        self.write({"ask": fields})
        told = self.read() or {"unanswered": "the run is over"}
        if "answer" not in told:
            raise EOFError(told["unanswered"])
        return str(told["answer"])


def main() -> None:
    """Answer calls until stdin ends."""
    line = RunConnection()
    nothing = os.open(os.devnull, os.O_RDONLY)
    # A function that reads stdin must not consume calls.
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # output of functions must not be mistaken for an answer
    sys.stdout.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)  # type: ignore[union-attr] # the stream that Python opened
    sys.dont_write_bytecode = True
    while (call := line.read()) is not None:
        try:
            answer = {"value": value_of(call, line)}
        except BaseException as error:  # noqa: BLE001 - any failure of the function is its answer
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        if call.get("keeps") and SHARED:
            answer.update(shared())
        line.write(answer)


def shared() -> dict[str, Any]:
    """Return the entries that functions have added to the shared dictionary, if they are JSON data."""
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


def value_of(call: dict[str, Any], line: RunConnection) -> Any:
    """Call the function that a call names, and return its result; a condition's result becomes a bool."""
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


def hosted(call: dict[str, Any], line: RunConnection) -> Any:
    """Return the host for the functions of a directory.

    Conditions and processors have separate hosts, each made at the first call, because only calls of processors
    have the data for a `_context`.
    """
    key = call["kind"], str(Path(call["file"]).parent)
    if key not in HOSTS:
        script = loaded(call["host"])
        HOSTS[key] = script.enter({**call["given"], "directory": key[1]}, line.ask)
    return HOSTS[key]


def finished(value: Any) -> Any:
    """Return the value; an awaitable is first run to its end in a new event loop."""
    if inspect.isawaitable(value):
        import asyncio

        async def waited() -> Any:
            return await value

        return asyncio.run(waited())
    return value


def takes_two(function: Callable[..., Any]) -> bool:
    """Return True if the function accepts a second positional argument."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return True
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) > 1


def loaded(path: str) -> Any:
    """Return the module of a file, which is executed once."""
    if path not in MODULES:
        # Files in different directories can have the same name.
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
